"""Command line: find the command, parse its arguments, turn failures into sentences."""

from __future__ import annotations

import argparse
import difflib
import gc
import os
import re
import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from gputop.commands.command import VERSION, Command
from gputop.commands.completion import SHELLS, PrintCompletion
from gputop.commands.overview import LIVE, RENAMED, TABLE, listing
from gputop.errors import FAILURE, USAGE, CommandError, GputopError, OutputError
from gputop.process import failures
from gputop.process.diagnostics import diagnosing
from gputop.process.interrupts import Interrupted, end_at_once, ending_at_once
from gputop.process.stdio import print_message, put, silence

_COLUMNS = 80  # at most, of help
_ALIKE = 0.75  # similarity of a file's name from which it is suggested


class _Help(argparse.HelpFormatter):
    """Help in at most 80 columns; paragraphs with line breaks keep them."""

    def __init__(self, prog: str, **layout: Any) -> None:
        layout["width"] = min(_COLUMNS, shutil.get_terminal_size().columns) - 2
        super().__init__(prog, **layout)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.split("\n\n")
        filled = (
            one if "\n" in one else super(_Help, self)._fill_text(one, width, indent) for one in paragraphs
        )
        return "\n\n".join(filled)


class _Parser(argparse.ArgumentParser):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": _Help, **settings})

    def mistyped(self, words: Sequence[str]) -> str | None:
        """Return an error for the first unknown option, with a similar one, else None."""
        if self._subparsers is not None:
            return None  # they have options of their own
        known = [one for one in self._option_string_actions if one.startswith("--")]
        for word in words:
            name = word.partition("=")[0]
            if name.startswith("--") and not any(one.startswith(name) for one in known):
                near = difflib.get_close_matches(name, known, 1)
                return f"there is no option {name}" + (f": did you mean {near[0]}?" if near else "")
        return None

    def error(self, message: str) -> NoReturn:
        left = message.partition("unrecognized arguments: ")[2]
        if self.prog == "gputop" and (os.path.isfile(left) or _holds_segments(left)):
            message = f"put the recording before its options: gputop {left} …"
        raise CommandError(f"{message} (see {self.prog} --help)", USAGE)


def parse(arguments: Sequence[str]) -> tuple[str, argparse.Namespace]:
    """Return the command's name and its options; ``options.command``: the words after ``--``.

    Raises:
        CommandError: Wrong usage; ``status`` is 2.
    """
    words = list(arguments)
    if words[:1] == ["help"] and not os.path.exists("help"):
        words = [*words[1:], "--help"]
    tail: list[str] | None = None
    if "--" in words:
        cut = words.index("--")
        words, tail = words[:cut], words[cut + 1 :]
    name = _name_of(words)
    command = command_named(name)
    parser = parser_of(name, command)
    if wrong := parser.mistyped(words):
        parser.error(wrong)  # before argparse reports a missing argument
    options = (parser.parse_intermixed_args if command.intermixed else parser.parse_args)(words)
    if not command.starts and tail is not None:
        raise CommandError(f"gputop {name} takes no command after --", USAGE)
    if command.starts:
        if tail is not None and not tail:
            raise CommandError("no command after --", USAGE)
        if tail and options.pid:
            raise CommandError("--pid and a command after -- exclude each other", USAGE)
        options.command = tail or []
        if getattr(options, "inside", False) and not tail:
            raise CommandError(
                "--inside needs a command after --: it cannot be added to a running process", USAGE
            )
    command.check(options)
    return name, options


def _name_of(words: list[str]) -> str:
    """Return the command's name, removed from the words."""
    if not words or words[0].startswith("-"):
        return LIVE
    first = words[0]
    if RENAMED.get(first, first) in TABLE:
        return RENAMED.get(first, words.pop(0))
    if os.path.isfile(first) or _holds_segments(first):
        return "replay"
    raise _neither(first)


def _neither(word: str) -> CommandError:
    """Return an error for a first word that is neither a command nor a recording, with a suggestion."""
    if os.path.isdir(word) or os.path.exists(word) or "/" in word or re.search(r"\.[a-z][a-z_-]*$", word):
        from gputop.api.reading import open_file

        try:
            open_file(word).close()
        except GputopError as error:
            near = (
                difflib.get_close_matches(word, _beside(word), 1, _ALIKE) if not os.path.exists(word) else []
            )
            return CommandError(f"{error}" + (f"; did you mean {near[0]}?" if near else ""), error.status)
    if word.isdecimal():
        return CommandError(f"there is no file {word}; to watch a process: gputop --pid {word}", USAGE)
    near = difflib.get_close_matches(word, TABLE, 1)
    if near:
        meant = f"did you mean gputop {near[0]}?"
    elif shutil.which(word):
        meant = f"to start a program: gputop -- {word} …"
    else:
        meant = "gputop --help lists the commands"
    return CommandError(f"there is no file {word!r} and no command of that name: {meant}", USAGE)


def _beside(path: str) -> list[str]:
    folder = os.path.dirname(path)
    with suppress(OSError):
        return [os.path.join(folder, name) for name in os.listdir(folder or ".")]
    return []


def _holds_segments(path: str) -> bool:
    """True if the path is a folder with a recording in segments."""
    try:
        return any(name.endswith(".gputop") for name in os.listdir(path))
    except OSError:
        return False


def command_named(name: str) -> Command:
    # imported by need: `gputop demo` needs no numpy
    module = "gputop.commands.screen.watch" if name == LIVE else TABLE[name].module
    command: Command = import_module(module).COMMAND
    return command


def parser_of(name: str, command: Command) -> _Parser:
    top = name == LIVE
    parser = _Parser(
        prog=f"gputop {name}".rstrip(),
        usage="\n       ".join(command.usage) or None,
        description=f"{command.description}\n\n{listing()}" if top else command.description,
    )
    _fill(parser, command, top=top)
    return parser


def _fill(parser: argparse.ArgumentParser, command: Command, *, top: bool) -> None:
    if top:
        parser.add_argument("--version", action="version", version=f"gputop {VERSION}")
        parser.add_argument(
            "--print-completion",
            action=PrintCompletion,
            const=whole_parser,
            choices=SHELLS,
            help="print a completion script for this shell",
        )
    command.add_arguments(parser)
    parser.add_argument("-v", "--verbose", action="count", default=0, help=command.verbose)


def whole_parser() -> argparse.ArgumentParser:
    """Return one parser of all commands, for shell completion."""
    live = command_named(LIVE)
    parser = parser_of(LIVE, live)
    commands = parser.add_subparsers()
    for name, row in TABLE.items():
        _fill(commands.add_parser(name, help=row.summary), command_named(name), top=False)
    return parser


def run(arguments: Sequence[str], *, own_process: bool = False) -> int:
    """Parse and run a command; return its exit status, after one sentence for each expected failure.

    Args:
        arguments: The arguments without the program's name.
        own_process: True if the process runs only this command, so that it may drop its privileges.
    """
    failures.listen()
    try:
        with ending_at_once():
            name, options = parse(arguments)
        options.own_process = own_process
        screen = command_named(name).has_screen(options)
        if not screen:
            gc.enable()
        with diagnosing(options.verbose, screen=screen):
            status = dispatch(name, options)
        try:
            put("")  # flushes
        except OutputError:
            if status == 0:
                raise
            silence(1)  # the terminal is gone, for example: the command's own failure is reported already
        return status
    except OutputError as error:
        silence(1)
        print_message(str(error))
        return error.status
    except GputopError as error:
        print_message(str(error))
        return error.status
    except KeyboardInterrupt as interrupt:
        return interrupt.status if isinstance(interrupt, Interrupted) else 130
    except BrokenPipeError:
        silence(1)
        return 128 + signal.SIGPIPE
    except Exception as error:
        failures.report(error)
        return FAILURE


def dispatch(name: str, options: argparse.Namespace) -> int:
    """Run a command; return its exit status."""
    command = command_named(name)
    if command.only_reads(options):
        end_at_once()
    return command.run(options)

"""Completion scripts for shells, made of the parsers: by shtab, for fish here."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from gputop.commands.flags import SESSION_FILE
from gputop.process.stdio import put

SHELLS = ("bash", "zsh", "fish", "tcsh")
# the first word may be a file, any program may follow --: bash completes both by itself
_BASH_REST = "complete -o filenames -o default -F _shtab_gputop gputop\n"


class PrintCompletion(argparse.Action):
    """Prints the script and exits; ``const`` makes the parser of all commands."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        put(script(str(values), self.const()))
        parser.exit()


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    if shell == "fish":
        return _fish(parser)
    import shtab

    _complete_files(parser, shtab.FILE)
    text: str = shtab.complete(parser, shell)
    return text + "\n" + (_BASH_REST if shell == "bash" else "")


def _complete_files(parser: argparse.ArgumentParser, way: Any) -> None:
    """Mark arguments that are files for shtab, also those of subcommands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                _complete_files(child, way)
        if getattr(action, SESSION_FILE, False):
            action.complete = way  # type: ignore[attr-defined]


_HEAD = """# fish completion for gputop
complete -c gputop -n 'contains -- -- (commandline -opc)' -F -a '(__fish_complete_command)'
"""
_BEFORE = "not contains -- -- (commandline -opc)"


def _fish(parser: argparse.ArgumentParser) -> str:
    return _HEAD + "".join(dict.fromkeys(_lines(parser, _BEFORE, "__fish_use_subcommand")))


def _lines(parser: argparse.ArgumentParser, within: str, unchosen: str) -> Iterator[str]:
    """Yield the lines of a parser, and of its commands and their actions, as of ``gputop fleet``.

    Args:
        parser: Of gputop, or of a command that has actions.
        within: Condition for being there.
        unchosen: Condition for none of its commands being typed yet.
    """
    yield from _of(parser, f"{within}; and {unchosen}")
    for commands in parser._actions:
        if not isinstance(commands, argparse._SubParsersAction):
            continue
        about = {choice.dest: choice.help or "" for choice in commands._choices_actions}
        actions = {name: _names(child) for name, child in commands.choices.items()}
        for name, child in commands.choices.items():
            yield _line(f"{within}; and {unchosen}", ["-a", _quoted(name)], about.get(name, ""))
            # `gputop fleet report` is not `gputop report`
            others = [other for other, names in actions.items() if name in names]
            here = f"{within}; and __fish_seen_subcommand_from {name}"
            here += f"; and not __fish_seen_subcommand_from {' '.join(others)}" if others else ""
            if actions[name]:
                yield from _lines(child, here, f"not __fish_seen_subcommand_from {' '.join(actions[name])}")
            else:
                yield from _of(child, here)


def _names(parser: argparse.ArgumentParser) -> list[str]:
    """Return the names of a parser's commands."""
    return [
        name
        for commands in parser._actions
        if isinstance(commands, argparse._SubParsersAction)
        for name in commands.choices
    ]


def _of(parser: argparse.ArgumentParser, condition: str) -> Iterator[str]:
    """Yield a line for each flag of a command, and for the choices of its arguments."""
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or isinstance(action, argparse._SubParsersAction):
            continue
        words = [word for name in action.option_strings for word in _flag(name)]
        if action.choices:
            words += ["-x", "-a", _quoted(" ".join(map(str, action.choices)))]
        elif getattr(action, SESSION_FILE, False):
            words += ["-r", "-F"] if action.option_strings else ["-F"]
        elif action.option_strings and action.nargs != 0:
            words.append("-x")
        if words:
            yield _line(condition, words, action.help or "")


def _flag(name: str) -> list[str]:
    return ["-l", name[2:]] if name.startswith("--") else ["-s", name[1:]]


def _line(condition: str, words: list[str], about: str) -> str:
    description = ["-d", _quoted(about.partition("\n")[0].replace("%%", "%"))] if about else []
    return " ".join(["complete -c gputop -n", _quoted(condition), *words, *description]) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

"""The script that completes gputop's words in fish, from the parsers: shtab makes none for it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from gputop.commands.flags import SESSION_FILE

_HEAD = """# fish completion for gputop
complete -c gputop -n 'contains -- -- (commandline -opc)' -F -a '(__fish_complete_command)'
"""
_BEFORE = "not contains -- -- (commandline -opc)"


def script(parser: argparse.ArgumentParser) -> str:
    lines = [*_of(parser, f"{_BEFORE}; and __fish_use_subcommand")]
    for commands in parser._actions:
        if not isinstance(commands, argparse._SubParsersAction):
            continue
        about = {choice.dest: choice.help or "" for choice in commands._choices_actions}
        for name, child in commands.choices.items():
            here = f"{_BEFORE}; and __fish_seen_subcommand_from {name}"
            lines.append(
                _line(f"{_BEFORE}; and __fish_use_subcommand", ["-a", _quoted(name)], about.get(name, ""))
            )
            lines += _of(child, here)
    return _HEAD + "".join(dict.fromkeys(lines))


def _of(parser: argparse.ArgumentParser, condition: str) -> Iterator[str]:
    """A line for each flag of a command, and for what its arguments can be."""
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
    told = ["-d", _quoted(about.partition("\n")[0].replace("%%", "%"))] if about else []
    return " ".join(["complete -c gputop -n", _quoted(condition), *words, *told]) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

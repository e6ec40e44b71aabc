"""What a shell needs to complete gputop's words: a script, made by shtab from the parsers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from gputop.commands import fish
from gputop.commands.flags import SESSION_FILE
from gputop.process.say import put

SHELLS = ("bash", "zsh", "fish", "tcsh")
# the first word may be a file, and after -- stands any program: bash completes both where we know nothing
_BASH_REST = "complete -o filenames -o default -F _shtab_gputop gputop\n"


class PrintCompletion(argparse.Action):
    """Prints the script and ends, as ``--version`` does; ``const`` makes the parser of all commands."""

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
        return fish.script(parser)
    import shtab  # not needed by who completes nothing

    _complete_files(parser, shtab.FILE)
    text: str = shtab.complete(parser, shell)
    return text + "\n" + (_BASH_REST if shell == "bash" else "")


def _complete_files(parser: argparse.ArgumentParser, way: Any) -> None:
    """Tells shtab which arguments are files, here and in the commands below."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                _complete_files(child, way)
        if getattr(action, SESSION_FILE, False):
            action.complete = way  # type: ignore[attr-defined]

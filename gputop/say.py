"""What gputop says on standard error and shows on standard output, harmless to a terminal.

It holds names of files and of processes, which are other people's data.
"""

from __future__ import annotations

import os
import sys
import traceback


def say(text: str) -> None:
    """Says a sentence."""
    try:
        sys.stderr.write(f"gputop: {_harmless(text)}\n")
        sys.stderr.flush()
    except OSError:  # the terminal has gone, and nobody is left to be told; that changes no exit status
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (what is left in the old one is not tried again)


def show(text: str) -> None:
    """Shows lines; what is in them was escaped before, and what was forgotten there does not get out raw."""
    sys.stdout.write("\n".join(map(_harmless, text.split("\n"))))


def say_where(error: BaseException) -> None:
    """Says where an error was raised, as Python would, for whoever looks for a mistake of ours."""
    for part in traceback.format_exception(error):
        # a place has a line of its own for the code there; a message is one, whatever is in it
        lines = part.splitlines() if part.startswith("  File ") else [part.strip("\n")]
        sys.stderr.writelines(f"{_harmless(line)}\n" for line in lines)


def _harmless(text: str) -> str:
    try:
        from gputop.format import escape_text  # not needed by who has nothing to say
    except ModuleNotFoundError:  # which may be what is to be said
        return ascii(text)[1:-1]
    return escape_text(text)

"""``gputop verify``: checks whether a recording is intact."""

from __future__ import annotations

import argparse

from gputop.api.session import open_session
from gputop.commands.command import Command, always
from gputop.commands.flags import add_file
from gputop.commands.progress import ProgressBar
from gputop.files.whole import verify as read_all
from gputop.format import escape_text, format_counted
from gputop.process.stdio import show

DAMAGED = 3  # exit status of a damaged file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser, "file", metavar="FILE")


def verify(options: argparse.Namespace) -> int:
    """Run the command; return the exit status: 0 intact, 3 damaged."""
    with open_session(options.file) as session, ProgressBar("reading") as progress:
        found = read_all(session, progress)
    parts = ((found.frames, "frame"), (found.records, "record"), (found.samples, "sample"))
    held = ", ".join(format_counted(count, noun) for count, noun in parts)
    lines = [f"{options.file}: {'damaged' if found.problems else 'intact'}; {held}", *found.problems]
    if found.problems:
        lines.append(f"to save the intact part: gputop repair {options.file} -o OUT")
    show("\n".join(map(escape_text, lines)) + "\n")
    return DAMAGED if found.problems else 0


COMMAND = Command(
    description="Check a recording against its checksums. "
    "Exit status: 0 when it is intact, 3 when parts are damaged or missing, 1 when nothing can be read.",
    add_arguments=add_arguments,
    run=verify,
    only_reads=always,
)

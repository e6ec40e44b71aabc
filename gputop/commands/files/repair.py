"""``gputop repair``: writes the intact part of a damaged recording."""

from __future__ import annotations

import argparse

from gputop.api.session import open_session
from gputop.commands.command import Command
from gputop.commands.flags import add_copy, check_copy
from gputop.commands.progress import ProgressBar
from gputop.files.whole import repair as copy_intact
from gputop.format import format_counted
from gputop.process.stdio import print_message


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_copy(parser)


def repair(options: argparse.Namespace) -> int:
    with open_session(options.file) as session, ProgressBar("reading") as progress:
        found = copy_intact(session, options.output, progress, force=options.force)
    for text in found.problems:
        print_message(text)
    print_message(
        f"{options.output}: {format_counted(found.frames, 'frame')}, "
        + format_counted(found.records, "record")
        + ("" if found.problems else f"; {options.file} was intact already")
    )
    return 0


COMMAND = Command(
    usage=("gputop repair FILE -o OUT",),
    description="Write the intact part of a damaged recording to a new file, which lists the missing parts.",
    add_arguments=add_arguments,
    run=repair,
    check=check_copy,
    intermixed=True,
)

"""``gputop cut``: writes a part of a recording."""

from __future__ import annotations

import argparse

from gputop.api.session import NS, open_session
from gputop.commands.command import Command
from gputop.commands.flags import add_copy, check_copy
from gputop.commands.progress import ProgressBar
from gputop.commands.words import bounded
from gputop.files.excerpt import cut as write_part
from gputop.format import format_counted
from gputop.process.stdio import print_message


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_copy(parser)
    for name, where in (("from", "since"), ("to", "until")):
        parser.add_argument(
            f"--{name}",
            dest=where,
            type=bounded(0, 1e9, "s"),
            metavar="T",
            help=f"{name} the frame T seconds after the start of FILE",
        )


def cut(options: argparse.Namespace) -> int:
    with open_session(options.file) as session, ProgressBar("reading") as progress:
        part = write_part(
            session, options.output, options.since, options.until, progress, force=options.force
        )
    print_message(
        f"{options.output}: from {part.start_ns / NS:.3f} to {part.end_ns / NS:.3f} s of {options.file}, "
        f"{format_counted(part.records, 'record')}"
    )
    return 0


COMMAND = Command(
    usage=("gputop cut FILE -o OUT [--from T] [--to T]",),
    description="Write a part of a recording to a new file. gputop explain reports the same of it "
    "as of that part of the whole.",
    add_arguments=add_arguments,
    run=cut,
    check=check_copy,
    intermixed=True,
)

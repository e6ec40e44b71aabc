"""``gputop export``: converts a recording for other tools."""

from __future__ import annotations

import argparse

from gputop.api.holes import about_holes
from gputop.api.session import open_session
from gputop.commands.command import Command
from gputop.commands.flags import add_file, add_output
from gputop.commands.progress import ProgressBar
from gputop.exchange.formats import FORMATS
from gputop.exchange.formats import export as write
from gputop.process.stdio import print_message


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser, "file", metavar="FILE")
    parser.add_argument(
        "--to", required=True, choices=FORMATS, help="the format; parquet and csv write a folder"
    )
    add_output(parser, "OUT", "the output")


def export(options: argparse.Namespace) -> int:
    with open_session(options.file) as session, ProgressBar("reading") as progress:
        write(session, options.output, options.to, progress, force=options.force)
        missing = about_holes(session)
    for text in missing:
        print_message(text)
    print_message(f"{options.output}: {FORMATS[options.to].opened_by.format(options.output)}")
    return 0


COMMAND = Command(
    description="Convert a recording to a Perfetto trace, Parquet or CSV tables, or a speedscope profile.",
    add_arguments=add_arguments,
    run=export,
)

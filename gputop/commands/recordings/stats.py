"""``gputop stats``: totals of a recording."""

from __future__ import annotations

import argparse
import json
import sys

from gputop.api import functions
from gputop.commands.command import Command, always
from gputop.commands.flags import add_file, add_json
from gputop.commands.progress import INTERRUPTED, ProgressBar
from gputop.engine.stats_output import stats_to_text
from gputop.process.stdio import put, show
from gputop.process.terminal import terminal_width


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser, "file", metavar="FILE")
    add_json(parser)


def stats(options: argparse.Namespace) -> int:
    with ProgressBar("reading", partial=True) as progress:
        totals = functions.stats(options.file, progress=progress)
    if options.json:
        put(json.dumps(functions.to_json(totals)) + "\n")
    else:
        show(stats_to_text(totals, width=terminal_width(sys.stdout)))
    return INTERRUPTED if progress.stopped else 0


COMMAND = Command(
    description="Print the totals of a recording: CUDA calls, context switches, GPUs, source lines.",
    add_arguments=add_arguments,
    run=stats,
    only_reads=always,
)

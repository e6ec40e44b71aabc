"""``gputop diff``: compares two recordings."""

from __future__ import annotations

import argparse
import json
import sys

from gputop.analysis.compare_output import diff_to_text
from gputop.api import functions
from gputop.commands.command import Command, always
from gputop.commands.flags import add_file, add_json, add_memory
from gputop.commands.progress import ProgressBar
from gputop.engine.malloc_tuning import keep_freed
from gputop.process.stdio import put, show
from gputop.process.terminal import terminal_width

_WIDTH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser, "before", metavar="BEFORE", help="a recording from before the change")
    add_file(parser, "after", metavar="AFTER", help="a recording from after it, of any length")
    add_json(parser)
    add_memory(parser)


def diff(options: argparse.Namespace) -> int:
    keep_freed()
    with ProgressBar("reading") as progress:
        found = functions.diff(options.before, options.after, progress=progress, memory_bytes=options.memory)
    if options.json:
        put(json.dumps(functions.to_json(found)) + "\n")
    else:
        show(diff_to_text(found, min(terminal_width(sys.stdout) or _WIDTH, _WIDTH)))
    return 0


COMMAND = Command(
    description="Compare two recordings of a program, before and after a change: steps, CUDA calls, context "
    "switches and the causes of idle time. Exit status: 0, or 1 after an error.",
    add_arguments=add_arguments,
    run=diff,
    only_reads=always,
)

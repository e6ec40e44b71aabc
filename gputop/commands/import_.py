"""``gputop import``: a trace of another tool as a session file."""

from __future__ import annotations

import argparse
import os
import shlex

from gputop.commands.command import Command
from gputop.commands.flags import add_file, add_output
from gputop.files.output import not_written, refuse_existing
from gputop.format import format_count, format_counted
from gputop.imports.detect import read_trace
from gputop.imports.recorded import write_trace
from gputop.library.reading import understood
from gputop.process.say import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what can be typed."""
    add_file(parser, "file", metavar="TRACE")
    add_output(parser, "FILE", "the recording to write")


def import_(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    refuse_existing(options.output, force=options.force)
    try:
        with understood(options.file):
            trace = read_trace(options.file, os.path.dirname(options.output) or ".")
            calls, activities = write_trace(trace, options.output, force=options.force)
    except OSError as error:  # of the rows that are sorted beside the output
        raise not_written(options.output, error.strerror) from error
    for text in trace.problems:
        say(text)
    counts = f"{format_counted(calls, 'call')}, {format_count(activities)} GPU activities"
    shown = f"see it with: gputop explain {shlex.quote(options.output)}"
    say(f"{options.output}: {counts} of {trace.source}; {shown}")
    return 0


COMMAND = Command(
    description="Convert a trace of Ingero (.db), torch.profiler (.json, .json.gz) or Nsight Systems "
    "(nsys export --type sqlite) to a recording. Data that the trace does not hold stays unknown.",
    add_arguments=add_arguments,
    run=import_,
)

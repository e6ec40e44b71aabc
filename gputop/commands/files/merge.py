"""``gputop merge``: joins several recordings of one run."""

from __future__ import annotations

import argparse

from gputop.commands.command import Command
from gputop.commands.flags import add_file, add_output
from gputop.commands.progress import ProgressBar
from gputop.format import format_counted, format_ns
from gputop.merging.merge_writer import MergedPart, merge
from gputop.merging.numbering import PIDS_APART
from gputop.process.stdio import print_message


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser, "files", metavar="FILE", nargs="+", help="a recording of a rank or of a node")
    add_output(parser, "OUT", "the new file")


def run(options: argparse.Namespace) -> int:
    with ProgressBar("reading") as progress:
        found = merge(options.files, options.output, progress, force=options.force)
    for part in found.parts:
        print_message(f"{part.session.path}: {_clock(part)}")
    print_message(
        f"{options.output}: {format_counted(found.records, 'record')} of {len(found.parts)} recordings in "
        f"{format_ns(found.duration_ns)}"
    )
    return 0


def _clock(part: MergedPart) -> str:
    """Return how the part's times were aligned."""
    clock = part.clock
    if clock.how == "same":
        return "times are exact (the clock of one boot of one machine)"
    error = "unknown" if clock.error_ns is None else f"at most {format_ns(clock.error_ns)}"
    return (
        f"host {part.host + 1}: clock moved by {clock.later_ns / 1e9:+.6f} s, {clock.basis}; "
        f"error: {error}; process IDs are {part.host * PIDS_APART:,} higher"
    )


COMMAND = Command(
    usage=("gputop merge FILE... -o OUT",),
    description="Merge recordings of the ranks of one machine, or of several nodes. Times of one boot of a "
    "machine are exact. Clocks of several hosts are aligned by their shared collectives, "
    "else by their wall clocks; the error is printed and stored.",
    add_arguments=add_arguments,
    run=run,
)

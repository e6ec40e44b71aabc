"""``gputop import``: converts another tool's trace to a recording."""

from __future__ import annotations

import argparse
import os
import shlex
import tempfile
from typing import Final

from gputop.api.reading import understood
from gputop.commands.command import Command
from gputop.commands.flags import add_file, add_output
from gputop.files.output_files import not_written, refuse_existing
from gputop.format import format_count, format_counted
from gputop.imports.detect import read_trace
from gputop.imports.gathered import ImportFileError
from gputop.imports.recorded import write_trace
from gputop.merging.merge_writer import merge
from gputop.process.stdio import print_message

_TRACES: Final = (".json", ".json.gz", ".json.zst", ".zip", ".sqlite", ".db", ".ndjson")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser, "file", metavar="TRACE", help="a trace, or a folder with one for each rank")
    add_output(parser, "FILE", "the recording to write")


def import_(options: argparse.Namespace) -> int:
    refuse_existing(options.output, force=options.force)
    try:
        if os.path.isdir(options.file):
            return _folder(options)
        with understood(options.file):
            trace = read_trace(options.file, os.path.dirname(options.output) or ".")
            calls, activities = write_trace(trace, options.output, force=options.force)
    except OSError as error:  # of the temporary files beside the output
        raise not_written(options.output, error.strerror) from error
    for text in trace.problems:
        print_message(text)
    counts = f"{format_counted(calls, 'call')}, {format_count(activities)} GPU activities"
    shown = f"see it with: gputop explain {shlex.quote(options.output)}"
    print_message(f"{options.output}: {counts} of {trace.source}; {shown}")
    return 0


def _folder(options: argparse.Namespace) -> int:
    """Import a folder with a trace for each rank of a job."""
    names = sorted(name for name in os.listdir(options.file) if name.endswith(_TRACES))
    if not names:
        raise ImportFileError(
            f"{options.file} holds no traces ({', '.join(_TRACES)}): name a trace, or their folder"
        )
    beside = os.path.dirname(options.output) or "."
    with tempfile.TemporaryDirectory(dir=beside) as scratch:
        parts: list[tuple[tuple[int, str], str]] = []
        for name in names:
            path = os.path.join(options.file, name)
            with understood(path):
                trace = read_trace(path, scratch)
                part = os.path.join(scratch, f"{name}.msgpack")
                write_trace(trace, part)
            rank = trace.header.get("distributed", {}).get("rank")
            parts.append(((rank if isinstance(rank, int) else 1 << 30, name), part))
            for text in trace.problems:
                print_message(f"{name}: {text}")
        found = merge([part for _, part in sorted(parts)], options.output, force=options.force)
    shown = f"see it with: gputop explain {shlex.quote(options.output)}"
    print_message(
        f"{options.output}: {len(names)} traces, {format_counted(found.records, 'record')}; {shown}"
    )
    return 0


COMMAND = Command(
    description="Convert a trace of torch.profiler (.json), Nsight Systems (nsys export --type sqlite), "
    "Ingero (.db) or wprof (wprof -R -J) to a recording: a file, also compressed (gzip, zip, zstd), or a "
    "folder with the traces of all ranks. Data that a trace does not hold stays unknown.",
    add_arguments=add_arguments,
    run=import_,
)

"""``gputop inspect``: shows a recording's metadata."""

from __future__ import annotations

import argparse
import json

from gputop.api.session import open_session
from gputop.commands.command import Command, always
from gputop.commands.flags import add_file, add_json
from gputop.files.inspection import inspect as inspection
from gputop.files.inspection import inspection_to_text
from gputop.process.stdio import put, show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser, "file", metavar="FILE")
    add_json(parser)


def inspect(options: argparse.Namespace) -> int:
    with open_session(options.file) as session:
        found = inspection(session)
    if options.json:
        put(json.dumps(found) + "\n")
    else:
        show(inspection_to_text(found))
    return 0


COMMAND = Command(
    description="Show a recording's metadata: machine, GPUs, probes, overhead, lost events, gaps, sizes.",
    add_arguments=add_arguments,
    run=inspect,
    only_reads=always,
)

"""``gputop check``: what can be observed here, and what is missing."""

from __future__ import annotations

import argparse
import json
import os
from contextlib import suppress

from gputop.checks.check_report import Plan, gather, to_json, to_text
from gputop.commands.command import VERSION, Command
from gputop.commands.flags import add_json
from gputop.commands.observer import as_root
from gputop.commands.words import pids
from gputop.process.child import interpreter_prefixes
from gputop.process.stdio import put, show
from gputop.process.targets import check_pids
from gputop.process.terminal import prefers_ascii
from probes.code import reader_child
from probes.files import file_reader

_PID_SECONDS = 1.0  # to wait for calls of ``--pid``


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    parser.add_argument(
        "--pid",
        type=pids,
        action="extend",
        metavar="PID[,PID]",
        help="check the libraries of these processes only",
    )
    parser.add_argument("--simgpu", action="store_true", help="check the simulated GPU's libraries")
    parser.add_argument(
        "--call-all",
        action="store_true",
        help="also call a function of libraries that are writable by non-root users, as user nobody",
    )


def check(options: argparse.Namespace) -> int:
    """Run the command; return the exit status: 0 if live tracing works."""
    check_pids(options.pid, as_root("{}"))
    environment, nvml_library = dict(os.environ), None
    if options.simgpu:
        from gputop.simgpu import library_build

        environment, nvml_library = library_build.environment(environment), library_build.nvml_path()
    plan = Plan(
        pids=options.pid,
        seconds=_PID_SECONDS if options.pid else 0.0,
        environment=environment,
        interpreters=interpreter_prefixes([], environment),
        nvml_library=nvml_library,
        call_all=options.call_all,
    )
    if options.own_process:  # while there is one thread
        with suppress(OSError):
            file_reader.start(reader_child)
    try:
        report = gather(plan)
    finally:
        file_reader.stop()
    if options.json:
        put(json.dumps(to_json(report, VERSION)) + "\n")
    else:
        ascii_only = prefers_ascii()
        show(to_text(report, verbose=bool(options.verbose), ascii_only=ascii_only))
    return 0 if report.live else 1


COMMAND = Command(
    description="Check what gputop can observe on this machine, and print the commands for the rest. "
    "Exit status: 0 when live tracing works, else 1.",
    add_arguments=add_arguments,
    run=check,
    verbose="list all traced functions, and log to standard error",
)

"""``gputop check``: what can be observed here, and why not."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from gputop.checks.report import Plan, gather, to_json, to_text
from gputop.errors import CommandError
from gputop.process.child import interpreter_prefixes
from gputop.process.say import put, show
from gputop.process.terminal import prefers_ascii

_PID_SECONDS = 1.0  # a process that runs gets the chance to be seen calling


def check(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit status: 0 when live tracing works."""
    from gputop.commands.cli import program_version

    for pid in options.pid or ():
        if not Path(f"/proc/{pid}").exists():
            raise CommandError(f"there is no process {pid}: it has ended, or the number is wrong")
    environment, nvml_library = dict(os.environ), None
    if options.simgpu:
        environment, nvml_library = _simulated(environment)
    report = gather(
        Plan(
            pids=options.pid,
            seconds=_PID_SECONDS if options.pid else 0.0,
            environment=environment,
            interpreters=interpreter_prefixes([], environment),
            nvml_library=nvml_library,
            call_all=options.call_all,
        )
    )
    if options.json:
        put(json.dumps(to_json(report, program_version())) + "\n")
    else:
        ascii_only = prefers_ascii()
        show(to_text(report, verbose=options.verbose, ascii_only=ascii_only))
    return 0 if report.live else 1


def _simulated(environment: dict[str, str]) -> tuple[dict[str, str], Path]:
    from gputop.simgpu import build

    try:
        return build.environment(environment), build.nvml_path()
    except build.SimGpuError as error:
        raise CommandError(str(error)) from error

"""What ``gputop explain FILE --json`` says of a run."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.faults.bench import Run, recording_start

GPUTOP = (sys.executable, "-m", "gputop")
SCHEMA = "gputop.explain/1"
MARGIN_NS = 30_000_000  # around a run: nothing else happens there


class ExplainError(Exception):
    """The command failed."""


def ask(*arguments: str) -> dict[str, Any]:
    """Runs ``gputop explain ARGUMENTS --json``; its exit status must fit what it says."""
    done = subprocess.run(
        [*GPUTOP, "explain", *arguments, "--json"], capture_output=True, text=True, timeout=60
    )
    if done.returncode not in (0, 3):
        raise ExplainError(f"status {done.returncode}: {done.stderr.strip()[-600:]}")
    said: dict[str, Any] = json.loads(done.stdout)
    if said["schema"] != SCHEMA:
        raise ExplainError(f"schema {said['schema']}")
    if (done.returncode == 3) != bool(said["findings"]):
        raise ExplainError(f"status {done.returncode} with {len(said['findings'])} findings")
    return said


def explain(run: Run) -> dict[str, Any]:
    """What is said of the part of the recording in which the run was."""
    start = recording_start(run.recording)
    since, until = (run.began_ns - MARGIN_NS - start) / 1e9, (run.ended_ns + MARGIN_NS - start) / 1e9
    return ask(str(run.recording), "--from", f"{max(since, 0):.6f}", "--to", f"{until:.6f}")

"""What ``gputop explain FILE --json`` says of a run."""

from __future__ import annotations

import json
from typing import Any

from tests import inside
from tests.faults.bench import Run, recording_start

SCHEMA = "gputop.explain/1"
MARGIN_NS = 30_000_000  # around a run: nothing else happens there


class ExplainError(Exception):
    """The command failed."""


def ask(*arguments: str) -> dict[str, Any]:
    """Runs ``gputop explain ARGUMENTS --json`` in this process; its status must fit what it says."""
    told = inside.run("explain", *arguments, "--json")
    status = told.returncode
    if status not in (0, 3):
        raise ExplainError(f"status {status}: {told.stderr.strip()[-600:]}")
    said: dict[str, Any] = json.loads(told.stdout)
    if said["schema"] != SCHEMA:
        raise ExplainError(f"schema {said['schema']}")
    if (status == 3) != bool(said["findings"]):
        raise ExplainError(f"status {status} with {len(said['findings'])} findings")
    return said


def explain(run: Run) -> dict[str, Any]:
    """What is reported of the part of the recording in which the run was."""
    start = recording_start(run.recording)
    since, until = (run.began_ns - MARGIN_NS - start) / 1e9, (run.ended_ns + MARGIN_NS - start) / 1e9
    return ask(str(run.recording), "--from", f"{max(since, 0):.6f}", "--to", f"{until:.6f}")

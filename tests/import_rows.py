"""Small traces of torch.profiler, event by event, and what is in their recordings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gputop
from gputop.api.recording_evidence import evidence_of
from tests.typed import typed

COMMS = {"Collective name": "allreduce", "In msg nelems": 1000, "dtype": "Float", "Process Group Name": "0",
         "Process Group Ranks": "[0, 1]", "Group size": 2}  # fmt: skip


def imported(trace: Path, folder: Path) -> Path:
    """The session file of a trace."""
    path = folder / f"{trace.name}.msgpack"
    assert typed("import", str(trace), "-o", str(path)) == 0
    assert typed("verify", str(path)) == 0
    return path


def evidence(path: Path) -> Any:
    """What the explanation reads."""
    with gputop.open_session(path) as session:
        found = evidence_of(session)
        assert not session.problems
        return found


def texts(found: Any, rows: Any, column: str) -> list[str]:
    """A text of each row."""
    return [found.activities.texts[place] for place in rows[column].tolist()]


def event(cat: str, name: str, begin: float, length: float, pid: int = 1, tid: int = 1, **args: Any) -> Any:
    """One of a trace."""
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": begin,
        "dur": length,
        "args": args,
    }


def kineto(path: Path, events: list[Any], **beside: Any) -> Path:
    """A trace of these events."""
    path.write_text(json.dumps({"baseTimeNanoseconds": 0, **beside, "traceEvents": events}))
    return path

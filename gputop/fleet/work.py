"""What a worker does with one recording: its rows, a few kB; nothing of the recording itself comes back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gputop.errors import GputopError, SessionNotFoundError, SessionTooNewError, SessionUnreadableError
from gputop.explain.answer.report import Finding, Report
from gputop.fleet.tables import Row
from gputop.library.answers import explain
from gputop.library.session import Session, open_session
from probes.samples import ProcessData, told
from probes.source import PROCESS

MEMORY = 256 << 20  # bytes for one explanation; a recording that does not fit is explained in parts


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one recording came to, as rows by table; ``sessions`` is empty where it cannot be explained."""

    rows: Mapping[str, tuple[Row, ...]]


def content_hash(path: str) -> str:
    """SHA-256 of what is in a file, in hex.

    Raises:
        OSError: It cannot be read.
    """
    with open(path, "rb") as file:
        known = hashlib.sha256()
        while piece := file.read(1 << 20):
            known.update(piece)
    return known.hexdigest()


def look_at(path: str, session_id: str) -> Outcome:
    """Explains one recording.

    Args:
        path: The file.
        session_id: Hash of its content.

    Returns:
        Its rows; what is wrong with it is a row of ``problems``, never an exception of the reader.
    """
    problems: list[Row] = []
    try:
        with open_session(path) as session:
            report = explain(session, memory_bytes=MEMORY)
            processes = _processes(session)
            row = _session(session, report, session_id)
            problems += [_problem(path, "torn", text, session_id) for text in session.problems]
            same = content_hash(path) == session_id
    except (SessionNotFoundError, SessionUnreadableError, SessionTooNewError, OSError) as error:
        return _nothing(unreadable(path, str(error), None))  # may be read another time
    except GputopError as error:
        return _nothing(unreadable(path, str(error), session_id))
    if not same:
        return _nothing(unreadable(path, "it changed while it was read: ingest it when it is done", None))
    if report.lost_events:
        text = (
            f"{report.lost_events} records were lost while it was recorded: gaps without them are not counted"
        )
        problems.append(_problem(path, "lossy", text, session_id))
    findings = [
        _finding(number, one, processes.get(one.pid, {}), session_id)
        for number, one in enumerate(report.findings, 1)
    ]
    return Outcome({"sessions": (row,), "findings": tuple(findings), "problems": tuple(problems)})


def _nothing(problem: Row) -> Outcome:
    return Outcome({"sessions": (), "findings": (), "problems": (problem,)})


def unreadable(path: str, text: str, session_id: str | None) -> Row:
    """The row of a file of which nothing is known; without a hash it is tried again."""
    return _problem(path, "unreadable", text, session_id)


def _problem(path: str, what: str, text: str, session_id: str | None) -> Row:
    return {"session_id": session_id, "path": path, "what": what, "text": text}


def _processes(session: Session) -> dict[int, ProcessData]:
    """What was told of each process; later facts add to earlier ones."""
    known: dict[int, ProcessData] = {}
    for item in session.items():
        data = told(item, PROCESS)
        if data is not None and isinstance(pid := data.get("pid"), int):
            known.setdefault(pid, {}).update(data)
    return known


def _session(session: Session, report: Report, session_id: str) -> Row:
    machine = session.header.get("machine")
    host = machine.get("host") if isinstance(machine, Mapping) else None
    return {
        "session_id": session_id,
        "path": session.path,
        "host": _text(host),
        "start_wall_ns": session.totals().start_wall_ns,
        "duration_ns": session.duration_ns,
        "class": report.diagnosis.kind if report.diagnosis else None,
        "verdict": report.verdict,
        "gpu_span_ns": report.span_ns,
        "idle_lower_ns": report.idle.lower,
        "idle_upper_ns": report.idle.upper,
        "idle_estimate_ns": report.idle.estimate,
        "small_ns": report.small_ns,
        "unexplained_ns": report.unexplained_ns,
        "unknown_ns": report.unknown_ns,
        "lost_events": report.lost_events,
    }


def _finding(number: int, one: Finding, process: ProcessData, session_id: str) -> Row:
    rank = process.get("rank")
    return {
        "session_id": session_id,
        "number": number,
        "cause": one.cause,
        "title": one.title,
        "kind": one.kind,
        "level": str(one.level),
        "loss_lower_ns": one.loss.lower,
        "loss_upper_ns": one.loss.upper,
        "loss_ns": one.loss.middle,
        "max_gain_ns": one.max_gain_ns,
        "pid": one.pid,
        "process": _text(process.get("name")),
        "user": _text(process.get("user")),
        "job": _text(process.get("job_id")),
        "rank": rank if isinstance(rank, int) else None,
        "api": one.api,
        "file": one.line.file if one.line else None,
        "line": one.line.line if one.line else None,
        "function": one.line.function if one.line else None,
    }


def _text(value: Any) -> str | None:
    return str(value) if value else None

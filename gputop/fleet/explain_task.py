"""The work on one recording: its rows, a few kB, without any of its records."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from gputop.analysis.answer.report import Finding, Report
from gputop.api.functions import explain
from gputop.api.holes import unkept_of
from gputop.api.recording_evidence import examined
from gputop.api.session import Session, open_session
from gputop.api.stretches import fits
from gputop.documents.field_columns import row_of
from gputop.engine.malloc_tuning import keep_freed, release_free_memory
from gputop.errors import (
    GputopError,
    OutsideSessionError,
    SessionNotFoundError,
    SessionTooNewError,
    SessionUnreadableError,
)
from gputop.fleet.lake.lake_tables import COLUMNS, VERSION, Row
from gputop.fleet.lake.urls import fetched, shown
from gputop.fleet.ranks.collective_rows import NO_MEMBER, Collectives
from gputop.fleet.ranks.communicator_ranks import Memberships
from gputop.parts.mapreduce import use_processors
from probes.samples import ProcessData, sample_data, section
from probes.source import PROCESS
from replay.folders import opened
from replay.segments import segment_names

_IN_PARTS = "its recording was explained in parts, which number no collectives"
_ONLY_SUMS = "only sums were kept of its calls (record --detail summary), so why its GPU waits is not known"
MEMORY = 256 << 20  # bytes for one explanation; a recording that does not fit is explained in parts
WORKER_MEMORY = 500_000_000  # bytes for a worker, the explanation and Python itself
_ONE = threading.Lock()  # a foreign worker may have several threads, but memory for one explanation
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Task:
    """A recording to explain: names only, no content."""

    path: str  # a file, a folder of segments, or the URL of one
    session_id: str | None = None  # hash of its content; None for a URL, which is hashed when fetched
    version: str | None = None  # the storage's version of a URL's content; None for a file
    segments: tuple[str, ...] = ()  # URLs of its segments


@dataclass(frozen=True, slots=True)
class ExplainOutcome:
    """Result of one recording."""

    rows: Mapping[str, tuple[Row, ...]]  # by table; ``sessions`` is empty if it cannot be explained
    session_id: str | None = None  # hash of its content; None if it is to be tried again


def content_hash(path: str) -> str:
    """Return the SHA-256 of a file's content, or of a folder's segments, in hex.

    Raises:
        OSError: It cannot be read.
    """
    known = hashlib.sha256()
    parts = [os.path.join(path, name) for name in segment_names(path)] if os.path.isdir(path) else [path]
    for part in parts:
        with os.fdopen(opened(part, follow=part is path), "rb") as file:
            while piece := file.read(1 << 20):
                known.update(piece)
    return known.hexdigest()


def explain_tasks(tasks: Sequence[Task], version: str) -> list[ExplainOutcome] | str:
    """Explain some recordings in turn.

    Args:
        version: The caller's gputop, which the worker's must equal.

    Returns:
        The outcomes; or a sentence if this worker has another gputop. Nothing is raised: Dask's
            client waits for ever
        for an exception that it cannot unpickle.
    """
    if version != (own := installed()):
        return f"the worker on {socket.gethostname()} has gputop {own}, this is {version}: install the same"
    with _ONE:
        use_processors(1)
        keep_freed()  # Dask makes the C library return each array at once, which doubles the CPU time
        found = [explain_task(task) for task in tasks]
        release_free_memory()
        return found


def explain_task(task: Task) -> ExplainOutcome:
    """Explain one recording; its faults become a row of ``problems``, never an exception."""
    name = shown(task.path)
    try:
        if task.session_id is not None:
            return _explain_file(task.path, name, task.session_id)
        with fetched(task.path, task.segments) as path:
            return _explain_file(path, name, content_hash(path))
    except GputopError as error:
        return _nothing(unreadable(name, str(error), None))
    except Exception as error:
        _LOG.exception("%s", name)
        where = f"on {socket.gethostname()}: {type(error).__name__}: {shown(str(error))}"
        text = f"gputop failed on it {where}; please report it"
        if isinstance(error, MemoryError):
            text = f"its explanation needs more memory than a worker has ({where})"
        return _nothing(unreadable(name, text, None))


def installed() -> str:
    """Return the version of gputop and of the lake's tables."""
    try:
        return f"{metadata.version('gputop')} (lake {VERSION})"
    except metadata.PackageNotFoundError:
        return f"unknown (lake {VERSION})"


def _explain_file(path: str, name: str, session_id: str) -> ExplainOutcome:
    """Explain a local file, which has the given name in the rows."""
    problems: list[Row] = []
    try:
        with open_session(path) as session:
            processes, members = _facts(session)
            report, found = _explained(session, session_id, processes, members)
            row = _session(session, report, session_id, processes) | {"path": name}
            torn = [text.replace(path, name) for text in session.problems]
            problems += [_problem(name, "torn", text, session_id) for text in torn]
            same = content_hash(path) == session_id
    except SessionNotFoundError as error:
        where = f"on {socket.gethostname()}, where it was to be explained"
        return _nothing(unreadable(name, f"{error} ({where}: workers need a shared folder)", None))
    except (SessionUnreadableError, SessionTooNewError, OSError) as error:
        return _nothing(unreadable(name, str(error), None))  # may be readable later
    except GputopError as error:
        return _nothing(unreadable(name, str(error).replace(path, name), session_id))
    if not same:
        return _nothing(unreadable(name, "it changed while it was read: ingest it when it is done", None))
    if row["lost_events"]:
        lost = f"{row['lost_events']} records were lost while it was recorded"
        problems.append(_problem(name, "lossy", f"{lost}: gaps without them are not counted", session_id))
    findings = [
        _finding(number, one, processes.get(one.pid, {}), session_id)
        for number, one in enumerate(report.findings if report else (), 1)
    ]
    return ExplainOutcome(
        {"sessions": (row,), "findings": tuple(findings), "problems": tuple(problems)}
        | {table: tuple(rows) for table, rows in found.items()},
        session_id,
    )


def _nothing(problem: Row) -> ExplainOutcome:
    return ExplainOutcome(dict.fromkeys(COLUMNS, ()) | {"problems": (problem,)}, problem["session_id"])


def unreadable(path: str, text: str, session_id: str | None) -> Row:
    """Return the row of an unreadable file; without a hash it is tried again."""
    return _problem(path, "unreadable", text, session_id)


def _problem(path: str, what: str, text: str, session_id: str | None) -> Row:
    return {"session_id": session_id, "path": path, "what": what, "text": text}


def _facts(session: Session) -> tuple[dict[int, ProcessData], Memberships]:
    """Facts of each process, later ones merged into earlier; and the ranks."""
    known: dict[int, ProcessData] = {}
    members = Memberships()
    for item in session.items():
        members.consume(item)
        data = sample_data(item, PROCESS)
        if data is not None and isinstance(pid := data.get("pid"), int):
            known.setdefault(pid, {}).update(data)
    return known, members


def _explained(
    session: Session, session_id: str, processes: Mapping[int, ProcessData], members: Memberships
) -> tuple[Report | None, dict[str, list[Row]]]:
    """The report, None for sums only; and the rows of the tables of collectives."""
    unkept = unkept_of(session)
    if unkept or not fits(MEMORY, session):
        rest = {"session_id": session_id, "clock": None, "process": None, "job": None, "why": _IN_PARTS}
        rows: list[dict[str, Any]] = [
            NO_MEMBER | rest | {"communicator": one.id, "rank": one.rank, "ranks": one.ranks, "pid": one.pid}
            for one in members.all()
        ]
        try:
            return explain(session, memory_bytes=MEMORY), {"communicators": [*rows]}
        except OutsideSessionError:
            if not unkept:
                raise
            return None, {"communicators": [row | {"why": _ONLY_SUMS} for row in rows]}
    report, scene, outcome = examined(session)
    boot = section(session.header, "machine").get("boot")
    collectives = Collectives(scene, outcome, members.all(), members.blind_ns)
    return report, collectives.rows(session_id, _text(boot) or session_id, processes)


def _session(
    session: Session, report: Report | None, session_id: str, processes: Mapping[int, ProcessData]
) -> dict[str, Any]:
    host, totals = section(session.header, "machine").get("host"), session.totals()
    jobs = {_text(process.get("job_id")) for process in processes.values()} - {None}
    row = dict.fromkeys(COLUMNS["sessions"]) | {
        "session_id": session_id,
        "path": session.path,
        "host": _text(host),
        "start_wall_ns": totals.start_wall_ns,
        "duration_ns": session.duration_ns,
        "verdict": _ONLY_SUMS,
        "lost_events": totals.lost.events,
        "session_job": jobs.pop() if len(jobs) == 1 else None,
        "calls": sum(call.count for process in totals.processes for call in process.calls if not call.nested),
        "unkept_ns": sum(until - since for since, until in unkept_of(session)),
        # not columns: stored in the list of a piece
        "recording": _recording(session.header, os.path.isdir(session.path)),
        "until_ns": session.start_ns + session.duration_ns,
    }
    if report is None:
        return row
    return row | {
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


def _recording(header: Mapping[str, Any], in_segments: bool) -> str | None:
    """Return an identifier of a growing recording that stays the same; None if it might not be unique.

    The first segments of a folder may be deleted later; the identifier common to all segments stays.
    """
    boot, recorder = section(header, "machine").get("boot"), header.get("own_pid")
    segment = header.get("segment")
    if not boot or not recorder:  # private, imported, merged
        return None
    if in_segments and isinstance(segment, Mapping):
        begin = [segment.get("of")]
    else:
        begin = [header.get("start_ns"), segment, header.get("cut")]
    identity = json.dumps([boot, recorder, *begin], sort_keys=True, default=repr)
    return hashlib.sha256(identity.encode()).hexdigest()


def _finding(number: int, one: Finding, process: ProcessData, session_id: str) -> Row:
    rank = process.get("rank")
    return {
        **{name: value for name, value in row_of(one).items() if name in COLUMNS["findings"]},
        "session_id": session_id,
        "number": number,
        "loss_ns": one.loss.middle,
        "process": _text(process.get("name")),
        "user": _text(process.get("user")),
        "job": _text(process.get("job_id")),
        "rank": rank if isinstance(rank, int) else None,
    }


def _text(value: Any) -> str | None:
    return str(value) if value else None

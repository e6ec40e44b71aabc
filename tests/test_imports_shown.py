"""Frames of imported traces say no more than their traces do."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import gputop
from gputop.ui.model.listing.process_table import COLUMNS
from gputop.ui.model.listing.tree import summed
from gputop.ui.model.look import UNICODE
from gputop.ui.model.table import Context
from tests import made_traces
from tests.inside import run
from tests.typed import imported


def test_a_process_lives_until_its_trace_says_that_it_ended(tmp_path: Path) -> None:
    source = made_traces.ingero(tmp_path / "trace.db")
    ended_ns, last_ns = 600_000_000, 1_300_000_000
    database = sqlite3.connect(source)
    for number, (at, source_id, op) in enumerate(((ended_ns, 3, 6), (last_ns, 5, 1))):
        pid = made_traces.PID if source_id == 3 else made_traces.PID + 1
        values = (f"e:{number}", made_traces.START + at, pid, pid, source_id, op, 1000, 0, 0, 0, 0, "n")
        database.execute("insert into events values (?,?,?,?,?,?,?,?,?,?,?,?)", values)
    database.commit()
    database.close()
    path = imported(source, tmp_path)
    with gputop.open_session(path) as session:
        frames = list(session.frames())
        start = session.start_ns
    ended = [
        (row.exited_ns is not None, frame.time_ns - start >= ended_ns)
        for frame in frames
        for row in frame.processes
        if row.pid == made_traces.PID
    ]
    assert {alive for alive, _ in ended} == {True, False}
    assert all(exited == past for exited, past in ended)


def test_figures_that_an_imported_trace_lacks_are_not_called_old_or_unanswered(tmp_path: Path) -> None:
    path = imported(made_traces.nsys(tmp_path / "trace.sqlite"), tmp_path)
    with gputop.open_session(path) as session:
        rows = [gpu for frame in session.frames() for gpu in frame.gpus]
    assert rows
    assert {reason for gpu in rows for _, reason in gpu.unavailable} == {"not in the trace that was imported"}


SCHEDULED = (
    "voluntary_per_second",
    "involuntary_per_second",
    "runnable_percent",
    "blocked_percent",
    "on_cpu_percent",
)


def processes_of(path: Path) -> list[dict[str, object]]:
    """The processes of its last frame."""
    frame = json.loads(run("replay", "--once", "--json", "--at", "end", str(path)).stdout)
    return list(frame["processes"])


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (made_traces.nsys, "trace.sqlite"),
        (made_traces.ingero, "trace.db"),
        (made_traces.kineto, "trace.json.gz"),
    ],
)
def test_what_threads_did_beside_their_calls_is_unknown_in_an_imported_trace(
    make: Callable[[Path], Path], name: str, tmp_path: Path
) -> None:
    rows = processes_of(imported(make(tmp_path / name), tmp_path))
    assert rows
    assert {row[key] for row in rows for key in SCHEDULED} == {None}


def test_in_a_recording_of_our_own_it_is_known() -> None:
    recording = Path(__file__).resolve().parents[1] / "recordings" / "dataloader.msgpack"
    rows = processes_of(recording)
    assert all(isinstance(row[key], float) for row in rows for key in SCHEDULED)
    assert any(row["on_cpu_percent"] for row in rows)


def test_the_table_says_that_it_does_not_know(tmp_path: Path) -> None:
    path = imported(made_traces.nsys(tmp_path / "trace.sqlite"), tmp_path)
    with gputop.open_session(path) as session:
        frame = list(session.frames())[-1]
    context = Context(UNICODE, 1.0, frame.time_ns)
    scheduled = ("involuntary", "voluntary", "runnable", "blocked", "cpu")
    for row in (frame.processes[0], summed(frame.processes[0], frame.processes[:1])):
        cells = {column.key: column.cell(row, context, 9)[0] for column in COLUMNS}
        assert [cells[key] for key in scheduled] == ["-"] * len(scheduled)

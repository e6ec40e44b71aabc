"""Calls that make and launch CUDA graphs: captures, launches by executable.

A record has the handle of the executable. So it is known which one was made and launched, but not of which
graph, nor when it was destroyed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gputop.api.reading import understood
from gputop.api.session import Session, reader_of
from gputop.engine.facts import Facts
from probes import api
from probes.api_semantics import Role
from probes.arrays import each_number, signed
from probes.schema import CallFlag, Kind, Records, select
from probes.source import Sample


class GraphRole(IntEnum):
    """The effect of a call on a graph."""

    NONE = 0
    BEGIN = 1  # of a capture
    END = 2
    INSTANTIATE = 3
    UPDATE = 4  # of an executable
    UPLOAD = 5
    LAUNCH = 6


_PARTS: Final = (("Launch", GraphRole.LAUNCH), ("Upload", GraphRole.UPLOAD), ("ExecUpdate", GraphRole.UPDATE))
# ``handle`` is the executable's, at INSTANTIATE in older recordings the graph's, at a capture 0;
# times are CLOCK_MONOTONIC, ns
ROW: Final = np.dtype(
    [
        ("begin", np.int64),
        ("end", np.int64),
        ("pid", np.int64),
        ("tid", np.int64),
        ("part", np.uint8),
        ("ret", np.int64),
        ("stream", np.uint64),
        ("handle", np.uint64),
    ]
)
Rows = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Capture:
    """A stream from the begin of its capture to the end."""

    begin: Any  # row of the call that began it; None: not recorded
    end: Any  # row of the call that ended it; None: not recorded
    calls: int | None  # outermost calls that enqueued in the stream meanwhile; None: unknown


@dataclass(frozen=True, slots=True)
class Executable:
    """Launches of one handle."""

    handle: int
    rows: Rows  # of the successful launches, by time
    failed: int  # number of failed ones

    @property
    def per_s(self) -> float | None:
        """Launches per second, from the first to the last; None without two moments."""
        span = int(self.rows["begin"][-1] - self.rows["begin"][0]) if len(self.rows) else 0
        return (len(self.rows) - 1) * 1e9 / span if span > 0 else None

    @property
    def usual_ns(self) -> float | None:
        """Median time from one launch to the next; None with less than two launches."""
        return float(np.median(np.diff(self.rows["begin"]))) if len(self.rows) > 1 else None


@dataclass(frozen=True, slots=True)
class GraphCalls:
    """All of a recording."""

    start_ns: int  # of the recording, CLOCK_MONOTONIC
    rows: Rows  # of dtype ``ROW``, by begin; outermost calls only
    names: dict[int, str]  # of processes that make such calls
    captures: dict[int, tuple[Capture, ...]]  # by process, in the order in which they end


def graph_calls(session: Session) -> GraphCalls:
    """Read the file once, and once more if streams were captured.

    Raises:
        GputopError: The file cannot be read or understood.
    """
    facts = Facts()
    held = [np.zeros(0, ROW)]
    with understood(session.path):
        for calls in _calls(session, facts):
            parts = _of_ops(calls, facts, _part)
            chosen = parts != GraphRole.NONE
            if chosen.any():
                held.append(_rows(select(calls, chosen), parts[chosen]))
        rows = np.concatenate(held)
        rows = rows[np.argsort(rows["begin"], kind="stable")]
        pids = [int(pid) for pid in np.unique(rows["pid"])]
        spans = {pid: _captured(rows[rows["pid"] == pid]) for pid in pids}
        counts = _calls_in_captures(session, [span for one in spans.values() for span in one])
    numbers = iter(counts)
    captures = {
        pid: tuple(Capture(begin, end, next(numbers)) for begin, end in some) for pid, some in spans.items()
    }
    return GraphCalls(session.start_ns, rows, {pid: facts.process_name(pid) for pid in pids}, captures)


def executables(rows: Rows) -> list[Executable]:
    """Return the executables by handle, most launches first."""
    launches = rows[rows["part"] == GraphRole.LAUNCH]
    found = []
    for handle in np.unique(launches["handle"]).tolist():
        mine = launches[launches["handle"] == handle]
        successful = mine[mine["ret"] == 0]
        found.append(Executable(int(handle), successful, len(mine) - len(successful)))
    return sorted(found, key=lambda one: (-len(one.rows), one.handle))


def _calls(session: Session, facts: Facts) -> Iterator[Records]:
    """Outermost calls, a batch at a time; ``facts`` consumes the samples."""
    for item in reader_of(session).items():
        if isinstance(item, Sample):
            facts.consume(item)
            continue
        yield select(item, (item["kind"] == Kind.CALL) & (item["flags"] & np.uint16(CallFlag.NESTED) == 0))


def _of_ops(calls: Records, facts: Facts, what: Callable[[str], int]) -> npt.NDArray[np.int64]:
    """A code for each call's function."""
    return each_number(calls["op"], lambda op: what(facts.api(op)[0]))


def _part(name: str) -> int:
    known = api.BY_OP[api.OP_OF[name]] if name in api.OP_OF else None
    if known is None:
        return GraphRole.NONE
    if known.role in (Role.CAPTURE_BEGIN, Role.CAPTURE_END):
        return GraphRole.BEGIN if known.role == Role.CAPTURE_BEGIN else GraphRole.END
    if known.group != "graph":
        return GraphRole.NONE
    return next((part for end, part in _PARTS if name.endswith(end)), GraphRole.INSTANTIATE)


def _enqueues(name: str) -> int:
    return int(name in api.OP_OF and api.BY_OP[api.OP_OF[name]].role in (Role.ENQUEUE, Role.COPY_SYNC))


def _rows(calls: Records, parts: npt.NDArray[np.int64]) -> Rows:
    made = np.zeros(len(calls), ROW)
    made["end"] = signed(calls["t_end"])
    made["begin"] = made["end"] - signed(calls["duration"])
    made["part"] = parts
    for name in ("pid", "tid", "ret", "stream"):
        made[name] = calls[name]
    # at the end of a capture ``aux`` is the address for the graph's handle
    made["handle"] = np.where(parts >= GraphRole.INSTANTIATE, calls["aux"], 0)
    return made


def _captured(rows: Rows) -> list[tuple[Any, Any]]:
    """(begin, end) of the captures of one process, by stream."""
    waiting: dict[int, Any] = {}
    found: list[tuple[Any, Any]] = []
    for row in rows[(rows["part"] == GraphRole.BEGIN) | (rows["part"] == GraphRole.END)]:
        stream = int(row["stream"])
        if row["part"] == GraphRole.END:
            found.append((waiting.pop(stream, None), row))
        elif row["ret"] == 0:
            if stream in waiting:  # its end is not in the recording
                found.append((waiting[stream], None))
            waiting[stream] = row
    return found + [(row, None) for row in waiting.values()]


def _calls_in_captures(session: Session, spans: Sequence[tuple[Any, Any]]) -> list[int | None]:
    """The number of calls that enqueued in each captured stream; None if its begin or end is unknown."""
    counts = [None if begin is None or end is None else 0 for begin, end in spans]
    whole = [(number, *spans[number]) for number, count in enumerate(counts) if count is not None]
    if not whole:
        return counts
    facts = Facts()
    for calls in _calls(session, facts):
        enqueues = select(calls, (_of_ops(calls, facts, _enqueues) > 0) & (calls["ret"] == 0))
        if not len(enqueues):
            continue
        first, last = int(enqueues["t_end"].min()), int(enqueues["t_end"].max())
        for number, begin, end in whole:
            if begin["end"] > last or end["begin"] < first:
                continue
            mine = (enqueues["pid"] == begin["pid"]) & (enqueues["stream"] == begin["stream"])
            inside = (enqueues["t_end"] >= begin["end"]) & (enqueues["t_end"] <= end["begin"])
            counts[number] = (counts[number] or 0) + int((mine & inside).sum())
    return counts

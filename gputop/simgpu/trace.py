"""Reads the trace of the simulated GPU: enqueue, start and end of each operation."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

#: One operation; times are CLOCK_MONOTONIC, ``enqueue`` is when the call that queued it entered the driver.
DTYPE = np.dtype(
    [
        ("pid", "i8"),
        ("device", "i8"),
        ("stream", "i8"),
        ("start", "i8"),
        ("end", "i8"),
        ("kind", "U9"),
        ("enqueue", "i8"),
    ]
)
_FIELDS = 7


def _union(spans: NDArray[np.int64]) -> NDArray[np.int64]:
    """Join intervals that overlap or touch; the result is in order."""
    spans = spans[spans[:, 1] > spans[:, 0]]
    if len(spans) == 0:
        return spans
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reach = np.maximum.accumulate(spans[:, 1])
    first = np.flatnonzero(np.r_[True, spans[1:, 0] > reach[:-1]])
    last = np.r_[first[1:] - 1, len(spans) - 1]
    return np.column_stack((spans[first, 0], reach[last]))


@dataclass(frozen=True, slots=True)
class Trace:
    """Operations in the order of the file: in time order for each process, not across processes.

    A collective is two rows of a stream: ``comm_wait`` until the last rank arrives, then ``comm``. ``host``
    is a host function; all other rows are work of the device.
    """

    rows: NDArray[Any]

    def of(
        self, pid: int | None = None, device: int | None = None, kinds: set[str] | None = None
    ) -> NDArray[Any]:
        """Return the rows of a process, a device, or kinds of operation; None means any."""
        rows = self.rows
        if pid is not None:
            rows = rows[rows["pid"] == pid]
        if device is not None:
            rows = rows[rows["device"] == device]
        return rows if kinds is None else rows[np.isin(rows["kind"], sorted(kinds))]

    def busy_intervals(
        self,
        pid: int | None,
        device: int | None,
        begin: int,
        end: int,
        *,
        work_from: Literal["start", "enqueue"] = "enqueue",
        kinds: set[str] | None = None,
    ) -> NDArray[np.int64]:
        """Return the intervals within [begin, end) in which there was work, as rows (from, to).

        Args:
            pid: The process, or None for all of them together.
            device: The machine's number of the device, or None for all of them together.
            work_from: Whether an operation counts from the call that enqueued it, or from its start.
            kinds: Kinds of operation that count; None means all, host functions included.
        """
        rows = self.of(pid, device, kinds)
        spans = np.column_stack((np.minimum(rows[work_from], rows["start"]), rows["end"]))
        return _union(np.clip(spans, begin, end).astype(np.int64))

    def idle_intervals(
        self,
        pid: int | None,
        device: int | None,
        begin: int,
        end: int,
        *,
        work_from: Literal["start", "enqueue"] = "enqueue",
        kinds: set[str] | None = None,
    ) -> NDArray[np.int64]:
        """Return the intervals within [begin, end) in which no stream had work."""
        busy = self.busy_intervals(pid, device, begin, end, work_from=work_from, kinds=kinds)
        gaps = np.column_stack((np.r_[begin, busy[:, 1]], np.r_[busy[:, 0], end]))
        return gaps[gaps[:, 1] > gaps[:, 0]].astype(np.int64)


def read_trace(path: str | PathLike[str]) -> Trace:
    """Read a trace, also while it is written, and after a kill; an unfinished line is left out."""
    data = Path(path).read_bytes()
    lines = [line for line in data.split(b"\n") if line[:1].isdigit() and len(line.split()) == _FIELDS]
    if not lines:
        return Trace(np.zeros(0, DTYPE))
    return Trace(np.atleast_1d(np.loadtxt(lines, dtype=DTYPE, encoding="ascii")))

"""Counts, sums and latency histograms of calls by (process, API, nested); calling threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gputop.engine.accumulator import Part
from gputop.engine.calls import histogram
from gputop.engine.calls.cuda_errors import failed
from gputop.engine.calls.histogram import BUCKETS, Ints
from gputop.engine.facts import Facts
from gputop.engine.fork_state import apart, packed, unpacked
from gputop.engine.frame import CallRow
from probes.api import MAX_ROWS
from probes.arrays import PIDS, distinct, table
from probes.schema import CallFlag, Records

_KEYS_PER_PROCESS = 2 * MAX_ROWS
# limits for forged calls and files; calls beyond them are counted in one row
MAX_PROCESSES = 8192  # calling CUDA at a time; 64 MB of places
MOST_ROWS = 16384  # 168 MB of histograms, if all of them have calls of all durations
_OTHERS = 0  # the row without a key
_GROW = 64
_NESTED = int(CallFlag.NESTED)
_LONGEST_NS = 1 << 62
ADDED = ("count", "errors", "bytes", "sum_ns")
TOTALS = (*ADDED, "max_ns")
_MOST_COUNTED: Final = (1 << 32) - 1  # of a bucket, as a file holds it
_ROW_BYTES: Final = 8 * (3 + len(TOTALS))  # in a file, before it is compressed
_BUCKET_BYTES: Final = 8
_ONE = np.int32(1)  # a plain 1 takes numpy's slow path: 40 ns per event instead of 1

Key = tuple[int, int, bool]  # pid, op, nested


@dataclass(slots=True)
class RowSums:
    """Sums by row of a table; all arrays have one element a row."""

    count: Ints
    errors: Ints
    bytes: Ints
    sum_ns: Ints
    max_ns: Ints

    @classmethod
    def zeros(cls, rows: int) -> RowSums:
        return cls(*(np.zeros(rows, np.int64) for _ in range(5)))

    def grow(self, rows: int) -> None:
        """Append zeros up to ``rows`` rows."""
        for name in TOTALS:
            array = getattr(self, name)
            if len(array) < rows:
                setattr(self, name, np.concatenate([array, np.zeros(rows - len(array), np.int64)]))

    def add(self, other: RowSums) -> None:
        """Add another table of the same rows; it may be shorter."""
        size = len(other.count)
        for name in ADDED:
            getattr(self, name)[:size] += getattr(other, name)
        self.max_ns[:size] = np.maximum(self.max_ns[:size], other.max_ns)

    def subtract(self, other: RowSums) -> None:
        """Subtract another table, except for the maxima, which stay."""
        size = len(other.count)
        for name in ADDED:
            getattr(self, name)[:size] -= getattr(other, name)


class CallTable:
    """One row for each (pid, op, nested) that made a call.

    ``counts`` has the shape (rows, BUCKETS). Released rows are reused. Row 0 has no key: it counts calls
    beyond ``MOST_ROWS`` rows.
    """

    def __init__(self) -> None:
        self.keys: list[tuple[int, int, bool] | None] = [None]
        self.listed = np.zeros(1, np.bool_)  # which rows have a key
        self.counts: npt.NDArray[np.int32] = np.zeros((1, BUCKETS), np.int32)
        self._free: list[int] = []
        self.process_of = table(np.int32)  # pid -> slot, 0 none
        self._far: dict[int, int] = {}  # the same beyond the limit: other machines of a merged recording
        self._slots = 1
        self._free_slots: list[int] = []
        self._row_of = np.full(_KEYS_PER_PROCESS, _OTHERS, np.int32)  # of processes without a slot

    @property
    def rows(self) -> int:
        """Number of rows, with released ones."""
        return len(self.keys)

    def rows_of(self, calls: Records) -> Ints:
        """Return the row of each call; new rows are made as needed."""
        # all columns as the integers of numpy's indices: others are converted again at each use
        pids = calls["pid"].astype(np.int64)
        slots = self._slots_of(pids)
        if not slots.all():
            self._add_processes(distinct(pids[slots == 0]))
            slots = self._slots_of(pids)
        keys = np.multiply(slots, _KEYS_PER_PROCESS, dtype=np.int64)
        # op < MAX_ROWS holds for files too: the reader's dtype has 16 bits, the rest is cut off here
        ops = calls["op"].astype(np.int64)
        ops &= MAX_ROWS - 1
        ops <<= 1
        keys += ops
        nested = calls["flags"].astype(np.int64)
        nested &= _NESTED
        keys += nested
        rows = self._row_of.take(keys)
        if (rows < 0).any():
            fresh = np.flatnonzero(rows < 0)
            names, first = np.unique(keys[fresh], return_index=True)
            self._add_rows(names, calls[fresh[first]])
            rows = np.maximum(self._row_of.take(keys), _OTHERS)
        return rows.astype(np.int64)

    def _slots_of(self, pids: Ints) -> npt.NDArray[np.int32]:
        """The slot of each process, 0 where it has none."""
        if not len(pids) or int(pids.max()) < PIDS:
            return self.process_of.take(pids)
        known, where = np.unique(pids, return_inverse=True)
        slots = np.array([self._slot(pid) for pid in known.tolist()], np.int32)
        return slots[where.reshape(-1)]

    def _slot(self, pid: int) -> int:
        return int(self.process_of[pid]) if pid < PIDS else self._far.get(pid, 0)

    def _assign_slot(self, pid: int, slot: int) -> None:
        if pid < PIDS:
            self.process_of[pid] = slot
        elif slot:
            self._far[pid] = slot
        else:
            self._far.pop(pid, None)

    def rows_for(self, keys: list[tuple[int, int, bool] | None]) -> Ints:
        """Return the rows of some keys, in their order, made as needed; None: the row without a key."""
        known = {key: row for row, key in enumerate(self.keys) if key is not None}
        wanted = [(place, key) for place, key in enumerate(keys) if key is not None]
        calls = np.zeros(len(wanted), [(name, "<i8") for name in ("pid", "op", "flags")])
        for name, column in (("pid", 0), ("op", 1), ("flags", 2)):
            calls[name] = [key[column] * (_NESTED if name == "flags" else 1) for _, key in wanted]
        rows = np.full(len(keys), _OTHERS, np.int64)
        fresh = np.array([key not in known for _, key in wanted], np.bool_)
        for one in calls[fresh]:  # one by one, so that rows are numbered in this order
            self.rows_of(one.reshape(1))
        if wanted:
            rows[[place for place, _ in wanted]] = self.rows_of(calls)
        return rows

    def _add_processes(self, pids: Ints) -> None:
        for pid in pids.tolist():
            slot = self._free_slots.pop() if self._free_slots else self._slots
            if slot >= MAX_PROCESSES:
                break
            self._slots = max(self._slots, slot + 1)
            self._assign_slot(pid, slot)
        missing = self._slots * _KEYS_PER_PROCESS - len(self._row_of)
        if missing > 0:
            self._row_of = np.concatenate([self._row_of, np.full(missing, -1, np.int32)])

    def _add_rows(self, keys: Ints, calls: Records) -> None:
        """Make rows for keys, each with a call of it, as long as there is room."""
        count = min(len(keys), len(self._free) + max(MOST_ROWS - self.rows, 0))
        self._make_room(count)
        columns = (calls[name][:count].tolist() for name in ("pid", "op", "flags"))
        for key, pid, op, flags in zip(keys[:count].tolist(), *columns, strict=True):
            row = self._free.pop()
            self.keys[row] = (pid, op & (MAX_ROWS - 1), bool(flags & _NESTED))
            self.listed[row] = True
            self._row_of[key] = row

    def _make_room(self, count: int) -> None:
        missing = count - len(self._free)
        if missing <= 0:
            return
        start = self.rows
        size = min(-(-(start + max(missing, start // 2)) // _GROW) * _GROW, MOST_ROWS)
        self.keys += [None] * (size - start)
        self.listed = np.concatenate([self.listed, np.zeros(size - start, np.bool_)])
        self._free += range(size - 1, start - 1, -1)
        grown = np.zeros((size, BUCKETS), np.int32)
        grown[:start] = self.counts
        self.counts = grown

    def release(self, rows: Ints) -> None:
        """Free rows whose counts are all zero."""
        for row in rows.tolist():
            key = self.keys[row]
            if key is None:
                continue
            pid, op, nested = key
            slot = self._slot(pid)
            self._row_of[slot * _KEYS_PER_PROCESS + 2 * op + nested] = -1
            self.keys[row] = None
            self.listed[row] = False
            self._free.append(row)

    def forget_process(self, pid: int) -> None:
        """Free the slot of a process without rows."""
        slot = self._slot(pid)
        span = slice(slot * _KEYS_PER_PROCESS, (slot + 1) * _KEYS_PER_PROCESS)
        if slot and (self._row_of[span] < 0).all():
            self._assign_slot(pid, 0)
            self._free_slots.append(slot)

    def add(self, calls: Records, totals: RowSums) -> Ints:
        """Count CALL records in the histograms and ``totals``.

        Returns:
            The flat positions in ``counts`` that were incremented.
        """
        rows = self.rows_of(calls)
        totals.grow(self.rows)
        size = self.rows
        # float64 is exact below 2**53 ns, 104 days, in one batch
        durations = calls["duration"].astype(np.float64)
        flat = histogram.bucket_of(durations)
        flat += rows * BUCKETS
        np.add.at(self.counts.reshape(-1), flat, _ONE)
        totals.count += np.bincount(rows, minlength=size)
        sums = np.bincount(rows, weights=durations, minlength=size)
        totals.sum_ns += np.minimum(sums, _LONGEST_NS).astype(np.int64)  # a file may hold any number
        longer = np.flatnonzero(durations > totals.max_ns.astype(np.float64).take(rows))
        if longer.size:
            np.maximum.at(totals.max_ns, rows[longer], calls["duration"][longer].astype(np.int64))
        sizes, codes = calls["bytes"], calls["ret"]
        if np.count_nonzero(codes):
            wrong = failed(codes)
            totals.errors += np.bincount(rows[wrong], minlength=size)
            sizes = np.where(wrong, 0, sizes)  # a failed call moves and allocates nothing
        if sizes.any():
            totals.bytes += np.bincount(rows, weights=sizes, minlength=size).astype(np.int64)
        return flat

    def merge(self, data: Mapping[str, Any], totals: RowSums) -> tuple[Ints, npt.NDArray[np.int32]]:
        """Add the payload of a ``CallSums`` to the histograms and ``totals``.

        Returns:
            The flat positions in ``counts``, and the number added at each.

        Raises:
            ValueError: The data are invalid, or exceed a limit.
        """
        rows = unpacked(data, "calls", 3 + len(TOTALS))
        if not 0 < len(rows) <= MOST_ROWS:
            raise ValueError("calls of more functions than there can be")
        buckets = np.cumsum(np.frombuffer(data["buckets"], "<u4").astype(np.int64))
        counts = np.frombuffer(data["counts"], "<u4")
        if len(buckets) != len(counts) or (len(buckets) and int(buckets[-1]) >= len(rows) * BUCKETS):
            raise ValueError("histograms of other calls")
        keys = [None, *((pid, op & (MAX_ROWS - 1), bool(nested)) for pid, op, nested, *_ in rows[1:])]
        mine = self.rows_for(keys)
        totals.grow(self.rows)
        place = mine[buckets // BUCKETS] * BUCKETS + buckets % BUCKETS
        added = counts.astype(np.int32)
        np.add.at(self.counts.reshape(-1), place, added)
        for column, name in enumerate(TOTALS, 3):
            values = np.array([row[column] for row in rows], np.int64)
            (np.add if name in ADDED else np.maximum).at(getattr(totals, name), mine, values)
        return place, added


class CallSums:
    """Sums and sparse histograms by (pid, op, nested), a few hundred bytes a row.

    A ``CallTable`` has 10 KB a row, and a recording of many short processes has ever more rows. Row 0 counts
    the calls without a key of their own.
    """

    def __init__(self) -> None:
        self._row_of: dict[Key | None, int] = {None: 0}
        self._totals = {name: np.zeros(1, np.int64) for name in TOTALS}
        self._places = np.zeros(0, np.int64)  # row * BUCKETS + bucket, ascending
        self._counts = np.zeros(0, np.int64)  # at these places

    @property
    def size_bytes(self) -> int:
        """Size of ``payload``, before it is compressed."""
        return _ROW_BYTES * len(self._row_of) + _BUCKET_BYTES * len(self._places)

    def absorb(self, table: CallTable, totals: RowSums) -> None:
        """Add the counts of a table."""
        totals.grow(table.rows)
        theirs = np.flatnonzero(totals.count)
        mine = np.array([self._row(table.keys[row]) for row in theirs.tolist()], np.int64)
        for name, into in self._totals.items():
            grown = np.concatenate([into, np.zeros(len(self._row_of) - len(into), np.int64)])
            (np.add if name in ADDED else np.maximum).at(grown, mine, getattr(totals, name)[theirs])
            self._totals[name] = grown
        counts = table.counts[theirs].reshape(-1)
        filled = np.flatnonzero(counts)
        places = np.concatenate([self._places, mine[filled // BUCKETS] * BUCKETS + filled % BUCKETS])
        order = np.argsort(places, kind="stable")
        places = places[order]
        first = np.flatnonzero(np.diff(places, prepend=-1))
        self._places = places[first]
        both = np.concatenate([self._counts, counts[filled].astype(np.int64)])[order]
        self._counts = np.add.reduceat(both, first) if len(first) else both

    def _row(self, key: Key | None) -> int:
        if key not in self._row_of and len(self._row_of) >= MOST_ROWS:
            return 0
        return self._row_of.setdefault(key, len(self._row_of))

    def payload(self) -> dict[str, Any]:
        """Return the keys ``calls``, ``buckets`` and ``counts`` of ``CallCounts.payload``."""
        columns = [self._totals[name].tolist() for name in TOTALS]
        keys = [key or (0, 0, False) for key in self._row_of]
        return {
            "calls": packed([(*key, *sums) for key, *sums in zip(keys, *columns, strict=True)]),
            "buckets": np.diff(self._places, prepend=0).astype("<u4").tobytes(),
            "counts": np.minimum(self._counts, _MOST_COUNTED).astype("<u4").tobytes(),
        }


class CallCounts(Part):
    """The calls of a recording: a dense table, and packed rows of earlier processes."""

    def __init__(self) -> None:
        self.table, self.totals = CallTable(), RowSums.zeros(0)
        self._packed = CallSums()

    def add_calls(self, calls: Records) -> None:
        self.table.add(calls, self.totals)

    def pack(self) -> None:
        """Pack the rows of the table; afterwards they are in ``payload`` only."""
        self._packed.absorb(self.table, self.totals)
        self.table, self.totals = CallTable(), RowSums.zeros(0)

    @property
    def size_bytes(self) -> int:
        """Size of the packed rows, before it is compressed."""
        return self._packed.size_bytes

    def payload(self) -> dict[str, Any]:
        whole = apart(self._packed)
        whole.absorb(self.table, self.totals)
        return whole.payload()

    def merge(self, data: Mapping[str, Any]) -> None:
        self.table.merge(data, self.totals)


@dataclass(slots=True)
class _Tick:
    totals: RowSums
    # places, how often
    counted: list[tuple[Ints, npt.NDArray[np.int32] | np.int32]] = field(default_factory=list)


class CallWindow(Part):
    """A ``CallTable`` over the last ticks.

    Each event, and the sums of each tick, are added once and subtracted once: the cost of a mark does not
        depend
    on the window.
    """

    def __init__(self) -> None:
        self.table = CallTable()
        self._ticks: deque[_Tick] = deque()
        self.now = _Tick(RowSums.zeros(0))
        self._sums = RowSums.zeros(0)  # over the kept ticks, except for ``max_ns``
        self._totals: RowSums | None = None  # the same with their ``max_ns``, made at its first use

    def add_calls(self, calls: Records) -> None:
        self.now.counted.append((self.table.add(calls, self.now.totals), _ONE))

    def merge(self, data: Mapping[str, Any]) -> None:
        """Add the sums of calls without records to the open tick."""
        self.now.counted.append(self.table.merge(data, self.now.totals))

    def close_tick(self, keep: int) -> None:
        """Close the open tick and drop all but the newest ``keep`` ticks."""
        self._sums.grow(self.table.rows)
        self._sums.add(self.now.totals)
        self._ticks.append(self.now)
        self.now, self._totals = _Tick(RowSums.zeros(0)), None
        while len(self._ticks) > keep:
            old = self._ticks.popleft()
            self._sums.subtract(old.totals)
            for places, counted in old.counted:
                np.subtract.at(self.table.counts.reshape(-1), places, counted)
        self._release()

    def _release(self) -> None:
        idle = np.flatnonzero(self.table.listed & (self._sums.count[: self.table.rows] <= 0))
        if idle.size:
            pids = {key[0] for row in idle.tolist() if (key := self.table.keys[row]) is not None}
            self.table.release(idle)
            for pid in pids:
                self.table.forget_process(pid)

    def totals(self) -> RowSums:
        """Return the sums over the kept ticks."""
        if self._totals is None:
            self._totals = RowSums.zeros(self.table.rows)
            for name in ADDED:
                getattr(self._totals, name)[: len(self._sums.count)] = getattr(self._sums, name)
            for tick in self._ticks:
                longest = self._totals.max_ns[: len(tick.totals.max_ns)]
                np.maximum(longest, tick.totals.max_ns, out=longest)
        return self._totals


def left_out(totals: RowSums) -> tuple[str, ...]:
    """Return a problem text about calls without a row of their own, if there are any."""
    count = int(totals.count[_OTHERS]) if len(totals.count) else 0
    if not count:
        return ()
    return (
        f"{count} calls are not listed: more than {MOST_ROWS} functions of processes, or {MAX_PROCESSES} "
        "processes, have called; watch fewer processes (--pid)",
    )


# Rows of a call table with names, percentiles, histograms.


def call_rows(table: CallTable, totals: RowSums, facts: Facts) -> dict[int, list[CallRow]]:
    """Return pid -> its calls, most time first; percentiles never exceed the maximum."""
    active = np.array([row for row in np.flatnonzero(totals.count).tolist() if table.keys[row]], np.int64)
    counts = table.counts[active]
    quantiles = np.minimum(
        histogram.percentiles(counts, (0.5, 0.95, 0.99)), totals.max_ns[active][:, None]
    ).tolist()
    octaves = histogram.by_power_of_two(counts).tolist()
    found: dict[int, list[CallRow]] = {}
    for row, (p50, p95, p99), octave in zip(active.tolist(), quantiles, octaves, strict=True):
        key = table.keys[row]
        assert key is not None
        pid, op, nested = key
        api, layer = facts.api(op)
        found.setdefault(pid, []).append(
            CallRow(
                api=api,
                layer=layer,
                nested=nested,
                count=int(totals.count[row]),
                errors=int(totals.errors[row]),
                bytes=int(totals.bytes[row]),
                sum_ns=int(totals.sum_ns[row]),
                p50_ns=p50,
                p95_ns=p95,
                p99_ns=p99,
                max_ns=int(totals.max_ns[row]),
                histogram=tuple(octave),
            )
        )
    for calls in found.values():
        calls.sort(key=lambda call: (-call.sum_ns, call.api, call.nested))
    return found


class Callers(Part):
    """The threads that make CUDA calls, with one look-up per call.

    Thread ids are below the kernel's PID_MAX_LIMIT, except those of other machines in a merged recording.
    """

    def __init__(self) -> None:
        self.known = table(np.bool_)
        self._tids: list[int] = []
        self._far: set[int] = set()

    def add_calls(self, calls: Records) -> None:
        self._add(calls["tid"])

    def payload(self) -> dict[str, Any]:
        return {"callers": packed([(tid,) for tid in sorted({*self._tids, *self._far})])}

    def merge(self, data: Mapping[str, Any]) -> None:
        self._add(np.array([tid for (tid,) in unpacked(data, "callers", 1)], np.int64))

    def _add(self, tids: npt.NDArray[np.integer]) -> None:
        if len(tids) and int(tids.max()) >= len(self.known):
            far = tids >= len(self.known)
            self._far.update(distinct(tids[far]).tolist())
            tids = tids[~far]
        known = self.known.take(tids)
        if not known.all():
            fresh = distinct(tids[~known])
            self.known[fresh] = True
            self._tids += fresh.tolist()

    @property
    def tids(self) -> frozenset[int]:
        return frozenset(self._tids) | self._far

    def clear(self) -> None:
        self.known[self._tids] = False
        self._tids, self._far = [], set()

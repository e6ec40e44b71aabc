"""What was observed, as columns: calls, stays off the CPU, lives, stints of others, losses, samples.

``Gatherer`` takes items in, live or from a file; ``Gatherer.evidence`` sorts them for the analysis. Only
outermost calls are kept, so that each operation counts once, but for what a group of collectives starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gputop.engine.apart import apart
from gputop.engine.facts import Facts, lost_before
from gputop.engine.occupancy import segments_of
from gputop.engine.switches import OpenThreads
from gputop.explain.evidence.activity import Activities, ActivityGatherer
from gputop.explain.evidence.apiclass import ApiTable, Role
from gputop.explain.evidence.before import records_before
from gputop.explain.evidence.lives import lives_of
from gputop.explain.evidence.losses import LossFinder
from gputop.explain.evidence.ranges import Ints
from gputop.explain.evidence.samples import places_of
from gputop.explain.evidence.tick import Tick
from probes import api
from probes.proc.open_files import accepted_ends
from probes.schema import ALIASED, COPY_SHIFT, CallFlag, Kind, OffFlag, Records, select
from probes.source import ACTIVITY, APIS, CARRIED, FILES, GPUS, MARK, OPEN, PLACES, Item, Sample

MANY, MOST_TIDS = 100_000, (1 << 22) + 1  # Linux numbers threads below 2^22; so many go by a table
TIME_BITS = 47  # 39 hours in nanoseconds; the bits above hold the thread

CALL_COLUMNS = np.dtype(
    [
        ("begin", "<i8"),
        ("end", "<i8"),
        ("tid", "<u4"),
        ("pid", "<u4"),
        ("op", "<u2"),
        ("direction", "|u1"),
        ("abandoned", "|b1"),
        ("ret", "<i4"),
        ("bytes", "<i8"),
        ("stream", "<u8"),
        ("aux", "<u8"),
        ("stack", "<u8"),
    ]
)
SLICE_COLUMNS = np.dtype(
    [
        ("begin", "<i8"),
        ("queued", "<i8"),  # from here on it waits for a CPU
        ("end", "<i8"),
        ("tid", "<u4"),
        ("pid", "<u4"),
        ("waker_tid", "<u4"),
        ("waker_pid", "<u4"),
        ("cpu", "<u2"),
        ("queue_cpu", "<u2"),
        ("syscall", "<u2"),
        ("flags", "<u2"),
        ("faults", "<u2"),  # minor page faults in the time on a CPU before it
        ("stack", "<u8"),  # of Python, where it blocked between two calls
        ("descriptor", "<u4"),  # that it blocked on, if its system call takes one
    ]
)
Table = npt.NDArray[np.void]
Column = npt.NDArray[Any]


class Columns:
    """A table stored column by column: ``c["begin"]`` is contiguous, so that arithmetic is fast."""

    def __init__(self, columns: dict[str, Column]) -> None:
        self._columns = columns

    def __getitem__(self, name: str) -> Column:
        return self._columns[name]

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(self._columns)

    def pop(self, name: str) -> Column:
        """Takes a column out."""
        return self._columns.pop(name)

    def take(self, rows: Column) -> Columns:
        """These rows, by number or mask."""
        return Columns({name: column[rows] for name, column in self._columns.items()})

    @classmethod
    def join(cls, parts: Iterable[Columns], dtype: np.dtype[np.void]) -> Columns:
        """Several tables, one after the other."""
        tables = list(parts)
        columns: dict[str, Column] = {}
        for name in dtype.names or ():
            own = [part[name] for part in tables]
            columns[name] = np.concatenate([np.zeros(0, dtype[name]), *own])
        return cls(columns)


@dataclass(frozen=True, slots=True)
class Threads:
    """The threads that records mention, by ascending thread id.

    ``known`` is from when on the thread's states are known, ``ended`` when it exited (the far future while
    it lives), ``parent`` the row of the thread that made it, -1 if its birth was not seen.
    """

    tid: Ints
    pid: Ints
    known: Ints
    ended: Ints
    parent: Ints

    def row(self, tids: Column) -> Ints:
        """The row of each thread id; -1 for one that is not there."""
        if not len(self.tid):
            return np.full(len(tids), -1, np.int64)
        if len(tids) > MANY and self.tid[-1] < MOST_TIDS:
            table = np.full(MOST_TIDS, -1, np.int32)
            table[self.tid] = np.arange(len(self.tid))
            rows: Ints = table.take(tids, mode="clip").astype(np.int64)
            return rows
        wanted = np.asarray(tids, np.int64)
        place = np.minimum(np.searchsorted(self.tid, wanted), len(self.tid) - 1)
        return np.where(self.tid[place] == wanted, place, -1)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that the analysis reads. Times are CLOCK_MONOTONIC nanoseconds.

    Attributes:
        calls: Outermost calls by (thread, begin); ``row`` is the thread's row in ``threads``.
        inner: Calls inside a group of collectives that give a stream work.
        slices: Stays off the CPU by (thread, begin), the ones open at the end included.
        places: Where threads were on a CPU between two calls, at some moments.
        lost: Disjoint intervals in which a record of some CPU is missing.
        lost_events: How many records are missing, counted by the kernel or found by their sequence.
        waits: The kind of wait for each system call number.
        activities: What others measured, in files that were imported.
        accepted: (process, descriptor) of sockets that are the server's end of a connection.
        complete: Processes all of whose CUDA calls were seen, by their process number.
    """

    start_ns: int
    end_ns: int
    apis: ApiTable
    facts: Facts
    threads: Threads
    calls: Columns
    inner: Columns
    slices: Columns
    stints: Table
    moves: Table
    places: Table
    open_calls: Table
    lost: tuple[Ints, Ints]
    lost_events: int
    complete: frozenset[int]
    ended: Mapping[int, int]
    gpus: tuple[Sample, ...]
    waits: npt.NDArray[np.uint8]
    activities: Activities
    accepted: frozenset[tuple[int, int]] = frozenset()
    header: Mapping[str, Any] = field(default_factory=dict)
    _kept: dict[str, Column] = field(default_factory=dict, init=False, repr=False, compare=False)

    def _once(self, name: str, make: Callable[[], Column]) -> Column:
        """Columns that many ask for and that take long to make of ten million calls."""
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def key(self, rows: Column, times: Column) -> Ints:
        """Thread and time as one number, in the order of ``calls`` and ``slices``."""
        bounded = np.clip(np.asarray(times, np.int64) - self.start_ns + 1, 0, (1 << TIME_BITS) - 1)
        return (np.asarray(rows, np.int64) << TIME_BITS) | bounded

    def role(self, calls: Columns) -> Column:
        """The ``Role`` of each call."""
        if calls is self.calls:
            return self._once("role", lambda: self.apis.role.take(calls["op"], mode="clip"))
        roles: Column = self.apis.role.take(calls["op"], mode="clip")
        return roles

    def group(self, calls: Columns) -> Column:
        """The ``Group`` of each call."""
        if calls is self.calls:
            return self._once("group", lambda: self.apis.group.take(calls["op"], mode="clip"))
        groups: Column = self.apis.group.take(calls["op"], mode="clip")
        return groups

    @property
    def slice_begins(self) -> Ints:
        """The keys of ``slices`` by begin."""
        return self._once("slice begins", lambda: self.key(self.slices["row"], self.slices["begin"]))

    @property
    def slice_ends(self) -> Ints:
        """The keys of ``slices`` by end."""
        return self._once("slice ends", lambda: self.key(self.slices["row"], self.slices["end"]))

    def role_of(self, rows: Ints) -> Column:
        """The ``Role`` of these rows of ``calls``."""
        roles: Column = self.apis.role.take(self.calls["op"][rows], mode="clip")
        return roles

    def group_of(self, rows: Ints) -> Column:
        """The ``Group`` of these rows of ``calls``."""
        groups: Column = self.apis.group.take(self.calls["op"][rows], mode="clip")
        return groups


def _times(records: Records) -> tuple[Ints, Ints]:
    """(begin, end); a damaged file may hold any number."""
    end = np.minimum(records["t_end"], np.uint64(1 << 62))
    begin = end - np.minimum(records["duration"], end)
    return begin.astype(np.int64), end.astype(np.int64)


def calls_of(records: Records) -> Columns:
    """CALL records as columns."""
    begin, end = _times(records)
    flags = records["flags"]
    return Columns(
        {
            "begin": begin,
            "end": end,
            "tid": records["tid"].copy(),
            "pid": records["pid"].copy(),
            "op": records["op"].copy(),
            "direction": (flags >> COPY_SHIFT).astype(np.uint8),
            "abandoned": (flags & CallFlag.ABANDONED) != 0,
            "ret": records["ret"].copy(),
            "bytes": records["bytes"].astype(np.int64),
            "stream": records["stream"].copy(),
            "aux": records["aux"].copy(),
            "stack": records["stack"].copy(),
        }
    )


def slices_of(records: Records) -> Columns:
    """OFFCPU records as columns."""
    rows = records.view(ALIASED)
    begin, end = _times(rows)
    queued = end - np.minimum(rows["runnable"], (end - begin).astype(np.uint64)).astype(np.int64)
    missed = (rows["flags"] & OffFlag.WAKE_MISSED) != 0
    return Columns(
        {
            "begin": begin,
            "queued": np.where(missed, end, queued),
            "end": end,
            "tid": rows["tid"].copy(),
            "pid": rows["pid"].copy(),
            "waker_tid": rows["waker_tid"].copy(),
            "waker_pid": rows["waker_pid"].copy(),
            "cpu": rows["cpu"].copy(),
            "queue_cpu": rows["queue_cpu"].copy(),
            "syscall": rows["op"].copy(),
            "flags": rows["flags"].copy(),
            "faults": rows["faults"].copy(),
            "descriptor": rows["argument"].copy(),
            "stack": rows["stack"].copy(),
        }
    )


class Gatherer:
    """Takes items in. ``ticks`` may be shortened from the left by whoever keeps a window only."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        self.header = header
        self.facts = Facts()
        self._proves = not header.get("unproved")  # a file without streams, say, proves nothing
        self.apis = ApiTable([[row.name, row.layer, row.group] for row in api.BY_OP])
        self.ticks: list[Tick] = [Tick()]
        self.lives: list[Table] = []
        cut = header.get("cut") is not None
        self.losses = LossFinder(int(header.get("start_ns", 0)), cut=cut)
        self._lost_before = lost_before(header)
        self.gpus: list[Sample] = []
        self.activities = ActivityGatherer()
        self.open = OpenThreads()
        self.accepted: frozenset[tuple[int, int]] = frozenset()
        self.end_ns = 0
        self.counted_lost = 0
        self.complete: frozenset[int] = frozenset()  # before a cut, all of whose calls were seen
        self._grouped = False

    def feed(self, item: Item) -> bool:
        """Takes one item in; True when it closed a tick."""
        if not isinstance(item, Sample):
            self._records(item)
            return False
        if item.kind == MARK:
            self._mark(item)
            return True
        if item.kind == OPEN:
            self.open = OpenThreads.from_sample(item.data)
        elif item.kind == GPUS:
            self.gpus.append(item)
        elif item.kind == FILES:
            self.accepted = accepted_ends(self.accepted, item.data)
        elif item.kind == PLACES:
            self.ticks[-1].places.append(places_of(item.data))
        elif item.kind == CARRIED:
            self._before(item)
        elif item.kind == ACTIVITY:
            self.activities.take(item.data)
        elif item.kind == APIS:
            self.apis = ApiTable(item.data.get("rows", ()), proves=self._proves)
        self.facts.take(item)
        return False

    def copy(self) -> Gatherer:
        """At a mark: one that goes on from here by itself. Closed ticks are both's: they never change."""
        other = apart(self, shared=("header", "apis", "open"))  # replaced as a whole, never changed
        other.ticks[-1] = Tick()
        return other

    def join(self, first: int) -> None:
        """Makes one of the closed ticks from this one on: few large tables take less time and room."""
        closed = self.ticks[first:-1]
        tick = Tick(
            calls=[Columns.join((part for one in closed for part in one.calls), CALL_COLUMNS)],
            inner=[Columns.join((part for one in closed for part in one.inner), CALL_COLUMNS)],
            slices=[Columns.join((part for one in closed for part in one.slices), SLICE_COLUMNS)],
            stints=[part for one in closed for part in one.stints],
            moves=[part for one in closed for part in one.moves],
            places=[part for one in closed for part in one.places],
        )
        tick.close(closed[-1].mark_ns)
        self.ticks[first:-1] = [tick]

    def _mark(self, mark: Sample) -> None:
        self.end_ns = mark.time_ns
        lost = mark.data.get("lost", {})
        counted = sum(int(number) for number in lost.values())
        self.counted_lost = max(counted - sum(self._lost_before.values()), 0)
        self.ticks[-1].close(mark.time_ns)
        self.ticks.append(Tick())

    def _before(self, sample: Sample) -> None:
        """Calls from before a cut: no record of the file, so none is lost among them."""
        records, complete = records_before(sample.data)
        self.complete |= complete
        if len(records):
            self._take(records)

    def _records(self, records: Records) -> None:
        if not len(records):
            return
        self.losses.add(records)
        self._take(records)

    def _take(self, records: Records) -> None:
        self.end_ns = max(self.end_ns, int(records["t_end"].max()))
        kinds, tick = records["kind"], self.ticks[-1]
        calls = kinds == np.uint8(Kind.CALL)
        if calls.any():
            self._calls(records, calls)
        if calls.all():
            return
        slices = kinds == np.uint8(Kind.OFFCPU)
        if slices.any():
            tick.slices.append(slices_of(select(records, slices)))
        for kind, parts, cpu in (
            (Kind.OCCUPANT, tick.stints, "cpu"),
            (Kind.MIGRATE, tick.moves, "queue_cpu"),
        ):
            mask = kinds == np.uint8(kind)
            if mask.any():
                parts.append(segments_of(select(records, mask).view(ALIASED), cpu))
        life = (kinds >= np.uint8(Kind.FORK)) & (kinds <= np.uint8(Kind.JOIN))
        if life.any():
            self.lives.append(lives_of(select(records, life)))

    def _calls(self, records: Records, calls: npt.NDArray[np.bool_]) -> None:
        nested = (records["flags"] & np.uint16(CallFlag.NESTED)) != 0
        outer = calls & ~nested
        if outer.any():
            self.ticks[-1].calls.append(calls_of(select(records, outer)))
        inner = calls & nested
        if not inner.any():
            return
        roles = self.apis.role.take(records["op"], mode="clip")
        self._grouped |= bool((roles[calls] == Role.BRACKET).any())
        if self._grouped:
            gives = roles == Role.ENQUEUE
            self.ticks[-1].inner.append(calls_of(select(records, inner & gives)))

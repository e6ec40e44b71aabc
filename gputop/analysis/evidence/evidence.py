"""The recorded events as columns: calls, intervals off the CPU, lives, samples, losses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gputop.analysis.evidence.api_classes import Activities, ApiTable
from gputop.analysis.evidence.columns import Ints, shared_value
from gputop.analysis.evidence.memory_ledger import Held
from gputop.engine.calls.failed_calls import FailedCalls
from gputop.engine.calls.frameworks import Framework
from gputop.engine.facts import Facts
from gputop.engine.gpus.nvml_rows import fill_of, smaller
from probes.samples import PlacesData
from probes.schema import ALIASED, NO_SYSCALL, ExitFlag, Kind, Records
from probes.source import Sample

MANY, MOST_TIDS = 100_000, (1 << 22) + 1  # rows from which on a table pays; Linux numbers threads below 2^22
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
        ("shape", "<u4"),  # of a launch, by its number; 0: not known
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
        ("descriptor", "<u4"),  # that it blocked on, if its system call has one
        ("file", "<i4"),  # of that descriptor, a number of Descriptors
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
        """Return the columns' names."""
        return tuple(self._columns)

    def pop(self, name: str) -> Column:
        """Remove a column and return it."""
        return self._columns.pop(name)

    def with_columns(self, **columns: Column) -> Columns:
        """Return the table with more columns, or other ones of these names."""
        return Columns({**self._columns, **columns})

    def take(self, rows: Column) -> Columns:
        """Return these rows, by number or mask."""
        return Columns({name: column[rows] for name, column in self._columns.items()})

    @classmethod
    def join(cls, parts: Iterable[Columns], dtype: np.dtype[np.void]) -> Columns:
        """Join several tables."""
        tables = list(parts)
        columns: dict[str, Column] = {}
        for name in dtype.names or ():
            own = [part[name] for part in tables]
            one = shared_value(own)
            columns[name] = np.concatenate([np.zeros(0, dtype[name]), *own]) if one is None else one
        return cls(columns)


@dataclass(frozen=True, slots=True)
class Threads:
    """The recorded threads, by ascending thread id."""

    tid: Ints
    pid: Ints
    known: Ints  # the moment from which on the thread's states are known
    ended: Ints  # its exit; the far future while it lives
    parent: Ints  # the row of the thread that made it; -1 if its birth was not recorded

    def row(self, tids: Column) -> Ints:
        """Return the row of each thread id; -1: not there."""
        if not len(self.tid):
            return np.full(len(tids), -1, np.int64)
        if len(tids) > MANY and self.tid[-1] < MOST_TIDS:
            table = np.full(MOST_TIDS, -1, np.int32)
            table[self.tid] = np.arange(len(self.tid))
            return table.take(tids, mode="clip").astype(np.int64)
        wanted = np.asarray(tids, np.int64)
        place = np.minimum(np.searchsorted(self.tid, wanted), len(self.tid) - 1)
        return np.where(self.tid[place] == wanted, place, -1)


@dataclass(frozen=True, slots=True)
class Evidence:
    """All input of the analysis. Times are CLOCK_MONOTONIC nanoseconds."""

    start_ns: int
    end_ns: int
    apis: ApiTable
    facts: Facts
    threads: Threads
    calls: Columns  # outermost calls by (thread, begin); ``row`` is the thread's row in ``threads``
    inner: Columns  # calls inside a group of collectives that enqueue work
    # intervals off the CPU by (thread, begin), those open at the end included; ``wait`` is the ``Wait`` of
    # each
    slices: Columns
    on_cpu: Table
    moves: Table
    places: Table  # samples of threads on a CPU between two calls
    open_calls: Table
    lost: tuple[Ints, Ints]  # disjoint intervals in which a record of some CPU is missing
    lost_events: int  # number of missing records, counted by the kernel or found by their sequence
    complete: frozenset[int]  # processes all of whose CUDA calls are recorded
    ended: Mapping[int, int]
    gpus: tuple[Sample, ...]
    activities: Activities  # measurements of others, in imported files
    files: tuple[str, ...] = ("",)  # names of the numbers in the slices' column ``file``
    header: Mapping[str, Any] = field(default_factory=dict)
    # the calls that failed since the start of the session
    failed: FailedCalls = field(default_factory=FailedCalls)
    held: Held = field(default_factory=Held)  # the memory that processes hold at the end, and its history
    # disjoint intervals of which only sums are in the file
    unkept: tuple[Ints, Ints] = field(default_factory=lambda: (np.zeros(0, np.int64), np.zeros(0, np.int64)))
    choices_kept: bool = True  # True if the file has the GPU that each thread chose in them
    _kept: dict[str, Column] = field(default_factory=dict, init=False, repr=False, compare=False)

    def _once(self, name: str, make: Callable[[], Column]) -> Column:
        """Return a column of all calls or slices, made once."""
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def frameworks(self, pid: int) -> frozenset[Framework]:
        """Return the frameworks that a process has loaded; torch.profiler records PyTorch only."""
        loaded = self.facts.frameworks(pid)
        return loaded | {Framework.TORCH} if self.header.get("source") == "kineto" else loaded

    def key(self, rows: Column, times: Column) -> Ints:
        """Return thread and time as one number, in the order of ``calls`` and ``slices``."""
        bounded = np.clip(np.asarray(times, np.int64) - self.start_ns + 1, 0, (1 << TIME_BITS) - 1)
        return (np.asarray(rows, np.int64) << TIME_BITS) | bounded

    def role(self, calls: Columns) -> Column:
        """Return the ``Role`` of each call."""
        if calls is self.calls:
            return self._once("role", lambda: self.apis.role.take(calls["op"], mode="clip"))
        return self.apis.role.take(calls["op"], mode="clip")

    def group(self, calls: Columns) -> Column:
        """Return the ``Group`` of each call."""
        if calls is self.calls:
            return self._once("group", lambda: self.apis.group.take(calls["op"], mode="clip"))
        return self.apis.group.take(calls["op"], mode="clip")

    @property
    def fill(self) -> int | None:
        """Threads that fill the smallest GPU (``gputop/engine/gpus/nvml_rows.py``)."""
        return reduce(smaller, map(fill_of, self.gpus), None)

    @property
    def call_begins(self) -> Ints:
        """The keys of ``calls`` by begin."""
        return self._once("call begins", lambda: self.key(self.calls["row"], self.calls["begin"]))

    @property
    def slice_begins(self) -> Ints:
        """The keys of ``slices`` by begin."""
        return self._once("slice begins", lambda: self.key(self.slices["row"], self.slices["begin"]))

    @property
    def slice_ends(self) -> Ints:
        """The keys of ``slices`` by end."""
        return self._once("slice ends", lambda: self.key(self.slices["row"], self.slices["end"]))

    def role_of(self, rows: Ints) -> Column:
        """Return the ``Role`` of these rows of ``calls``."""
        return self.apis.role.take(self.calls["op"][rows], mode="clip")

    def group_of(self, rows: Ints) -> Column:
        """Return the ``Group`` of these rows of ``calls``."""
        return self.apis.group.take(self.calls["op"][rows], mode="clip")


# Births and ends of threads and processes, as a table.

LIFE_COLUMNS = np.dtype(
    [("at", "<i8"), ("tid", "<u4"), ("pid", "<u4"), ("maker", "<u4"), ("kind", "|u1"), ("dead", "|b1")]
)


def lives_of(records: Records) -> npt.NDArray[np.void]:
    """Return FORK, EXEC, EXIT and JOIN records as rows of ``LIFE_COLUMNS``."""
    rows = records.view(ALIASED)
    table = np.zeros(len(rows), LIFE_COLUMNS)
    for name, own in (("at", "t_end"), ("tid", "tid"), ("pid", "pid"), ("kind", "kind")):
        table[name] = rows[own]
    table["maker"] = np.where(rows["kind"] == Kind.FORK, rows["next_tid"], 0)
    table["dead"] = (rows["kind"] == Kind.EXIT) & ((rows["flags"] & ExitFlag.GROUP_DEAD) != 0)
    return table


@dataclass(slots=True)
class Tick:
    """The records between two marks of a session, as tables."""

    mark_ns: int = 0
    rows: int = 0  # of all tables, once it is closed
    calls: list[Columns] = field(default_factory=list)
    inner: list[Columns] = field(default_factory=list)
    slices: list[Columns] = field(default_factory=list)
    on_cpu: list[Table] = field(default_factory=list)
    moves: list[Table] = field(default_factory=list)
    places: list[Table] = field(default_factory=list)

    def close(self, mark_ns: int) -> None:
        """End it with a mark."""
        columns, tables = (*self.calls, *self.inner, *self.slices), (*self.on_cpu, *self.moves)
        self.mark_ns, self.rows = mark_ns, sum(map(len, columns)) + sum(map(len, tables))


# samples of threads that are on a CPU between two calls, some times a second
PLACE_COLUMNS = np.dtype(
    [
        ("time", "<i8"),
        ("tid", "<i8"),
        ("stack", "<u8"),
        ("pid", "<u4"),
        ("syscall", "<u2"),  # that it was in, NO_SYSCALL outside of one
        ("descriptor", "<u4"),  # of the system call, if it has one
        ("file", "<i4"),  # of that descriptor, a number of Descriptors
    ]
)


def no_places() -> npt.NDArray[np.void]:
    """Return the table of a recording without samples."""
    return np.zeros(0, PLACE_COLUMNS)


def places_of(data: PlacesData) -> npt.NDArray[np.void]:
    """Return the data of a sample ``places`` as a table; damaged rows are left out."""
    names = {"time": "time", "tid": "tid", "stack": "stack"}
    if "syscall" in data:
        names |= {"pid": "pid", "syscall": "syscall", "argument": "descriptor"}
    columns = {column: cast("list[int]", data.get(name, [])) for name, column in names.items()}
    table = np.zeros(min(map(len, columns.values())), PLACE_COLUMNS)
    table["syscall"] = NO_SYSCALL
    for name, values in columns.items():
        table[name] = values[: len(table)]
    return table

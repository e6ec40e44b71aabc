"""Data of drawings beside sentences: lanes, one step, families of causes, the ranks of a job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt

from gputop.analysis.evidence.blocking import Wait
from gputop.analysis.evidence.columns import Ints
from gputop.documents.additive import EITHER, SUM, of_processes, rows_by
from gputop.documents.fields import Mark
from gputop.format import format_count, format_ns, format_percent


@dataclass(frozen=True, slots=True)
class Family:
    """Causes that are fixed in the same place: a capital letter, and the reason in a word or two."""

    letter: str
    word: str


FAMILIES: tuple[Family, ...] = (
    Family("S", "sync"),
    Family("D", "data"),
    Family("C", "copy"),
    Family("H", "launches"),
    Family("P", "no CPU"),
    Family("L", "lock"),
    Family("K", "disk, net, pages"),
    Family("A", "alloc, load"),
    Family("U", "no request"),
    Family("X", "cause not known"),
)
UNEXPLAINED = len(FAMILIES) - 1

COLUMN_NS = 50_000_000
WHOLE = 255  # parts of a share of a column

# rows of a GPU's shares; the rest of a column is not known
BUSY = 0
PROVED = 1  # + the family's row
ASSUMED = PROVED + len(FAMILIES)  # the same where it is estimated, or an assumption is not known to hold
PRESUMED = ASSUMED + len(FAMILIES)  # presumably at work: the rest of the unknown with an estimate
OUTSIDE = PRESUMED + 1  # before its first work, or behind its last known state: no idle time
GPU_ROWS = OUTSIDE + 1

# rows of a thread's states; the rest of a column is not known
RUNNING, QUEUED, GONE, BLOCKED = 0, 1, 2, 3  # gone: it has ended; blocked: + Wait
STATE_ROWS = BLOCKED + len(Wait)

# rows of the calls that a thread is in; the rest of a column lies between calls
CALL_WORDS = ("sync", "copy", "launch", "alloc", "other")

# rows of the marks; skipped: between two explanations, too far back for a light one
LOST, FINDING, SKIPPED = 0, 1, 2
MARK_ROWS = SKIPPED + 1

OTHER_RANGES = ""  # the name of the rest of a thread's ranges
MOST_RANGES = 8  # names of a lane, that one with them

COLUMNS = 256  # of a step, of equal length whatever it lasts
Shares = npt.NDArray[np.uint8]


class Equal:
    """Equality for data classes that hold arrays."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        names = self.__dataclass_fields__  # type: ignore[attr-defined]
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False)
class GpuLane(Equal):
    """One GPU: ``shares[GPU_ROWS, columns]`` in parts of ``WHOLE``."""

    label: str
    index: int  # NVML's number, -1: not known
    shares: Shares
    error: float = 0.0  # the error of the estimate of its idle time, as a share of the time


@dataclass(frozen=True, eq=False)
class ThreadLane(Equal):
    """One thread: ``states[STATE_ROWS, columns]`` and ``calls[len(CALL_WORDS), columns]``, as above."""

    pid: int
    tid: int
    states: Shares
    calls: Shares


@dataclass(frozen=True, eq=False)
class RangeLane(Equal):
    """The ranges of one thread: ``shares[names, columns]``; the rest of a column lies in none."""

    pid: int
    tid: int
    names: tuple[str, ...]  # their paths, outer to inner, the longest first; ``OTHER_RANGES`` for the rest
    shares: Shares


@dataclass(frozen=True, eq=False)
class Lanes(Equal):
    """All lanes of a window."""

    first: int  # number of the first column: it begins at ``first * COLUMN_NS`` of CLOCK_MONOTONIC
    columns: int  # number of columns; only whole ones
    gpus: tuple[GpuLane, ...]  # the GPUs with work
    threads: tuple[ThreadLane, ...]  # the most frequent threads, those that make calls first
    marks: Shares  # ``[MARK_ROWS, columns]``: a record is missing, a finding points at it, it is skipped
    ranges: tuple[RangeLane, ...] = ()  # of those ``threads`` that were in ranges of the program

    @property
    def busy_share(self) -> float:
        """The share of the time in which the GPUs certainly had work, 0 to 1."""
        whole = len(self.gpus) * self.columns * WHOLE
        return sum(int(gpu.shares[BUSY].sum()) for gpu in self.gpus) / whole if whole else 0.0


@dataclass(frozen=True, eq=False)
class HostTime(Equal):
    """One thread in the step, ns of each column."""

    tid: int
    calls: Ints  # ``[len(CALL_WORDS), COLUMNS]`` inside calls; the rest of a column lies between calls
    counts: tuple[int, ...]  # calls of each kind that began in the step
    states: Ints  # ``[STATE_ROWS, COLUMNS]``; the rest of a column is not known


@dataclass(frozen=True, eq=False)
class IdleTime(Equal):
    """The GPU's idle time by one cause: ``ns[COLUMNS]``."""

    cause: str  # its number, "" where it is not known
    family: int  # the row of its family (``FAMILIES``)
    proved: bool  # False if it is estimated, or rests on an assumption
    ns: Ints


@dataclass(frozen=True, eq=False)
class GpuTimes(Equal):
    """One GPU in the step, ns of each column; the rest of a column is not known."""

    label: str  # ``GPU 0``
    index: int  # NVML's number, -1: not known
    busy: Ints  # certainly at work
    presumed: Ints  # presumably at work
    idle: tuple[IdleTime, ...]  # by cause, the most first


@dataclass(frozen=True, eq=False)
class OneStep(Equal):
    """The step of a process."""

    pid: int  # the process
    tid: int  # the thread of its steps
    begin_ns: int  # its begin, CLOCK_MONOTONIC
    edges: Ints  # ``[COLUMNS + 1]``, ns from its begin
    count: int  # number of steps
    median_ns: int  # their median length
    hosts: tuple[HostTime, ...]  # its threads that make calls, ``tid`` first
    gpus: tuple[GpuTimes, ...]  # those that it uses
    spans: Ints  # ``[steps of the loop, 2]``: begin and end of each that is over, CLOCK_MONOTONIC, in order

    @property
    def length_ns(self) -> int:
        """Its length, ns."""
        return int(self.edges[-1])


# Ranks of a job on this machine: arrivals at their collectives, and waits for the last one.

_SHOWN: Final = 16  # in a text: as many as most machines have


@dataclass(frozen=True, slots=True)
class RankTimes:
    """The arrivals of one rank at the collectives that all recorded ranks call; a rank may be a thread.

    Attributes:
        gpu: The label of the GPU of its collectives; "" where that is not known.
        collectives: Number of collectives.
        last: Those to which it came last.
        late_ns: Its time after the first rank, summed.
        ahead_ns: Its time before the last rank, summed: its GPU waited for no longer.
    """

    pid: int
    tid: int
    gpu: Annotated[str, EITHER, Mark(schema=str | None, make=lambda label: label or None)]
    collectives: Annotated[int, SUM]
    last: Annotated[int, SUM]
    late_ns: Annotated[int, SUM]
    ahead_ns: Annotated[int, SUM]

    @property
    def brief_gpu(self) -> str:
        """``GPU 1``, or ``device 1`` where only the process's own number is known."""
        return self.gpu.partition(" of ")[0]


def _last_first(one: RankTimes) -> tuple[int, int, int]:
    return -one.last, one.pid, one.tid


@dataclass(frozen=True, slots=True)
class RankReport:
    """The ranks; the one that is last most often comes first."""

    ranks: Annotated[tuple[RankTimes, ...], rows_by(lambda one: (one.pid, one.tid), _last_first)] = ()

    def of(self, pids: frozenset[int] | None) -> RankReport | None:
        """Return the ranks of these processes, or of all; None without any."""
        mine = of_processes(self, pids)
        return mine if mine.ranks else None


def most_last_first(ranks: Iterable[RankTimes]) -> tuple[RankTimes, ...]:
    """Sort ranks; the one that is last most often comes first."""
    return tuple(sorted(ranks, key=_last_first))


def rank_texts(report: RankReport) -> list[str]:
    """Return the ranks as lines of text."""
    rest = len(report.ranks) - _SHOWN
    more = [f"  and {rest} more"] if rest > 0 else []
    return ["Ranks:", *(f"  {_text(one)}" for one in report.ranks[:_SHOWN]), *more]


def _text(one: RankTimes) -> str:
    each = max(one.collectives, 1)
    gpu = f" on {one.brief_gpu}" if one.gpu else ""
    return (
        f"process {one.pid}, thread {one.tid}{gpu}: last in {format_percent(100 * one.last / each)} % of "
        f"{format_count(one.collectives)} collectives, {format_ns(one.late_ns / each)} after the first rank, "
        f"{format_ns(one.ahead_ns / each)} before the last one"
    )

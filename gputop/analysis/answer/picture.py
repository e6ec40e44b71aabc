"""What is drawn beside sentences, as data: lanes, one step, families of causes, the ranks of a job."""

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
    """Causes that a person changes in the same place.

    Attributes:
        letter: Its sign, a capital.
        word: What the GPU waits for, in a word or two.
    """

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

# rows of a GPU's shares; what is left of a column is not known
BUSY = 0
PROVED = 1  # + the family's row
ASSUMED = PROVED + len(FAMILIES)  # the same where it is estimated, or an assumption is not known to hold
PRESUMED = ASSUMED + len(FAMILIES)  # Presumably at work: what an estimate leaves of the unknown
OUTSIDE = PRESUMED + 1  # before its first work, or behind all that is known of it: no idle time
GPU_ROWS = OUTSIDE + 1

# rows of a thread's states; what is left of a column is not known
RUNNING, QUEUED, GONE, BLOCKED = 0, 1, 2, 3  # gone: it has ended; blocked: + Wait
STATE_ROWS = BLOCKED + len(Wait)

# rows of the calls that a thread is in; what is left of a column lies between calls
CALL_WORDS = ("sync", "copy", "launch", "alloc", "other")

LOST, FINDING = 0, 1  # rows of the marks

OTHER_RANGES = ""  # the name of what is left of a thread's ranges
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
    """One GPU: ``shares[GPU_ROWS, columns]`` in parts of ``WHOLE``.

    Attributes:
        index: NVML's number, -1 if it is not known.
        error: How far the estimate of its idle time may be off, as a share of the time.
    """

    label: str
    index: int
    shares: Shares
    error: float = 0.0


@dataclass(frozen=True, eq=False)
class ThreadLane(Equal):
    """One thread: ``states[STATE_ROWS, columns]`` and ``calls[len(CALL_WORDS), columns]``, as above."""

    pid: int
    tid: int
    states: Shares
    calls: Shares


@dataclass(frozen=True, eq=False)
class RangeLane(Equal):
    """The ranges that one thread was in: ``shares[names, columns]``; what is left of a column lies in none.

    Attributes:
        names: Their paths, outer to inner, what took most time first; ``OTHER_RANGES`` for the rest.
    """

    pid: int
    tid: int
    names: tuple[str, ...]
    shares: Shares


@dataclass(frozen=True, eq=False)
class Lanes(Equal):
    """All lanes of a window.

    Attributes:
        first: Number of the first column: it begins at ``first * COLUMN_NS`` of CLOCK_MONOTONIC.
        columns: How many there are; only whole ones.
        gpus: The GPUs that were given work.
        threads: The threads that are seen most, those that make calls first.
        marks: ``[2, columns]``: whether a record is missing in it, whether a finding points at it.
        ranges: Those of ``threads`` that were in ranges that the program names.
    """

    first: int
    columns: int
    gpus: tuple[GpuLane, ...]
    threads: tuple[ThreadLane, ...]
    marks: Shares
    ranges: tuple[RangeLane, ...] = ()

    @property
    def busy_share(self) -> float:
        """The part of the time in which the GPUs certainly had work, 0 to 1."""
        whole = len(self.gpus) * self.columns * WHOLE
        return sum(int(gpu.shares[BUSY].sum()) for gpu in self.gpus) / whole if whole else 0.0


@dataclass(frozen=True, eq=False)
class HostTime(Equal):
    """One thread in the step, ns of each column.

    Attributes:
        tid: The thread.
        calls: ``[len(CALL_WORDS), COLUMNS]`` inside calls; what is left of a column lies between calls.
        counts: How many calls of each kind began in the step.
        states: ``[STATE_ROWS, COLUMNS]``; what is left of a column is not known.
    """

    tid: int
    calls: Ints
    counts: tuple[int, ...]
    states: Ints


@dataclass(frozen=True, eq=False)
class IdleTime(Equal):
    """What one cause took of the GPU's time: ``ns[COLUMNS]``.

    Attributes:
        cause: Its number, "" where it is not known.
        family: The row of its family (``FAMILIES``).
        proved: Whether it is proved; else estimated, or resting on an assumption.
    """

    cause: str
    family: int
    proved: bool
    ns: Ints


@dataclass(frozen=True, eq=False)
class GpuTimes(Equal):
    """One GPU in the step, ns of each column; what is left of a column is not known.

    Attributes:
        label: ``GPU 0``.
        index: NVML's number, -1 if it is not known.
        busy: Certainly at work.
        presumed: Presumably at work.
        idle: By cause, what took most first.
    """

    label: str
    index: int
    busy: Ints
    presumed: Ints
    idle: tuple[IdleTime, ...]


@dataclass(frozen=True, eq=False)
class OneStep(Equal):
    """The step of a process.

    Attributes:
        pid: The process.
        tid: The thread in whose name its steps are.
        begin_ns: When it began, CLOCK_MONOTONIC.
        edges: ``[COLUMNS + 1]``, ns from its begin.
        count: How many steps there are.
        median_ns: Their median length.
        hosts: Its threads that make calls, ``tid`` first.
        gpus: That it gives work to.
        spans: ``[steps of the loop, 2]``: begin and end of each that is over, CLOCK_MONOTONIC, in order.
    """

    pid: int
    tid: int
    begin_ns: int
    edges: Ints
    count: int
    median_ns: int
    hosts: tuple[HostTime, ...]
    gpus: tuple[GpuTimes, ...]
    spans: Ints

    @property
    def length_ns(self) -> int:
        """How long it lasted."""
        return int(self.edges[-1])


# Ranks of a job on this machine: who comes last to their collectives, and who waits for it for how long.

_SHOWN: Final = 16  # in a text: as many as most machines have


@dataclass(frozen=True, slots=True)
class RankTimes:
    """When one rank came to the collectives that all ranks were seen to call; a rank may be a thread.

    Attributes:
        gpu: The GPU of its collectives, as its label; "" where that is not known.
        collectives: How many there were.
        last: In how many of them it came last.
        late_ns: How long after the first rank it came, all of them together.
        ahead_ns: How long before the last rank it came, all of them together: its GPU waited for no longer.
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
        """``GPU 1``, or ``device 1`` where a process alone knows it."""
        return self.gpu.partition(" of ")[0]


def _last_first(one: RankTimes) -> tuple[int, int, int]:
    return -one.last, one.pid, one.tid


@dataclass(frozen=True, slots=True)
class RankReport:
    """The ranks, who is last most often first."""

    ranks: Annotated[tuple[RankTimes, ...], rows_by(lambda one: (one.pid, one.tid), _last_first)] = ()

    def of(self, pids: frozenset[int] | None) -> RankReport | None:
        """Of these processes, or of all; None where nothing is left."""
        mine = of_processes(self, pids)
        return mine if mine.ranks else None


def most_last_first(ranks: Iterable[RankTimes]) -> tuple[RankTimes, ...]:
    """Who is last most often first."""
    return tuple(sorted(ranks, key=_last_first))


def rank_texts(report: RankReport) -> list[str]:
    """Lines of text, who is last most often first."""
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

"""The truth of a run: the simulated GPU's own idle time, by what the program's diaries say it did meanwhile.

Nothing here comes from gputop: the trace is the simulated GPU's, the diaries are the program's own clock and
CPU clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gputop.simgpu.trace import read_trace

_CALLS = ("-", "C15")  # labels that do not reach over the time until the next operation

_NOTHING_NS = 150_000  # the interpreter needs less between two operations: it was off its CPU


@dataclass(slots=True)
class Segment:
    """A part of a thread's life with one label, and its shares on a CPU and in a run queue."""

    start: int
    end: int
    label: str
    cpu: float
    queued: float
    queue: str  # the label of that


@dataclass(slots=True)
class Life:
    """One thread's diary, without holes from its first operation to its last."""

    role: str
    queue: str
    pid: int
    tid: int
    wall_ns: int
    run_delay_ns: int
    rounds: int
    segments: list[Segment] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Truth:
    """What was lost to what. ``idle_ns`` is all idle time between the first and the last work."""

    causes: Mapping[str, float]
    idle_ns: int
    span_ns: int
    idle: tuple[tuple[int, int], ...]
    pids: frozenset[int]
    main: Life

    @property
    def first(self) -> str:
        """The cause that lost most: calls and what has no label do not count."""
        named = {cause: ns for cause, ns in self.causes.items() if cause.startswith("C")}
        return max(named, key=lambda cause: named[cause], default="")


def read_life(path: Path) -> Life:
    """Reads one diary. What an operation noted inside itself follows it and is painted over it."""
    head, *entries = path.read_text().splitlines()
    _, role, queue, *numbers = head.split()
    life = Life(role, queue, *map(int, numbers))
    made = life.segments
    for entry in entries:
        label, first, last, cpu, queued, _what = entry.split()
        start, end = int(first), int(last)
        length = max(end - start, 1)
        delay = min(int(queued) / length, 1.0)
        part = Segment(start, end, label, min(int(cpu) / length, 1.0 - delay), delay, queue)
        if made and start < made[-1].end:
            whole = made.pop()
            made += [replace(whole, end=start), part, replace(whole, start=end)]
            continue
        if made:
            between = made[-1].label if made[-1].label not in _CALLS else label
            between = "-" if between in _CALLS else between
            if start - made[-1].end > _NOTHING_NS:
                between = queue
            made.append(Segment(made[-1].end, start, between, 1.0, 0.0, queue))
        made.append(part)
    return life


def overlaps(segments: list[Segment], spans: list[tuple[int, int]]) -> Iterator[tuple[int, int, Segment]]:
    """The parts of the segments that lie in the spans; both in order of time."""
    i = 0
    for segment in segments:
        while i < len(spans) and spans[i][1] <= segment.start:
            i += 1
        j = i
        while j < len(spans) and spans[j][0] < segment.end:
            start, end = max(spans[j][0], segment.start), min(spans[j][1], segment.end)
            if end > start:
                yield start, end, segment
            j += 1


def _charge(lost: dict[str, float], label: str, ns: float, segment: Segment) -> None:
    blocked, _, running = label.partition("~")
    if label not in _CALLS:
        lost[segment.queue] += ns * segment.queued
        ns *= 1 - segment.queued
    share = segment.cpu / (1 - segment.queued) if running and segment.queued < 1 else 0.0
    lost[blocked] += ns * (1 - share)
    if running:
        lost[running] += ns * share


def attribute(main: Life, others: Mapping[str, Life], idle: list[tuple[int, int]]) -> dict[str, float]:
    """Idle ns by label of the main thread, and of the role that it waited for."""
    lost: dict[str, float] = defaultdict(float)
    for start, end, segment in overlaps(main.segments, idle):
        if not segment.label.startswith("@"):
            _charge(lost, segment.label, end - start, segment)
            continue
        role, _, fallback = segment.label[1:].partition("|")
        # the last part of a wait is that of a thread that was woken, and has no CPU yet
        woken = max(segment.end - round(segment.queued * (segment.end - segment.start)), start)
        lost[segment.queue.rpartition("|")[2]] += max(end - woken, 0)
        end = min(end, woken)
        rest = float(max(end - start, 0))
        for begin, stop, other in overlaps(_near(others[role].segments, start, end), [(start, end)]):
            if other.label not in ("-", "C15"):
                _charge(lost, other.label, stop - begin, other)
                rest -= stop - begin
        lost[fallback] += rest
    return dict(lost)


def _near(segments: list[Segment], start: int, end: int) -> list[Segment]:
    """The segments that can touch [start, end): the list is in order, so a binary search finds them."""
    low, high = 0, len(segments)
    while low < high:
        middle = (low + high) // 2
        if segments[middle].end <= start:
            low = middle + 1
        else:
            high = middle
    last = low
    while last < len(segments) and segments[last].start < end:
        last += 1
    return segments[low:last]


def _asked(main: Life) -> set[str]:
    labels = {segment.label for segment in main.segments}
    return {label[1:].partition("|")[0] for label in labels if label.startswith("@")}


def read_truth(diaries: Path, trace: Path, pid: int, since_ns: int = 0, nominal_ns: int = 0) -> Truth:
    """The truth of one run of process ``pid``, from its first work after ``since_ns``.

    An endless role may have been killed with its diary unwritten: it is nobody's wait then. A program
    that was killed has only its trace.
    """
    lives = [read_life(path) for path in diaries.iterdir() if path.stat().st_size]
    mains = [life for life in lives if life.role == "main"] or [Life("main", "-", pid, pid, 0, 0, 0)]
    main = mains[0]
    told = read_trace(trace)
    rows = told.of(pid=main.pid)
    rows = rows[rows["start"] >= since_ns]
    first, last = int(rows["start"].min()), int(rows["end"].max())
    found = told.idle_intervals(main.pid, None, first, last, work_from="start")
    idle = [(int(start), int(end)) for start, end in found]
    lives += [Life(name, "-", 0, 0, 0, 0, 0) for name in _asked(main) - {life.role for life in lives}]
    others = {life.role: life for life in lives if life is not main}
    causes = attribute(main, others, idle)
    waits = rows[rows["kind"] == "comm_wait"]
    causes["C23"] = float((waits["end"] - waits["start"]).sum())
    kernels = rows[rows["kind"] == "kernel"]
    if nominal_ns:
        causes["C24"] = float(
            sum(max(ns - nominal_ns, 0) for ns in (kernels["end"] - kernels["start"]).tolist())
        )
    total = sum(end - start for start, end in idle)
    return Truth(causes, total, last - first, tuple(idle), frozenset(life.pid for life in lives), main)

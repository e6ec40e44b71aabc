"""Time as lanes: the last seconds in equal columns, and one step of a program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gputop.analysis.answer.picture import (
    ASSUMED,
    BLOCKED,
    BUSY,
    CALL_WORDS,
    COLUMN_NS,
    COLUMNS,
    FINDING,
    GONE,
    GPU_ROWS,
    LOST,
    MARK_ROWS,
    MOST_RANGES,
    OTHER_RANGES,
    OUTSIDE,
    PRESUMED,
    PROVED,
    QUEUED,
    RUNNING,
    SKIPPED,
    STATE_ROWS,
    WHOLE,
    GpuLane,
    GpuTimes,
    HostTime,
    IdleTime,
    Lanes,
    OneStep,
    RangeLane,
    Shares,
    ThreadLane,
)
from gputop.analysis.answer.report import Report
from gputop.analysis.causes import CATALOGUE
from gputop.analysis.causes.cause import family_table
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.chains.named_ranges import alike
from gputop.analysis.chains.steps import Steps
from gputop.analysis.evidence.api_classes import Group
from gputop.analysis.evidence.blocking import Wait
from gputop.analysis.evidence.columns import Ints, Mask, covered, subtract, union
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.findings.findings import Outcome
from gputop.analysis.findings.gap_findings import causes_of_short
from probes.schema import OffFlag

MOST_THREADS = 64  # with lanes
# the row of each kind of call (CALL_WORDS)
CALL_ROWS = {
    Group.SYNC: 0, Group.COPY: 1, Group.SET: 1, Group.LAUNCH: 2, Group.GRAPH: 2,
    Group.ALLOC: 3, Group.FREE: 3, Group.HOST: 3,
}  # fmt: skip


def lanes_of(scene: AttributionContext, outcome: Outcome, report: Report, start_ns: int) -> Lanes:
    """Return the lanes of the explained stretch."""
    low, high = scene.analysis.gpu.stretch
    first = -(-low // COLUMN_NS)
    grid = Grid(first, max(high // COLUMN_NS - first, 0))
    threads = _threads(scene.evidence, grid, high)
    lanes = Lanes(
        first,
        grid.columns,
        _gpus(scene, outcome, grid, report),
        threads,
        _lost(scene.evidence, grid),
        _ranges(scene, grid, threads),
    )
    return marked(lanes, report, start_ns)


def marked(lanes: Lanes, report: Report, start_ns: int) -> Lanes:
    """Return the lanes with the worst moments of a report's findings, and its events, as marks."""
    moments = [moment for finding in report.findings for moment in finding.moments_ns]
    moments += [event.time_ns for event in report.events]
    at = (np.array(moments, np.int64) + start_ns) // COLUMN_NS - lanes.first
    marks = lanes.marks.copy()
    marks[FINDING] = 0
    marks[FINDING, at[(at >= 0) & (at < lanes.columns)]] = 1
    return replace(lanes, marks=marks)


def joined(older: Lanes, newer: Lanes, first: int) -> Lanes:
    """Return both lanes from a column on; newer columns replace older ones, those between are skipped."""
    begin = max(min(older.first, newer.first), first)
    end = max(older.first + older.columns, newer.first + newer.columns)
    both = (older, newer)

    def over(parts: Sequence[Shares | None]) -> Shares:
        rows = next(len(part) for part in parts if part is not None)
        made = np.zeros((rows, end - begin), np.uint8)
        for lanes, part in zip(both, parts, strict=True):
            skipped = max(begin - lanes.first, 0)
            if part is not None and skipped < lanes.columns:
                at = lanes.first + skipped - begin
                made[:, at : at + lanes.columns - skipped] = part[:, skipped:]
        return made

    gpus = [{lane.label: lane for lane in lanes.gpus} for lanes in both]
    threads = [{lane.tid: lane for lane in lanes.threads} for lanes in both]
    made_gpus = []
    for label in dict.fromkeys((*gpus[1], *gpus[0])):
        found = [part.get(label) for part in gpus]
        newest = found[1] or found[0]
        assert newest is not None
        shares = over([lane.shares if lane is not None else None for lane in found])
        made_gpus.append(GpuLane(label, newest.index, shares, newest.error))
    made_threads = []
    for tid in list(dict.fromkeys((*threads[1], *threads[0])))[:MOST_THREADS]:
        of_thread = [part.get(tid) for part in threads]
        last = of_thread[1] or of_thread[0]
        assert last is not None
        states = over([lane.states if lane is not None else None for lane in of_thread])
        calls = over([lane.calls if lane is not None else None for lane in of_thread])
        made_threads.append(ThreadLane(last.pid, tid, states, calls))
    made_gpus.sort(key=lambda lane: (lane.index < 0, lane.index))
    marks = over([lanes.marks for lanes in both])
    early, late = sorted(both, key=lambda lanes: lanes.first)
    marks[SKIPPED, max(early.first + early.columns - begin, 0) : max(late.first - begin, 0)] = 1
    ranges = [{lane.tid: lane for lane in lanes.ranges} for lanes in both]
    made_ranges = []
    for lane in made_threads:
        parts = [part.get(lane.tid) for part in ranges]
        if any(parts):
            by_name = [
                dict(zip(one.names, one.shares, strict=True)) if one is not None else {} for one in parts
            ]
            names = dict.fromkeys([*by_name[1], *by_name[0]])
            rows = {
                name: over([one[name][None] if name in one else None for one in by_name])[0] for name in names
            }
            order = sorted(rows, key=lambda name: (name == OTHER_RANGES, -int(rows[name].sum()), name))
            made_ranges.append(_range_lane(lane.pid, lane.tid, {name: rows[name] for name in order}))
    return Lanes(begin, end - begin, tuple(made_gpus), tuple(made_threads), marks, tuple(made_ranges))


_AT_ONCE = 1 << 14  # intervals: the columns of more would take megabytes each


class Grid:
    """Columns of time, from a column's number on."""

    def __init__(self, first: int, columns: int) -> None:
        """Create a grid of so many columns."""
        self.first, self.columns = first, columns
        self.low, self.high = first * COLUMN_NS, (first + columns) * COLUMN_NS

    def time(self, rows: int, row: Ints, begin: Ints, end: Ints) -> Ints:
        """Return the ns of each [row, column] that intervals cover; overlapping ones add up."""
        if not self.columns:
            return np.zeros((rows, 0), np.int64)
        ns = np.zeros(rows * self.columns, np.int64)
        for low in range(0, len(row), _AT_ONCE):
            part = slice(low, low + _AT_ONCE)
            self._add(ns, row[part], begin[part], end[part])
        return ns.reshape(rows, self.columns)

    def _add(self, ns: Ints, row: Ints, begin: Ints, end: Ints) -> None:
        keep = np.flatnonzero((end > self.low) & (begin < self.high) & (end > begin))
        begin = np.maximum(begin[keep], self.low) - self.low
        end = np.minimum(end[keep], self.high) - self.low
        base, size = row[keep] * self.columns, len(ns)
        head, tail = begin // COLUMN_NS, (end - 1) // COLUMN_NS
        parts = np.bincount(base + head, np.minimum(end, (head + 1) * COLUMN_NS) - begin, size)
        more = tail > head
        base, head, tail = base[more], head[more], tail[more]
        parts += np.bincount(base + tail, end[more] - tail * COLUMN_NS, size)
        steps = np.bincount(base + head + 1, minlength=size) - np.bincount(base + tail, minlength=size)
        ns += parts.astype(np.int64) + np.cumsum(steps) * COLUMN_NS


def rounded_shares(ns: Ints) -> Shares:
    """Round rows together: their sum is as exact as each of them."""
    edges = np.rint(np.cumsum(ns, axis=-2) * (WHOLE / COLUMN_NS)).astype(np.int64)
    parts = np.diff(edges, axis=-2, prepend=0)
    shares: Shares = np.clip(parts, 0, WHOLE).astype(np.uint8)
    return shares


@dataclass(frozen=True, slots=True)
class GpuParts:
    """The known parts of one GPU's time, as disjoint intervals; the rest is unknown."""

    cause: Ints  # the catalogue's row of each idle piece, -1 for none
    sure: Mask  # True for proved pieces
    # begin, end: of each idle piece
    begin: Ints
    end: Ints
    presumed: tuple[Ints, Ints]  # presumably at work: unknown time that is not estimated to be idle
    busy: tuple[Ints, Ints]  # certainly at work


def gpu_parts(scene: AttributionContext, outcome: Outcome, number: int, *, proved: bool) -> GpuParts:
    """Return the parts of one GPU's time."""
    gpu, segments, gaps = scene.analysis.gpu, scene.segments, scene.gaps
    mine = np.flatnonzero(gaps.device[segments.gap] == number)
    own = np.flatnonzero(gaps.device == number)
    gone, none = (gaps.begin[own], gaps.end[own]), np.zeros(0, np.int64)
    sure: Mask = np.asarray(gaps.proved[segments.gap[mine]], np.bool_) & proved
    parts = [(outcome.cause[mine], sure, segments.begin[mine], segments.end[mine])]
    presumed = none, none
    for estimate in (one for one in scene.analysis.estimates if one.device == number):
        small = estimate.small
        cause = causes_of_short(scene, outcome.cause, small)
        parts.append((cause, np.zeros(len(cause), np.bool_), small.begin, small.end))
        gone = union(np.append(gone[0], small.begin), np.append(gone[1], small.end))
        presumed = subtract(subtract(gpu.unknown[number], gone), estimate.ended)
    busy = subtract(gpu.pending(number), union(*gone))
    cause, sure, begin, end = (np.concatenate(column) for column in zip(*parts, strict=True))
    return GpuParts(cause, sure, begin, end, presumed, busy)


def _gpus(scene: AttributionContext, outcome: Outcome, grid: Grid, report: Report) -> tuple[GpuLane, ...]:
    gpu, families = scene.analysis.gpu, family_table()
    accounts = {one.label: one.account for one in report.gpus}
    lanes = []
    for span in gpu.spans:
        account = accounts.get(gpu.devices.labels[span.device])
        proved = report.coverage and (account is None or account.proved_ns > 0)
        one = gpu_parts(scene, outcome, span.device, proved=proved)
        idle = np.where(one.sure, PROVED, ASSUMED) + families[one.cause], one.begin, one.end
        ends = np.array([grid.low, span.end]), np.array([span.begin, grid.high])
        parts = idle, _row(PRESUMED, one.presumed), _row(BUSY, one.busy), _row(OUTSIDE, ends)
        ns: Ints = np.sum([grid.time(GPU_ROWS, *part) for part in parts], axis=0)
        label, index = gpu.devices.labels[span.device], gpu.devices.index[span.device]
        error = (account.error_ns or 0) / max(account.span_ns, 1) if account is not None else 0.0
        lanes.append(GpuLane(label, index, rounded_shares(ns), error))
    return tuple(sorted(lanes, key=lambda lane: (lane.index < 0, lane.index)))


def _row(row: int, intervals: tuple[Ints, Ints]) -> tuple[Ints, Ints, Ints]:
    """Intervals with their row."""
    return np.full(len(intervals[0]), row, np.int64), *intervals


def _lost(evidence: Evidence, grid: Grid) -> Shares:
    begin, end = evidence.lost
    lost = grid.time(1, np.zeros(len(begin), np.int64), begin, end)
    marks = np.zeros((MARK_ROWS, grid.columns), np.uint8)
    marks[LOST] = lost[0] > 0
    return marks


def _threads(evidence: Evidence, grid: Grid, now_ns: int) -> tuple[ThreadLane, ...]:
    threads, calls, slices = evidence.threads, evidence.calls, evidence.slices
    size = len(threads.tid)
    in_calls = np.flatnonzero((calls["end"] > grid.low) & (calls["begin"] < grid.high))
    in_slices = np.flatnonzero((slices["end"] > grid.low) & (slices["begin"] < grid.high))
    seen = np.bincount(slices["row"][in_slices], minlength=size)
    called = np.bincount(calls["row"][in_calls], minlength=size)
    order = np.lexsort((-seen, -called))
    chosen = order[(seen + called)[order] > 0][:MOST_THREADS]
    place = np.full(size, -1, np.int64)
    place[chosen] = np.arange(len(chosen))
    states = _states(evidence, grid, chosen, place, in_slices)
    inside = _calls(evidence, grid, place, in_calls, len(chosen), now_ns)
    return tuple(
        ThreadLane(int(threads.pid[row]), int(threads.tid[row]), states[number], inside[number])
        for number, row in enumerate(chosen.tolist())
    )


def _states(evidence: Evidence, grid: Grid, chosen: Ints, place: Ints, rows: Ints) -> Shares:
    """[thread, STATE_ROWS, column]."""
    slices, threads, count = evidence.slices, evidence.threads, len(chosen)
    rows = rows[place[slices["row"][rows]] >= 0]
    base = place[slices["row"][rows]] * STATE_ROWS
    wait = slices["wait"][rows].astype(np.int64)
    # the kind of an unfinished wait is not known yet
    still = ((slices["flags"][rows] & OffFlag.WAKE_MISSED) != 0) & (slices["end"][rows] >= grid.high)
    wait[still & (wait == Wait.FAULT)] = Wait.OTHER
    every, known, ended = np.arange(count), threads.known[chosen], threads.ended[chosen]
    row = np.concatenate([base + BLOCKED + wait, base + QUEUED, every * STATE_ROWS + GONE])
    begin = np.concatenate([slices["begin"][rows], slices["queued"][rows], ended])
    last = np.full(count, grid.high, np.int64)
    end = np.concatenate([slices["queued"][rows], slices["end"][rows], last])
    ns = grid.time(count * STATE_ROWS, row, begin, end).reshape(count, STATE_ROWS, grid.columns)
    seen = grid.time(count, every, known, last)  # a column before it was known stays unknown
    begin, end = evidence.lost  # and where records are missing its state is unknown
    missing = grid.time(1, np.zeros(len(begin), np.int64), begin, end)
    ns[:, RUNNING] = np.maximum(seen - missing - ns.sum(axis=1), 0)
    return rounded_shares(ns)


def _calls(evidence: Evidence, grid: Grid, place: Ints, rows: Ints, count: int, now_ns: int) -> Shares:
    """[thread, call, column]; calls that have not returned count up to now."""
    calls, still = evidence.calls, evidence.open_calls
    kind = np.full(max(Group) + 1, len(CALL_WORDS) - 1, np.int64)
    for group, number in CALL_ROWS.items():
        kind[group] = number
    rows = rows[place[calls["row"][rows]] >= 0]
    late = evidence.threads.row(still["tid"])
    late_place = np.where(late >= 0, place[np.maximum(late, 0)], -1) if len(place) else late
    waiting = np.flatnonzero(late_place >= 0)
    groups = evidence.apis.group.take(still["op"][waiting], mode="clip")
    row = np.concatenate(
        [
            place[calls["row"][rows]] * len(CALL_WORDS) + kind[evidence.group_of(rows)],
            late_place[waiting] * len(CALL_WORDS) + kind[groups],
        ]
    )
    begin = np.concatenate([calls["begin"][rows], still["begin"][waiting]])
    end = np.concatenate([calls["end"][rows], np.full(len(waiting), now_ns, np.int64)])
    ns = grid.time(count * len(CALL_WORDS), row, begin, end)
    return rounded_shares(ns.reshape(count, len(CALL_WORDS), grid.columns))


def _ranges(scene: AttributionContext, grid: Grid, threads: Sequence[ThreadLane]) -> tuple[RangeLane, ...]:
    lanes = []
    for lane in threads if scene.ranges.any else ():
        known = scene.ranges.of(lane.pid, lane.tid)
        named = alike(known.paths)
        numbers = {name: row for row, name in enumerate(dict.fromkeys(named))}
        row = np.array([numbers[name] for name in named] or [0], np.int64)[known.intervals.name]
        ns = grid.time(len(numbers), row, known.intervals.begin, known.intervals.end)
        shares, names = rounded_shares(ns), list(numbers)
        order = [place for place in np.argsort(-ns.sum(axis=1), kind="stable").tolist() if ns[place].any()]
        if order:
            lanes.append(_range_lane(lane.pid, lane.tid, {names[place]: shares[place] for place in order}))
    return tuple(lanes)


def _range_lane(pid: int, tid: int, rows: Mapping[str, Shares]) -> RangeLane:
    """The first names that a lane has room for, and the rest together."""
    order = list(rows)
    shown = order if len(order) <= MOST_RANGES else order[: MOST_RANGES - 1]
    shares = [rows[name] for name in shown]
    if rest := order[len(shown) :]:
        together = np.sum([rows[name].astype(np.int64) for name in rest], axis=0)
        shares.append(np.minimum(together, WHOLE).astype(np.uint8))
    return RangeLane(pid, tid, (*shown, *([OTHER_RANGES] if rest else [])), np.stack(shares))


# One step of a program: its threads' calls and states over the GPU's work and idle time.

MOST_STEPS, MOST_HOSTS = 4, 4  # processes, and threads of each: those that make most calls


def typical_steps(scene: AttributionContext, outcome: Outcome, report: Report) -> tuple[OneStep, ...]:
    """Return a step of each process with a loop, the one that enqueues most work first.

    Where the report names a cause, it is a step that loses most to the first one.
    """
    threads = scene.evidence.threads
    first = [int(threads.pid[scene.steps.thread])] if scene.steps is not None else []
    pids = dict.fromkeys([*first, *(claim.pid for _cause, claim in outcome.claims)])
    found = [scene.steps_of(pid) for pid in list(pids)[:MOST_STEPS]]
    return tuple(_one(scene, outcome, steps, report) for steps in found if steps is not None)


def _one(scene: AttributionContext, outcome: Outcome, steps: Steps, report: Report) -> OneStep:
    pid = int(scene.evidence.threads.pid[steps.thread])
    rows = _of_the_loop(steps)
    lead = report.diagnosis.lead if report.diagnosis is not None else None
    named = [*(report.findings[lead : lead + 1] if lead is not None else ()), *report.findings]
    first = next((one.cause for one in named if one.pid == pid and one.kind == "idle"), "")
    gpu = scene.analysis.gpu
    used = set(np.unique(gpu.streams.device[gpu.streams.pid == pid]).tolist())
    devices = [span.device for span in gpu.spans if span.device in used]
    parts = {one: gpu_parts(scene, outcome, one, proved=report.coverage) for one in devices}
    shown = _led_by(first, parts.values(), steps, rows)
    begin, end = _typical(scene, steps, shown if len(shown) else rows)
    edges = begin + np.arange(COLUMNS + 1) * (end - begin) // COLUMNS
    return OneStep(
        pid,
        int(scene.evidence.threads.tid[steps.thread]),
        begin,
        edges - begin,
        steps.count,
        steps.median_ns,
        _hosts(scene.evidence, steps.thread, pid, edges),
        tuple(_gpu(scene, device, parts[device], edges) for device in devices),
        np.stack([steps.begin[rows[:-1]], steps.until[rows[:-1]]], axis=1),
    )


def _of_the_loop(steps: Steps) -> Ints:
    """The steps of the loop with most time, whole ones where there are any."""
    spent = np.bincount(steps.loop, weights=steps.until - steps.begin)
    main = steps.loop == int(np.argmax(spent))
    return np.flatnonzero(main & steps.whole if (main & steps.whole).any() else main)


def _led_by(cause: str, parts: Iterable[GpuParts], steps: Steps, rows: Ints) -> Ints:
    """The steps that lose most to a cause; none for an unknown cause."""
    number = next((row for row, one in enumerate(CATALOGUE) if one.number == cause), -1)
    if number < 0:
        return rows[:0]
    begin, until, gpus = steps.begin[rows], steps.until[rows], list(parts)
    own = most = np.zeros(len(rows), np.int64)
    for row in np.unique(np.concatenate([np.zeros(0, np.int64), *(part.cause for part in gpus)])).tolist():
        ns = np.zeros(len(rows), np.int64)
        for part in gpus:
            mine = part.cause == row
            ns += covered(union(part.begin[mine], part.end[mine]), begin, until)
        own, most = ns if row == number else own, np.maximum(most, ns)
    led: Ints = rows[(own > 0) & (own == most)]
    return led


def _typical(scene: AttributionContext, steps: Steps, rows: Ints) -> tuple[int, int]:
    """(begin, end) of the step nearest to the median, by length and by idle time."""
    begin, until = steps.begin[rows], steps.until[rows]
    length = until - begin
    idle = covered(union(scene.gaps.begin, scene.gaps.end), begin, until)
    off = np.abs(length - np.median(length)) + np.abs(idle - np.median(idle))
    nearest = np.flatnonzero(off == off.min())[-1]
    return int(begin[nearest]), int(until[nearest])


def time_of(begin: Ints, end: Ints, edges: Ints) -> Ints:
    """Return the ns of each column that intervals cover; they may overlap."""
    near = (end > edges[0]) & (begin < edges[-1])
    begin, end = union(begin[near], end[near])
    total = np.append(0, np.cumsum(end - begin))
    place = np.searchsorted(begin, edges, side="right")
    beyond = np.maximum(np.append(0, end)[place] - edges, 0)
    columns: Ints = np.diff(total[place] - np.where(place > 0, beyond, 0))
    return columns


def _hosts(evidence: Evidence, thread: int, pid: int, edges: Ints) -> tuple[HostTime, ...]:
    """The threads of a process that make calls in the step."""
    calls = evidence.calls
    rows = np.flatnonzero((calls["end"] > edges[0]) & (calls["begin"] < edges[-1]))
    rows = rows[calls["pid"][rows] == pid]
    ns = np.minimum(calls["end"][rows], edges[-1]) - np.maximum(calls["begin"][rows], edges[0])
    spent = np.bincount(calls["row"][rows], weights=ns, minlength=len(evidence.threads.tid))
    order = [row for row in np.argsort(-spent, kind="stable").tolist() if spent[row] > 0 and row != thread]
    chosen = [thread, *order][:MOST_HOSTS]
    return tuple(_host(evidence, row, rows[calls["row"][rows] == row], edges) for row in chosen)


def _host(evidence: Evidence, thread: int, rows: Ints, edges: Ints) -> HostTime:
    calls, groups = evidence.calls, evidence.group_of(rows).tolist()
    kind = np.array([CALL_ROWS.get(group, len(CALL_WORDS) - 1) for group in groups], np.int64)
    begin, end = calls["begin"][rows], calls["end"][rows]
    started = begin >= edges[0]
    inside = [time_of(begin[kind == one], end[kind == one], edges) for one in range(len(CALL_WORDS))]
    counts = np.bincount(kind[started], minlength=len(CALL_WORDS)).tolist()
    tid = int(evidence.threads.tid[thread])
    return HostTime(tid, np.array(inside), tuple(counts), _onestep_states(evidence, thread, edges))


def _onestep_states(evidence: Evidence, thread: int, edges: Ints) -> Ints:
    """``[STATE_ROWS, COLUMNS]`` of a thread."""
    slices, threads = evidence.slices, evidence.threads
    low, high = np.searchsorted(slices["row"], [thread, thread + 1])
    begin, queued, end = (slices[name][low:high] for name in ("begin", "queued", "end"))
    wait = slices["wait"][low:high].astype(np.int64)
    states = np.zeros((STATE_ROWS, len(edges) - 1), np.int64)
    for kind in np.unique(wait).tolist():
        states[BLOCKED + kind] = time_of(begin[wait == kind], queued[wait == kind], edges)
    states[QUEUED] = time_of(queued, end, edges)
    seen = time_of(threads.known[[thread]], threads.ended[[thread]], edges)
    states[RUNNING] = np.maximum(seen - states.sum(axis=0), 0)
    return states


def _gpu(scene: AttributionContext, device: int, parts: GpuParts, edges: Ints) -> GpuTimes:
    families = family_table()
    near = (parts.end > edges[0]) & (parts.begin < edges[-1])
    idle = []
    for cause, sure in sorted(set(zip(parts.cause[near].tolist(), parts.sure[near].tolist(), strict=True))):
        mine = near & (parts.cause == cause) & (parts.sure == sure)
        number = CATALOGUE[cause].number if cause >= 0 else ""
        ns = time_of(parts.begin[mine], parts.end[mine], edges)
        idle.append(IdleTime(number, int(families[cause]), sure, ns))
    devices = scene.analysis.gpu.devices
    return GpuTimes(
        devices.labels[device],
        devices.index[device],
        time_of(*parts.busy, edges),
        time_of(*parts.presumed, edges),
        tuple(sorted(idle, key=lambda one: -int(one.ns.sum()))),
    )

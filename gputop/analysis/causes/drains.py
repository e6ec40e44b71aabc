"""The wait that drained the GPU's queue, and the function in which the time between launches is lost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from gputop.analysis.causes.cause import CauseMatch
from gputop.analysis.causes.launch_sites import (
    advice_for,
    after_launch,
    is_elementwise,
    named,
    own_short,
    pattern_of,
    title_for,
)
from gputop.analysis.chains.analysis import READS, SCALARS
from gputop.analysis.chains.attribution_context import SCALAR_BYTES, AttributionContext
from gputop.analysis.chains.call_forms import Form, Pattern, advice_of, form_of_read
from gputop.analysis.chains.thread_places import places
from gputop.analysis.evidence.api_classes import Group
from gputop.analysis.evidence.columns import Ints, Mask, among, covered, length, union
from gputop.analysis.evidence.evidence import Column
from gputop.analysis.proofs.gaps import KernelTime
from gputop.engine.calls.stack_table import Line
from probes.code.source_files import is_library

MANY_READS = 4  # a step: fewer are a loss and a metric
NEAR = 0.25  # of a step: reads that are further apart are not of one loop
_WAITING = (Group.SYNC, Group.COPY)


class Drain(IntEnum):
    """The call that drained the queue before a gap."""

    NONE = 0
    READ = 1  # a copy to the host
    MOVED = 2  # a blocking copy to the device
    EXPLICIT = 3


def read_between(scene: AttributionContext) -> Ints:
    """Return the bytes of the read that drained the queue before each gap; -1 where none did."""
    return scene.once("read between", lambda: _bytes(scene))


def drained(scene: AttributionContext) -> Ints:
    """Return the ``Drain`` that opened each proved gap, and to which each estimated one goes back."""
    return scene.once("drained", lambda: _kinds(scene))


def _bytes(scene: AttributionContext) -> Ints:
    source = source_of(scene)
    read = scene.gap_facts.read_bytes
    return np.where(source >= 0, read[np.maximum(source, 0)], -1) if len(read) else read


def _kinds(scene: AttributionContext) -> Ints:
    source, facts = source_of(scene), scene.gap_facts
    kind = np.full(len(source), int(Drain.EXPLICIT), np.int64)
    at = np.maximum(source, 0)
    if len(source):
        kind[facts.read_bytes[at] >= 0] = Drain.READ
        kind[(facts.moved_row[at] >= 0)] = Drain.MOVED
    kind[source < 0] = Drain.NONE
    return kind


def source_of(scene: AttributionContext) -> Ints:
    """Return for each gap the row of the gap whose wait drained the queue: itself, an earlier one, or -1."""
    return scene.once("drain source", lambda: _find(scene))


def _find(scene: AttributionContext) -> Ints:
    gaps = scene.gaps
    unwaited = gaps.estimated | after_launch(scene)
    source = np.where(unwaited, -1, np.arange(len(gaps)))
    pids = scene.evidence.threads.pid[gaps.thread]
    launched = among(scene.gap_facts.refill_group, (Group.LAUNCH, Group.SET, Group.GRAPH))
    lost = None
    if isinstance(scene.analysis.gpu, KernelTime):  # when each wait's lead is used up is known to the ns
        lost = _beyond_leads(scene, pids, unwaited)
    for pid in np.unique(pids).tolist():
        mine = pids == pid
        drains = np.flatnonzero(mine & ~unwaited & (gaps.drained_by >= 0))
        guessed = np.flatnonzero(mine & unwaited & launched)
        if len(drains) and len(guessed) and host_is_faster(scene, pid):
            place = np.searchsorted(gaps.begin[drains], gaps.begin[guessed], side="right") - 1
            goes_back = place >= 0
            if lost is not None:
                goes_back &= lost[guessed] * 2 < (gaps.end - gaps.begin)[guessed]
            source[guessed] = np.where(goes_back, drains[np.maximum(place, 0)], -1)
        # a gap between two reads of a loop with many reads a step goes back to the first of them
        others = np.flatnonzero(mine & (scene.gap_facts.read_bytes < 0))
        before = _read_before(scene, pid, gaps.begin[others])
        source[others[before >= 0]] = before[before >= 0]
    return source


def _beyond_leads(scene: AttributionContext, pids: Ints, unwaited: Mask) -> Ints:
    """Return the part of each gap that would be there without the waits, too, ns.

    A wait costs the host a lead: it would have gone on while the GPU still worked. Each later gap uses some
    of the lead up; where none is left, the host is too slow by itself.
    """
    gaps, calls = scene.gaps, scene.evidence.calls
    wait = np.maximum(gaps.drained_by, 0)
    lead = np.maximum(np.minimum(calls["end"][wait], gaps.begin) - calls["begin"][wait], 0)
    lead = np.where(unwaited | (gaps.drained_by < 0), 0, lead)
    beyond = np.zeros(len(gaps), np.int64)
    order = np.lexsort((gaps.begin, gaps.device, pids))
    first = np.append(True, np.diff(pids[order]) | np.diff(gaps.device[order])).astype(np.bool_)
    for mine in np.split(order, np.flatnonzero(first)[1:]):
        left = np.cumsum(lead[mine] - (gaps.end - gaps.begin)[mine])
        owed = np.maximum.accumulate(np.maximum(-left, 0))
        beyond[mine] = np.diff(owed, prepend=0)
    return beyond


def _read_before(scene: AttributionContext, pid: int, moments: Ints) -> Ints:
    """Return the gap of the read before each moment, within a loop with many reads a step; or -1."""
    gaps = scene.gaps
    none = np.full(len(moments), -1, np.int64)
    if not len(gaps):
        return none
    own = scene.evidence.threads.pid[gaps.thread] == pid
    reads = np.flatnonzero(own & (scene.gap_facts.read_bytes >= 0))
    steps = scene.steps_of(pid) if len(reads) >= MANY_READS else None
    if steps is None or len(reads) < MANY_READS * steps.count:
        return none
    place = np.searchsorted(gaps.begin[reads], moments, side="right")
    before, after = reads[np.maximum(place - 1, 0)], reads[np.minimum(place, len(reads) - 1)]
    between = (place > 0) & (place < len(reads))
    between &= gaps.begin[after] - gaps.begin[before] <= NEAR * steps.median_ns
    return np.where(between, before, -1)


def reads_of_short(scene: AttributionContext, begin: Ints, thread: Ints) -> Ints:
    """Return the gap of the read before each short gap, within a loop of reads; or -1."""
    found, pids = np.full(len(begin), -1, np.int64), scene.evidence.threads.pid[thread]
    for pid in np.unique(pids).tolist():
        mine = pids == pid
        found[mine] = _read_before(scene, pid, begin[mine])
    return found


def host_is_faster(scene: AttributionContext, pid: int) -> bool:
    """Return True if a process's host would be ahead of its GPU without waits.

    In its steps the time outside of waits for the GPU is then less than the time of the GPU's work.
    """
    steps = scene.steps_of(pid)
    if steps is None or not steps.count:
        return False
    low, high = int(steps.begin[0]), steps.end
    evidence = scene.evidence
    calls = evidence.calls
    inside = (calls["pid"] == pid) & (calls["begin"] < high) & (calls["end"] > low)
    rows = np.flatnonzero(inside & among(evidence.group(calls), _WAITING))
    waits = union(np.maximum(calls["begin"][rows], low), np.minimum(calls["end"][rows], high))
    works, waited, gpu = 0, 0, scene.analysis.gpu
    for span in gpu.spans:
        begin, end = gpu.pending(span.device)
        if isinstance(gpu, KernelTime):
            own = gpu.of(span.device)
            own = own[(own["pid"] == pid) & (own["begin"] > low) & (own["begin"] < high)]
            works += length(*union(own["begin"].astype(np.int64), own["end"].astype(np.int64)))
        for estimate in scene.analysis.estimates:
            if estimate.device != span.device:
                continue
            queue = estimate.queue
            own = queue.kernel & (evidence.threads.pid[queue.thread] == pid)
            own &= (queue.ready > low) & (queue.ready < high)
            works += int(estimate.duration_ns[own].sum())
            # nothing proves that a blocking copy to the device waits for the work before it
            ended = np.minimum(queue.ends(estimate.duration_ns), queue.limit)
            begun = ended - queue.real(estimate.duration_ns).astype(np.int64)
            begin, end = np.append(begin, begun[own]), np.append(end, ended[own])
        # a wait for what it then copies is no wait for the GPU: only the part in which the GPU had work
        waited += int(covered(union(begin, end), *waits).sum())
    return works > high - low - waited


# The function of the program, and its line, in which the time between launches is lost.

LEAST_SAMPLES = 8  # of a thread in the time that it loses: fewer are chance
LEAST = 0.2  # of the loss, for its line to be named
CLOSE = 0.8  # of the largest part: some forty samples cannot separate these
MANY, MOST = 20, 0.5  # launches a step that work on each element, of all that its thread makes: a loop


@dataclass(frozen=True, slots=True)
class LaunchPlace:
    """The function in which most is lost."""

    line: Line  # its line with most samples
    share: float  # its part of the loss
    loop: bool  # True if its own statements launch many small kernels, each over all elements
    host_ns: int  # the time of threads in that function, whether or not the GPU was idle


def launch_place(claim: CauseMatch) -> LaunchPlace | None:
    """Return where in the program most of a match of launches is lost; None where too little is known."""
    evidence = claim.scene.evidence
    calls, places = evidence.calls, evidence.places
    thread, begin, end, refilled = _lost(claim)
    if not len(thread) or not len(places):
        return None
    order = np.argsort(evidence.key(thread, begin), kind="stable")
    thread, begin, end, refilled = thread[order], begin[order], end[order], refilled[order]
    stack = np.where(refilled >= 0, calls["stack"][np.maximum(refilled, 0)], 0)
    ns = end - begin
    total = max(int(ns.sum()), 1)
    parts = _by_unit(claim, stack[stack != 0], ns[stack != 0].astype(np.float64))
    row = evidence.threads.row(places["tid"])
    known = np.flatnonzero(row >= 0)
    at = np.searchsorted(
        evidence.key(thread, begin), evidence.key(row[known], places["time"][known]), "right"
    )
    at = np.maximum(at - 1, 0)
    inside = (thread[at] == row[known]) & (begin[at] <= places["time"][known]) & (stack[at] == 0)
    inside &= places["time"][known] < end[at]
    met, whose = known[inside], row[known[inside]]
    for one in np.unique(whose).tolist():
        seen = met[whose == one]
        if len(seen) < LEAST_SAMPLES:
            continue
        lost = float(ns[(thread == one) & (stack == 0)].sum()) / len(seen)
        for unit, (weight, counts) in _by_unit(
            claim, places["stack"][seen], np.full(len(seen), lost)
        ).items():
            before, lines = parts.get(unit, (0.0, {}))
            parts[unit] = before + weight, {**lines, **counts}
    if not parts:
        return None
    close = CLOSE * max(weight for weight, _lines in parts.values())
    # among these the function whose own statements launch: it is the program's to change
    unit = max(
        (one for one in parts if parts[one][0] >= close), key=lambda one: (one[2] == 0, parts[one][0], one)
    )
    weight, lines = parts[unit]
    if weight < total * LEAST:
        return None
    line = max(lines, key=lambda one: (lines[one], one))
    loop = unit[2] == 0 and _loops(claim, refilled)
    return LaunchPlace(line, weight / total, loop, _host_ns(claim, line))


_Unit = tuple[str, str, int]  # file, function, and the line if it calls into a library


def _lost(claim: CauseMatch) -> tuple[Ints, Ints, Ints, Ints]:
    """Return (thread, begin, end, the call that ends it) of each piece, short gaps included."""
    scene = claim.scene
    rows = np.flatnonzero(claim.segments)
    gap = scene.segments.gap[rows]
    found = [(scene.gaps.thread[gap], scene.segments.begin[rows], scene.segments.end[rows])]
    refilled = [scene.gaps.refilled_by[gap]]
    for estimate in scene.analysis.estimates:
        small = estimate.small
        mine = scene.evidence.threads.pid[small.thread] == claim.pid
        mine &= (small.refilled_by >= 0) & (reads_of_short(scene, small.begin, small.thread) < 0)
        mine &= ~own_short(scene, small.begin, small.end, small.refilled_by, small.thread)
        group = scene.evidence.group_of(np.maximum(small.refilled_by, 0))
        mine &= group == Group.LAUNCH
        found.append((small.thread[mine], small.begin[mine], small.end[mine]))
        refilled.append(small.refilled_by[mine])
    thread, begin, end = (np.concatenate(column) for column in zip(*found, strict=True))
    return thread, begin, end, np.concatenate(refilled)


def _by_unit(
    claim: CauseMatch, stacks: Column, weight: Column
) -> dict[_Unit, tuple[float, dict[Line, float]]]:
    """Return the sum of weights of each unit of the program, and of each line of it."""
    numbers, which = np.unique(stacks, return_inverse=True)
    sums = np.bincount(which.reshape(-1), weights=weight, minlength=len(numbers))
    known = claim.scene.evidence.facts.stacks
    found: dict[_Unit, tuple[float, dict[Line, float]]] = {}
    for number, part in zip(numbers.tolist(), sums.tolist(), strict=True):
        line = known.line(number)
        if line is None or line.is_native or is_library(line.file):
            continue
        innermost = next(
            (frame for frame in known.frames(number) if frame.file and not frame.is_native), None
        )
        unit = (line.file, line.function, line.line if innermost != line else 0)
        before, lines = found.get(unit, (0.0, {}))
        lines[line] = lines.get(line, 0.0) + part
        found[unit] = before + part, lines
    return found


def _loops(claim: CauseMatch, refilled: Ints) -> bool:
    """Return True if most of these launches, and many of each step, work on each element by itself."""
    kernels, launches = named(claim.scene, refilled)
    wise = sum(len(one.rows) for one in kernels if is_elementwise(one.name))
    steps = claim.steps
    return wise >= MOST * max(launches, 1) and (claim.times_of(wise) or 0) >= MANY and steps is not None


_PARTS = 64  # of a step, by its calls: what a step does there is about the same each time


def _host_ns(claim: CauseMatch, line: Line) -> int:
    """Return the time of the process in the line's function in its steps, ns.

    Calls show how long each part of a step takes, samples which part is the function's. Some fifty samples
    alone would show it to a quarter only.
    """
    scene, evidence, steps = claim.scene, claim.scene.evidence, claim.steps
    if steps is None or not steps.count:
        return 0
    calls, places, stacks = evidence.calls, evidence.places, evidence.facts.stacks
    begin = np.sort(calls["begin"][calls["pid"] == claim.pid])
    begin = begin[(begin >= steps.begin[0]) & (begin < steps.end)]
    row = evidence.threads.row(places["tid"])
    launching = np.unique(scene.gaps.thread[claim.gaps])
    met = np.flatnonzero(np.isin(row, launching) & (places["time"] < steps.end))
    behind = np.searchsorted(begin, places["time"][met], side="right") - 1
    met, behind = met[behind >= 0], behind[behind >= 0]
    if not len(met):
        return 0
    first = np.searchsorted(begin, steps.begin)
    step = np.searchsorted(steps.begin, begin, side="right") - 1
    of_it = np.diff(np.append(first, len(begin)))[step]
    part = (np.arange(len(begin)) - first[step]) * _PARTS // of_it
    lengths = np.bincount(part, weights=np.diff(np.append(begin, steps.end)), minlength=_PARTS)
    numbers, which = np.unique(places["stack"][met], return_inverse=True)
    lines = [stacks.line(number) for number in numbers.tolist()]
    within = np.array(
        [one is not None and (one.file, one.function) == (line.file, line.function) for one in lines]
    )
    seen = np.bincount(part[behind], minlength=_PARTS)
    inside = np.bincount(part[behind], weights=within[which.reshape(-1)], minlength=_PARTS)
    known = np.flatnonzero(seen)
    share = np.interp(np.arange(_PARTS), known, inside[known] / seen[known])
    return int((share * lengths).sum())


# The form of a read from the device, by the program's call.


def form_of_claim(claim: CauseMatch) -> tuple[Form, Pattern]:
    """Return the form of the read, and the pattern of its calls."""
    read_row = claim.scene.gap_facts.read_row
    row = read_row[claim.gaps]
    if (row < 0).all():  # the gaps right behind the reads are another cause's: those before these gaps
        source = source_of(claim.scene)[claim.gaps]
        row = np.where(source >= 0, read_row[np.maximum(source, 0)], -1)
    pattern = pattern_of(claim, row, row, read_row, to_host=True)
    if (named := _by_operator(claim)) is not None:
        return named, replace(pattern, often=claim.times)
    return form_of_read(pattern), pattern


def _by_operator(claim: CauseMatch) -> Form | None:
    """Return the form by the operators of an imported file; None where they do not tell."""
    found = places(claim.scene, np.flatnonzero(claim.segments))
    name = max(found, key=lambda one: (found[one], one), default="")
    if SCALARS.search(name):
        return "item"
    return "size" if READS.search(name) else None


def title_of_read(claim: CauseMatch) -> str:
    """Return the title of a match of reads."""
    return title_for(claim, *form_of_claim(claim))


def advise_read(claim: CauseMatch) -> tuple[str, ...]:
    """Return the change that a match of reads wants."""
    form, pattern = form_of_claim(claim)
    if form == "item":
        times = claim.per_step(pattern.count)
        return advice_of(form, size=f"{SCALAR_BYTES} bytes", times=times, torch=claim.torch)
    return advice_for(claim, form, pattern)

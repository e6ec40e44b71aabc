"""In which function of the program, and at which line of it, the time between launches is lost.

Only some launches carry the line that makes them; samples meet the others' thread in the time that is lost.
What the statements of one function launch is summed up, however many lines they are on: a loop over tensors.
A line that calls into a library (``model(x)``, ``loss.backward()``) stands for what is launched in there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gputop.engine.lines import Line
from gputop.explain.causes.cause import Claim
from gputop.explain.causes.drains import reads_of_short
from gputop.explain.causes.launched import is_elementwise, named
from gputop.explain.evidence.apiclass import Group
from gputop.explain.evidence.evidence import Column
from gputop.explain.evidence.ranges import Ints
from probes.code.source_files import is_library

LEAST_SAMPLES = 8  # that meet a thread in the time that it loses: fewer are chance
LEAST = 0.2  # of the loss, for its line to be named
MANY, MOST = 20, 0.5  # launches a step that work on each element, of all that its thread makes: a loop


@dataclass(frozen=True, slots=True)
class LaunchPlace:
    """Where most is lost.

    Attributes:
        line: The line of it where samples met its thread most often.
        share: Its part of the loss.
        loop: Whether the function's own statements launch many small kernels, each over all elements.
        host_ns: For how long threads were in that function, whether or not the GPU was idle.
    """

    line: Line
    share: float
    loop: bool
    host_ns: int


def launch_place(claim: Claim) -> LaunchPlace | None:
    """Where in the program most of a claim of launches is lost; None where too little is known."""
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
    unit = max(parts, key=lambda one: (parts[one][0], one))
    weight, lines = parts[unit]
    if weight < total * LEAST:
        return None
    line = max(lines, key=lambda one: (lines[one], one))
    loop = unit[2] == 0 and _loops(claim, refilled)
    return LaunchPlace(line, weight / total, loop, _host_ns(claim, line))


_Unit = tuple[str, str, int]  # file, function, and the line if it calls into a library


def _lost(claim: Claim) -> tuple[Ints, Ints, Ints, Ints]:
    """(thread, begin, end, the call that ends it) of each piece, the gaps that are summed up among them."""
    scene = claim.scene
    rows = np.flatnonzero(claim.segments)
    gap = scene.segments.gap[rows]
    found = [(scene.gaps.thread[gap], scene.segments.begin[rows], scene.segments.end[rows])]
    refilled = [scene.gaps.refilled_by[gap]]
    for estimate in scene.analysis.estimates:
        small = estimate.small
        mine = scene.evidence.threads.pid[small.thread] == claim.pid
        mine &= (small.refilled_by >= 0) & (reads_of_short(scene, small.begin, small.thread) < 0)
        group = scene.evidence.group_of(np.maximum(small.refilled_by, 0))
        mine &= group == Group.LAUNCH
        found.append((small.thread[mine], small.begin[mine], small.end[mine]))
        refilled.append(small.refilled_by[mine])
    thread, begin, end = (np.concatenate(column) for column in zip(*found, strict=True))
    return thread, begin, end, np.concatenate(refilled)


def _by_unit(claim: Claim, stacks: Column, weight: Column) -> dict[_Unit, tuple[float, dict[Line, float]]]:
    """What each unit of the program has of some weights, and each line of it."""
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


def _loops(claim: Claim, refilled: Ints) -> bool:
    """Whether most of these launches work on each element by itself, and many do each step."""
    kernels, launches = named(claim.scene, refilled)
    wise = sum(len(one.rows) for one in kernels if is_elementwise(one.name))
    steps = claim.steps
    return wise >= MOST * max(launches, 1) and (claim.times_of(wise) or 0) >= MANY and steps is not None


def _host_ns(claim: Claim, line: Line) -> int:
    """For how long the process was in the line's function, by samples of its threads in its steps."""
    scene, evidence, steps = claim.scene, claim.scene.evidence, claim.steps
    if steps is None or not steps.count:
        return 0
    places, stacks = evidence.places, evidence.facts.stacks
    row = evidence.threads.row(places["tid"])
    launching = np.unique(scene.gaps.thread[claim.gaps])
    mine = np.isin(row, launching) & (places["time"] > steps.begin[0]) & (places["time"] < steps.end)
    numbers, counts = np.unique(places["stack"][mine], return_counts=True)
    lines = [stacks.line(number) for number in numbers.tolist()]
    within = [one is not None and (one.file, one.function) == (line.file, line.function) for one in lines]
    share = int(counts[np.array(within, np.bool_)].sum()) / max(int(counts.sum()), 1)
    return int(share * (steps.end - int(steps.begin[0])))

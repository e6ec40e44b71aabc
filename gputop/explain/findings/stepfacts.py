"""The steps that a report tells of: how long they take, which are far longer, whether and where they grow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gputop.engine.lines import Line
from gputop.explain.answer.report import Finding, Growth, LongSteps, StepFacts
from gputop.explain.causes import CATALOGUE
from gputop.explain.chains.places import hot_line
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Floats, Ints, covered, intersect
from gputop.explain.findings.findings import Outcome
from gputop.explain.findings.persteps import Taken, by_step, take
from gputop.format import format_count

UNEVEN = 2.0  # times the median, from which on a mean tells of no step
FAR = 3.0  # times the median: a long step
NAMED = 3  # of the long ones
BINS, FEWEST = 12, 48  # parts of a loop that are compared; steps of which a trend can be told
GROWN = 1.3  # times as long in the last quarter as in the first
STEADY = 0.85  # rank correlation of the parts' means with their order
COUNTED = 1.1  # times as many launches, from which on they are said to grow
FEWEST_UNEVEN = 4  # steps of which a few may be long
GPU_WORK, HOST_WORK = "the GPU's own work", "the host's work while the GPU is at work"


def step_facts(scene: Scene, outcome: Outcome, findings: Sequence[Finding]) -> StepFacts | None:
    """What is told of the steps of the process that gives a GPU the most work; None without any."""
    steps, threads = scene.steps, scene.evidence.threads
    if steps is None:
        return None
    taken = take(scene, outcome, by_step(steps))
    return StepFacts(
        steps.count,
        steps.median_ns,
        steps.usual_ns,
        int(threads.pid[steps.thread]),
        int(threads.tid[steps.thread]),
        _long(scene, taken),
        _growth(scene, outcome, taken, findings),
    )


def _long(scene: Scene, taken: Taken) -> LongSteps | None:
    """Steps of which few take most of the time, but for waits for the GPU: these are what others took."""
    whole = taken.until - taken.begin
    own = np.maximum(whole - taken.waited, 0)
    if len(own) < FEWEST_UNEVEN or own.mean() <= UNEVEN * max(float(np.median(own)), 1.0):
        return None
    far = np.flatnonzero(own > FAR * np.median(own))
    if own[far].sum() < 0.5 * own.sum():
        return None
    order = far[np.argsort(-whole[far], kind="stable")]
    start = int(scene.evidence.header.get("start_ns", scene.evidence.start_ns))
    return LongSteps(
        int(whole.sum()),
        len(far),
        int(whole[far].sum()),
        tuple((int(taken.begin[row]) - start, int(whole[row])) for row in order[:NAMED].tolist()),
    )


def _growth(scene: Scene, outcome: Outcome, taken: Taken, findings: Sequence[Finding]) -> Growth | None:
    """How steps get longer from the begin of the loop to its end, and what of them; None if they do not."""
    whole = (taken.until - taken.begin).astype(np.float64)
    if len(whole) < FEWEST:
        return None
    means = _means(whole)
    first, last = _ends(whole)
    if last < GROWN * first or _order(means) < STEADY:
        return None
    idle = {number: _ends(ns.astype(np.float64)) for number, ns in taken.causes.items()}
    parts = {number: after - before for number, (before, after) in idle.items()}
    worked = _ends(whole - taken.idle)
    waits = _ends(_pending(scene, taken))
    parts[GPU_WORK] = min(worked[1] - worked[0], waits[1] - waits[0]) if scene.analysis.gpu.spans else 0.0
    parts[HOST_WORK] = worked[1] - worked[0] - parts[GPU_WORK]
    most = max(parts, key=lambda one: parts[one])
    title, line = _named(most, findings)
    line = _hot(scene, outcome, most, int(taken.begin[-(len(whole) // 4)])) or line
    launches = _ends(taken.launches.astype(np.float64))
    more = (
        f"its launches grow from {format_count(launches[0])} to {format_count(launches[1])}"
        if launches[1] > COUNTED * max(launches[0], 1)
        else f"its launches stay at {format_count(launches[1])}"
    )
    return Growth(len(whole), int(first), int(last), int(min(parts[most], last - first)), title, more, line)


def _pending(scene: Scene, taken: Taken) -> Floats:
    """For how long the GPU certainly worked in each step, ns, of all GPUs together."""
    total = np.zeros(len(taken.begin))
    for span in scene.analysis.gpu.spans:
        pending = scene.analysis.gpu.pending(span.device)
        pending = intersect(pending, (taken.begin[:1], taken.until[-1:]))
        total += covered(pending, taken.begin, taken.until)
    return total


def _named(part: str, findings: Sequence[Finding]) -> tuple[str, Line | None]:
    """What a part is called, and its line."""
    for finding in findings:
        if finding.cause == part:
            return f"{finding.title} [{part}]", finding.line
    titles = {cause.number: f"{cause.title} [{part}]" for cause in CATALOGUE}
    return titles.get(part, part), None


def _hot(scene: Scene, outcome: Outcome, part: str, since: int) -> Line | None:
    """Where the threads were, most often, in the last quarter's idle time of a cause."""
    rows = [row for row, cause in enumerate(CATALOGUE) if cause.number == part]
    pieces = np.flatnonzero(np.isin(outcome.cause, rows) & (scene.segments.begin >= since))
    hot = hot_line(scene, pieces) if len(pieces) else None
    return hot.line if hot is not None else None


def _ends(values: Floats) -> tuple[float, float]:
    """Means of the first quarter and of the last one."""
    quarter = len(values) // 4
    return float(values[:quarter].mean()), float(values[-quarter:].mean())


def _means(values: Floats) -> Floats:
    """Of parts that follow each other."""
    return np.array([part.mean() for part in np.array_split(values, BINS)])


def _order(means: Floats) -> float:
    """Rank correlation of values with their order: 1 where each is larger than the one before."""
    ranks: Ints = np.argsort(np.argsort(means, kind="stable"), kind="stable")
    return float(np.corrcoef(ranks, np.arange(len(means)))[0, 1])

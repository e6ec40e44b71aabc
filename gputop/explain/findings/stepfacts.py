"""The steps that a report tells of: how long they take, which are far longer, whether and where they grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

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
MOST_ROWS = 1 << 16  # of steps: of more, some share a row
UNKNOWN = "idle time of unknown cause"
GPU_WORK, HOST_WORK = "the GPU's own work", "the host's work while the GPU is at work"


# ``count`` steps, the first of which began so long after the start of the recording, and all that they took
STEP: Final = np.dtype(
    [(name, "i8") for name in ("begin", "ns", "count", "waited", "idle", "pending", "launches")]
)
Steps = npt.NDArray[np.void]


@dataclass(frozen=True, slots=True)
class Loops:
    """The steps of one thread, in rows that add up.

    Attributes:
        count: How many there are, those included that are in no row.
        median_ns, usual_ns: What one takes, times ``count``.
        rows: What the steps took, in order; a row may stand for several that follow each other.
        causes: The idle time that each cause took of each row, ns.
        hot: Where the threads were in a cause's idle time, towards the end.
    """

    pid: int
    tid: int
    count: int
    median_ns: int
    usual_ns: int
    rows: Steps
    causes: Mapping[str, Ints]
    hot: Mapping[str, Line]

    def plus(self, later: Loops) -> Loops:
        """These, and those of a later part."""
        rows = np.concatenate([self.rows, later.rows])
        none = [np.zeros(len(one.rows), np.int64) for one in (self, later)]
        causes = {
            number: np.append(self.causes.get(number, none[0]), later.causes.get(number, none[1]))
            for number in {**self.causes, **later.causes}
        }
        made = replace(
            self,
            count=self.count + later.count,
            median_ns=self.median_ns + later.median_ns,
            usual_ns=self.usual_ns + later.usual_ns,
            rows=rows,
            causes=causes,
            hot={**self.hot, **later.hot},
        )
        return made._thinned() if len(rows) > MOST_ROWS else made

    def _thinned(self) -> Loops:
        """Two ordinary steps that follow each other in one row; a long one keeps its own."""
        own = _own(self.rows)
        far = own > FAR * np.median(own)
        head = np.ones(len(own), np.bool_)
        head[1::2] = far[1::2] | far[:-1:2][: len(head[1::2])]
        heads = np.flatnonzero(head)
        rows = np.zeros(len(heads), STEP)
        for name in STEP.names or ():
            rows[name] = np.add.reduceat(self.rows[name], heads)
        rows["begin"] = self.rows["begin"][heads]
        causes = {number: np.add.reduceat(ns, heads) for number, ns in self.causes.items()}
        return replace(self, rows=rows, causes=causes)


def loops_of(scene: Scene, outcome: Outcome) -> Loops | None:
    """The steps of the process that gives a GPU the most work; None without any."""
    steps, threads = scene.steps, scene.evidence.threads
    if steps is None:
        return None
    taken = take(scene, outcome, by_step(steps))
    rows = np.zeros(len(taken.begin), STEP)
    start = int(scene.evidence.header.get("start_ns", scene.evidence.start_ns))
    rows["begin"], rows["ns"], rows["count"] = taken.begin - start, taken.until - taken.begin, 1
    rows["waited"], rows["idle"], rows["launches"] = taken.waited, taken.idle, taken.launches
    rows["pending"] = _pending(scene, taken)
    hot: dict[str, Line] = {}
    if len(rows) >= FEWEST and _ends(rows, rows["ns"])[1] >= GROWN * _ends(rows, rows["ns"])[0]:
        for number in taken.causes:
            line = _hot(scene, outcome, number, int(taken.begin[-(len(rows) // 4)]))
            hot |= {number: line} if line is not None else {}
    return Loops(
        int(threads.pid[steps.thread]),
        int(threads.tid[steps.thread]),
        steps.count,
        steps.median_ns * steps.count,
        steps.usual_ns * steps.count,
        rows,
        taken.causes,
        hot,
    )


def step_facts(loops: Loops, findings: Sequence[Finding], *, gpus: bool) -> StepFacts:
    """What is told of some steps; ``gpus``: whether it is known when a GPU was at work."""
    count = max(loops.count, 1)
    return StepFacts(
        loops.count,
        loops.median_ns // count,
        loops.usual_ns // count,
        loops.pid,
        loops.tid,
        _long(loops.rows),
        _growth(loops, findings, gpus=gpus),
    )


def _own(rows: Steps) -> Floats:
    """What a step took but for waits for the GPU, which are what others took."""
    own: Floats = np.maximum(rows["ns"] - rows["waited"], 0) / rows["count"]
    return own


def _long(rows: Steps) -> LongSteps | None:
    """Steps of which few take most of the time."""
    own, count = _own(rows), rows["count"]
    if count.sum() < FEWEST_UNEVEN:
        return None
    median, whole = max(float(np.median(own)), 1.0), float((own * count).sum())
    if whole <= UNEVEN * median * count.sum():
        return None
    far = np.flatnonzero(own > FAR * np.median(own))
    if (own * count)[far].sum() < 0.5 * whole:
        return None
    order = far[np.argsort(-rows["ns"][far], kind="stable")]
    longest = rows[order[:NAMED]]
    return LongSteps(
        int(rows["ns"].sum()),
        int(count[far].sum()),
        int(rows["ns"][far].sum()),
        tuple(zip(longest["begin"].tolist(), longest["ns"].tolist(), strict=True)),
    )


def _growth(loops: Loops, findings: Sequence[Finding], *, gpus: bool) -> Growth | None:
    """How steps get longer from the begin of the loop to its end, and what of them; None if they do not."""
    rows, whole = loops.rows, loops.rows["ns"]
    if len(rows) < FEWEST:
        return None
    first, last = _ends(rows, whole)
    if last < GROWN * first or _order(_means(rows)) < STEADY:
        return None
    parts = {number: _grown(rows, ns) for number, ns in loops.causes.items()}
    parts[UNKNOWN] = _grown(rows, rows["idle"]) - sum(parts.values())
    worked = _grown(rows, whole - rows["idle"])
    parts[GPU_WORK] = min(worked, _grown(rows, rows["pending"])) if gpus else 0.0
    parts[HOST_WORK] = worked - parts[GPU_WORK]
    most = max(parts, key=lambda one: parts[one])
    title, line = _named(most, findings)
    launches = _ends(rows, rows["launches"])
    more = (
        f"its launches grow from {format_count(launches[0])} to {format_count(launches[1])}"
        if launches[1] > COUNTED * max(launches[0], 1)
        else f"its launches stay at {format_count(launches[1])}"
    )
    taken = int(min(parts[most], last - first))
    line = loops.hot.get(most, line)
    return Growth(int(rows["count"].sum()), int(first), int(last), taken, title, more, line)


def _pending(scene: Scene, taken: Taken) -> Ints:
    """For how long the GPU certainly worked in each step, ns, of all GPUs together."""
    total = np.zeros(len(taken.begin), np.int64)
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


def _ends(rows: Steps, values: Ints) -> tuple[float, float]:
    """What a step took of something, in the first quarter of the rows and in the last one."""
    quarter = max(len(rows) // 4, 1)
    first, last = (
        float(values[part].sum() / max(rows["count"][part].sum(), 1))
        for part in (slice(quarter), slice(-quarter, None))
    )
    return first, last


def _grown(rows: Steps, values: Ints) -> float:
    first, last = _ends(rows, values)
    return last - first


def _means(rows: Steps) -> Floats:
    """What a step took in parts that follow each other."""
    return np.array([part["ns"].sum() / part["count"].sum() for part in np.array_split(rows, BINS)])


def _order(means: Floats) -> float:
    """Rank correlation of values with their order: 1 where each is larger than the one before."""
    ranks: Ints = np.argsort(np.argsort(means, kind="stable"), kind="stable")
    return float(np.corrcoef(ranks, np.arange(len(means)))[0, 1])

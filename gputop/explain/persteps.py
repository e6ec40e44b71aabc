"""What each step took, as one array per measure: what ``gputop diff`` compares.

Without steps the span is cut into windows of equal length, and everything is told per second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np

from gputop.explain.apiclass import Group
from gputop.explain.causes import CATALOGUE
from gputop.explain.findings import LEAST_GAPS, LONELY, Outcome
from gputop.explain.ranges import Ints, Mask, covered, union
from gputop.explain.scene import Scene
from probes.schema import OffFlag

_WINDOWS = 24  # of a recording without steps
_SECOND = 1e9


class Unit(str, Enum):
    """What everything is told per."""

    STEP = "step"
    SECOND = "second"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True)
class Measures:
    """One row per step, in their order; in windows all but ``duration`` is scaled to a second.

    Attributes:
        duration: From the begin of one step to that of the next, ns.
        idle: Proved idle time of the GPUs in it, ns.
        calls: Outermost CUDA calls of the process that makes the steps.
        launches: Those of them that launch kernels.
        voluntary, involuntary: Context switches of the thread that makes the steps.
        causes: The idle time that each cause took of it, ns, by the cause's number.
        left_out: Steps that were far longer than usual.
    """

    unit: Unit
    duration: Ints
    idle: Ints
    calls: Ints
    launches: Ints
    voluntary: Ints
    involuntary: Ints
    causes: dict[str, Ints]
    left_out: int

    def named(self) -> Iterator[tuple[str, Ints]]:
        """(key in JSON, values) of each measure."""
        yield from (
            ("duration_ns", self.duration),
            ("idle_ns", self.idle),
            ("calls", self.calls),
            ("launches", self.launches),
            ("voluntary_switches", self.voluntary),
            ("involuntary_switches", self.involuntary),
        )


def measure(scene: Scene, outcome: Outcome, unit: Unit) -> Measures:
    """Looks at each step, or at windows of the span where ``unit`` is a second."""
    begin, end = _steps(scene) if unit is Unit.STEP else _windows(scene)
    length = end - begin
    keep = _usual(length)
    left_out = int(np.count_nonzero(~keep))
    begin, end, length = begin[keep], end[keep], length[keep]
    threads, calls, slices = scene.evidence.threads, scene.evidence.calls, scene.evidence.slices
    thread = _thread(scene)
    scale = np.ones(len(length)) if unit is Unit.STEP else _SECOND / np.maximum(length, 1)

    def scaled(values: Ints) -> Ints:
        return np.rint(values * scale).astype(np.int64)

    own = calls["pid"] == threads.pid[thread] if len(calls) else np.zeros(0, np.bool_)
    launches = own & np.isin(scene.evidence.group(calls), [Group.LAUNCH, Group.GRAPH, Group.COLLECTIVE])
    switched = (slices["row"] == thread) & ((slices["flags"] & OffFlag.BIRTH) == 0)
    forced = (slices["flags"] & OffFlag.INVOLUNTARY) != 0
    gaps = union(scene.gaps.begin, scene.gaps.end)
    return Measures(
        unit,
        duration=length,
        idle=scaled(covered(gaps, begin, end)),
        calls=scaled(_count(calls["begin"][own], begin, end)),
        launches=scaled(_count(calls["begin"][launches], begin, end)),
        voluntary=scaled(_count(slices["begin"][switched & ~forced], begin, end)),
        involuntary=scaled(_count(slices["begin"][switched & forced], begin, end)),
        causes={
            number: scaled(covered(_taken(scene, mask), begin, end))
            for number, mask in _by_cause(outcome).items()
        },
        left_out=left_out,
    )


def _usual(length: Ints) -> Mask:
    """All steps but those that are far longer than usual, as long as these are few."""
    far = length > LONELY * np.median(length) if len(length) else np.zeros(0, np.bool_)
    return ~far if np.count_nonzero(far) < LEAST_GAPS else np.ones(len(length), np.bool_)


def _steps(scene: Scene) -> tuple[Ints, Ints]:
    steps = scene.steps
    if steps is None:
        raise ValueError("a recording without steps has windows only")
    return steps.begin, np.append(steps.begin[1:], steps.end)


def _windows(scene: Scene) -> tuple[Ints, Ints]:
    spans = scene.analysis.gpu.spans
    if not spans:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    first, last = min(span.begin for span in spans), max(span.end for span in spans)
    edges = np.linspace(first, last, _WINDOWS + 1).astype(np.int64)
    return edges[:-1], edges[1:]


def _thread(scene: Scene) -> int:
    """The thread that makes the steps, else the one that ends most gaps or makes most calls."""
    if scene.steps is not None:
        return scene.steps.thread
    rows = scene.gaps.thread if len(scene.gaps) else scene.evidence.calls["row"]
    return int(np.argmax(np.bincount(rows))) if len(rows) else 0


def _count(times: Ints, begin: Ints, end: Ints) -> Ints:
    times = np.sort(times)
    return np.searchsorted(times, end) - np.searchsorted(times, begin)


def _by_cause(outcome: Outcome) -> dict[str, Mask]:
    """The leaves of each number; two causes may share one (C04)."""
    found: dict[str, Mask] = {}
    for row in np.unique(outcome.cause).tolist():
        if row >= 0:
            number, mine = CATALOGUE[row].number, outcome.cause == row
            found[number] = found[number] | mine if number in found else mine
    return found


def _taken(scene: Scene, mask: Mask) -> tuple[Ints, Ints]:
    return union(scene.leaves.begin[mask], scene.leaves.end[mask])

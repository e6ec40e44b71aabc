"""The line at which threads were met most often while they were on a CPU between two calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gputop.explain.chain import State
from gputop.explain.ranges import Ints
from gputop.lines import Line

if TYPE_CHECKING:
    from gputop.explain.scene import Scene

_FEW = 2  # one look may have met anything


@dataclass(frozen=True, slots=True)
class Hot:
    """The line at which a thread was met most often.

    Attributes:
        line: The line.
        looks: How often it was met there.
        of: How often it was met at all, at lines that are known.
    """

    line: Line
    looks: int
    of: int

    def text(self) -> str:
        """As a link of a chain tells it."""
        return f"{self.line.text()} ({self.looks} of {self.of} looks)"


def hot_line(scene: Scene, rows: Ints) -> Hot | None:
    """The line at which these leaves' threads were on a CPU most often; None without enough looks."""
    places, threads, leaves = scene.evidence.places, scene.evidence.threads, scene.leaves
    rows = rows[(leaves.state[rows] == State.RUN) & (leaves.thread[rows] >= 0)]
    if not len(places) or not len(rows):
        return None
    key = scene.evidence.key(leaves.thread[rows], leaves.begin[rows])
    order = np.argsort(key, kind="stable")
    rows, key = rows[order], key[order]
    thread = np.searchsorted(threads.tid, places["tid"])
    known = (thread < len(threads.tid)) & (
        threads.tid[np.minimum(thread, len(threads.tid) - 1)] == places["tid"]
    )
    thread, time, stack = thread[known], places["time"][known], places["stack"][known]
    leaf = np.searchsorted(key, scene.evidence.key(thread, time), side="right") - 1
    within = leaf >= 0
    leaf = rows[np.maximum(leaf, 0)]
    within &= (leaves.thread[leaf] == thread) & (leaves.end[leaf] > time) & (leaves.begin[leaf] <= time)
    looks: dict[Line, int] = {}
    for number, count in zip(*np.unique(stack[within], return_counts=True), strict=True):
        line = scene.evidence.facts.stacks.line(int(number))
        if line is not None:
            looks[line] = looks.get(line, 0) + int(count)
    if not looks:
        return None
    line = max(looks, key=lambda one: (looks[one], one))
    return Hot(line, looks[line], sum(looks.values())) if looks[line] >= _FEW else None

"""The lines where threads were between two calls: most often on a CPU, or longest off it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gputop.explain.chain import DEPTH, State
from gputop.explain.evidence import Column, Evidence
from gputop.explain.ranges import Ints
from gputop.lines import Line
from probes.source_files import is_library

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


def longest(evidence: Evidence, stacks: Column, ns: Ints) -> Line | None:
    """The line where at least half of this time lies; None when none is known for so much."""
    if not stacks.any():  # of ten million calls without lines none has to be sorted
        return None
    times: dict[Line, int] = {}
    numbers, which = np.unique(stacks, return_inverse=True)
    sums = np.bincount(which.reshape(-1), weights=ns)
    for stack, spent in zip(numbers.tolist(), sums.tolist(), strict=True):
        line = evidence.facts.stacks.line(stack)
        if line is not None:
            times[line] = times.get(line, 0) + int(spent)
    if not times:
        return None
    line = max(times, key=lambda one: (times[one], one))
    return line if 2 * times[line] >= ns.sum() else None


def waiting_line(scene: Scene, rows: Ints, threads: Ints | int) -> Line | None:
    """The line where threads were blocked for most of the time of these leaves; none within libraries only.

    Args:
        scene: Everything.
        rows: Leaves on such a thread, or at the end of a chain that goes through one.
        threads: The thread, or that of each leaf.
    """
    leaves, links = scene.leaves, scene.links
    own = (leaves.thread[rows] == threads) & (leaves.state[rows] == State.BLOCKED)
    item = np.where(own, leaves.slice[rows], -1)
    link = leaves.link[rows]
    for _ in range(DEPTH if len(links.slice) else 0):
        here = np.maximum(link, 0)
        item = np.where((link >= 0) & (links.thread[here] == threads), links.slice[here], item)
        link = np.where(link >= 0, links.above[here], -1)
    known = item >= 0
    line = longest(scene.evidence, scene.evidence.slices["stack"][item[known]], scene.ns[rows[known]])
    return None if line is None or is_library(line.file) else line

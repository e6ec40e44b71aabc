"""The lines where threads were between two calls: most often on a CPU, or longest off it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gputop.engine.lines import Line
from gputop.explain.chains.chain import DEPTH, State
from gputop.explain.chains.pytorch import first_use
from gputop.explain.evidence.evidence import Column, Evidence
from gputop.explain.evidence.ranges import Ints
from probes.code.source_files import is_library

if TYPE_CHECKING:
    from gputop.explain.chains.scene import Scene

_MOST = 0.5  # of the time, for a line that stands for all of it
_FEW = 2  # one sample may have met anything


@dataclass(frozen=True, slots=True)
class Hot:
    """The function in which a thread was met most often, with the line of it where it was met most often.

    Attributes:
        line: The line.
        samples: How often it was met in that function.
        of: How often it was met at all, at lines that are known.
    """

    line: Line
    samples: int
    of: int

    def text(self) -> str:
        """As a link of a chain tells it."""
        return f"{self.line.text()} ({self.samples} of {self.of} samples)"


def hot_line(scene: Scene, rows: Ints) -> Hot | None:
    """The line at which these segments' threads were running most often; None without enough samples."""
    met = sampled(scene, rows)
    return hottest(scene, [stack for stack, _count in met], [count for _stack, count in met])


def hottest(scene: Scene, stacks: Iterable[int], counts: Iterable[int]) -> Hot | None:
    """The same of some stacks that were met so often."""
    samples: dict[Line, int] = {}
    for stack, count in zip(stacks, counts, strict=True):
        line = scene.evidence.facts.stacks.line(stack)
        if line is not None:
            samples[line] = samples.get(line, 0) + count
    if not samples:
        return None
    functions: dict[tuple[str, str], int] = {}
    for line, count in samples.items():  # a loop over many lines is its function
        functions[line.file, line.function] = functions.get((line.file, line.function), 0) + count
    # a deep stack is cut off before it comes to the program: what is known of others says more
    function = max(functions, key=lambda one: (not is_library(one[0]), functions[one], one))
    if functions[function] < _FEW:
        return None
    line = max(
        (one for one in samples if (one.file, one.function) == function), key=lambda one: (samples[one], one)
    )
    return Hot(line, functions[function], sum(samples.values()))


def end_line(scene: Scene, rows: Ints) -> Line | None:
    """Where the threads at the end of these segments' chains were: running, or else blocked."""
    segments = scene.segments
    asleep = segments.state[rows] == State.BLOCKED
    if 2 * int(scene.ns[rows][asleep].sum()) > int(scene.ns[rows].sum()):
        return waiting_line(scene, rows[asleep], segments.thread[rows[asleep]])
    hot = hot_line(scene, rows)
    return hot.line if hot is not None else None


def sampled(scene: Scene, rows: Ints) -> list[tuple[int, int]]:
    """(stack, how often it was met) of these segments' threads while they were running."""
    _segments, met = samples_in(scene, rows)
    numbers, counts = np.unique(scene.evidence.places["stack"][met], return_counts=True)
    return list(zip(numbers.tolist(), counts.tolist(), strict=True))


def samples_in(scene: Scene, rows: Ints) -> tuple[Ints, Ints]:
    """(segment, row of ``evidence.places``) of each sample of these segments' threads while they ran."""
    places, threads, segments = scene.evidence.places, scene.evidence.threads, scene.segments
    ran = (segments.state[rows] == State.RUN) | scene.unrecorded[rows]  # a sample met it on a CPU
    rows = rows[ran & (segments.thread[rows] >= 0)]
    if not len(places) or not len(rows):
        return rows[:0], rows[:0]
    key = scene.evidence.key(segments.thread[rows], segments.begin[rows])
    order = np.argsort(key, kind="stable")
    rows, key = rows[order], key[order]
    thread = np.searchsorted(threads.tid, places["tid"])
    known = (thread < len(threads.tid)) & (
        threads.tid[np.minimum(thread, len(threads.tid) - 1)] == places["tid"]
    )
    met = np.flatnonzero(known)
    thread, time = thread[known], places["time"][known]
    segment = np.searchsorted(key, scene.evidence.key(thread, time), side="right") - 1
    within = segment >= 0
    segment = rows[np.maximum(segment, 0)]
    within &= (
        (segments.thread[segment] == thread)
        & (segments.end[segment] > time)
        & (segments.begin[segment] <= time)
    )
    return segment[within], met[within]


def done_once(scene: Scene, rows: Ints) -> str:
    """What these segments' threads mostly did of what is done once (``imports modules``); or ""."""
    stacks = scene.evidence.facts.stacks
    times: dict[str, int] = {}
    for stack, count in sampled(scene, rows):
        words = first_use(frozenset(frame.file for frame in stacks.frames(stack)))
        times[words] = times.get(words, 0) + count
    return max(times, key=lambda words: (times[words], words), default="")


def longest(evidence: Evidence, stacks: Column, ns: Ints) -> Line | None:
    """The line where at least half of this time lies; None when none is known for so much."""
    shares = line_shares(evidence, stacks, ns)
    return shares[0][0] if shares and shares[0][1] >= _MOST else None


def line_shares(evidence: Evidence, stacks: Column, ns: Ints) -> list[tuple[Line, float]]:
    """The lines where this time lies, most first, with their parts of it; what is at none is in no part."""
    if not stacks.any():  # of ten million calls without lines none has to be sorted
        return []
    times: dict[Line, int] = {}
    numbers, which = np.unique(stacks, return_inverse=True)
    sums = np.bincount(which.reshape(-1), weights=ns)
    for stack, spent in zip(numbers.tolist(), sums.tolist(), strict=True):
        line = evidence.facts.stacks.line(stack)
        if line is not None:
            times[line] = times.get(line, 0) + int(spent)
    total = max(int(ns.sum()), 1)
    return [
        (line, times[line] / total) for line in sorted(times, key=lambda one: (times[one], one), reverse=True)
    ]


def waiting_line(scene: Scene, rows: Ints, threads: Ints | int) -> Line | None:
    """The line where threads were blocked for most of the time of these segments; none within libraries only.

    Args:
        scene: Everything.
        rows: Segments on such a thread, or at the end of a chain that goes through one.
        threads: The thread, or that of each segment.
    """
    segments, links = scene.segments, scene.links
    own = (segments.thread[rows] == threads) & (segments.state[rows] == State.BLOCKED)
    item = np.where(own, segments.slice[rows], -1)
    link = segments.link[rows]
    for _ in range(DEPTH if len(links.slice) else 0):
        here = np.maximum(link, 0)
        item = np.where((link >= 0) & (links.thread[here] == threads), links.slice[here], item)
        link = np.where(link >= 0, links.above[here], -1)
    known = item >= 0
    line = longest(scene.evidence, scene.evidence.slices["stack"][item[known]], scene.ns[rows[known]])
    return None if line is None or is_library(line.file) else line

"""In which code a thread was within gaps: by the stacks of samples, of its sleeps, of the calls around."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gputop.explain.chains.chain import DEPTH, State
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.evidence import Column
from gputop.explain.evidence.ranges import Ints, Mask

Files = frozenset[str]
_MOST = 0.5  # of what was seen in a gap lies in such code


def stacks_within(scene: Scene, stacks: Column, within: Callable[[Files], bool]) -> Ints:
    """The numbers of these stacks that go through such files."""
    frames = scene.evidence.facts.stacks.frames
    numbers = np.unique(stacks)
    found = [
        number
        for number in numbers.tolist()
        if number and within(frozenset(frame.file for frame in frames(number)))
    ]
    return np.array(found, numbers.dtype)


def calls_within(scene: Scene, rows: Ints, within: Callable[[Files], bool]) -> Mask:
    """Which of these rows of ``calls`` were made in such code; -1 is no call."""
    if not len(rows) or not len(scene.evidence.calls):
        return np.zeros(len(rows), np.bool_)
    of_each = scene.evidence.calls["stack"][np.maximum(rows, 0)]
    found: Mask = (rows >= 0) & np.isin(of_each, stacks_within(scene, of_each, within))
    return found


def gaps_in_code(scene: Scene, within: Callable[[Files], bool]) -> Mask:
    """Gaps whose submitting thread was in such code for most of what was seen of it there.

    Seen is where samples met it on a CPU, and where it slept (for as many samples as there would have been).
    """
    gaps, places, evidence = scene.gaps, scene.evidence.places, scene.evidence
    hits, met = np.zeros(len(gaps)), np.zeros(len(gaps))
    thread = evidence.threads.row(places["tid"]) if len(places) else np.zeros(0, np.int64)
    if len(gaps) and len(thread):
        order = np.argsort(evidence.key(gaps.thread, gaps.begin), kind="stable")
        keys = evidence.key(gaps.thread, gaps.begin)[order]
        place = np.searchsorted(keys, evidence.key(thread, places["time"]), side="right") - 1
        gap = order[np.maximum(place, 0)]
        inside = (place >= 0) & (gaps.thread[gap] == thread) & (gaps.end[gap] > places["time"])
        np.add.at(met, gap[inside], 1)
        chosen = inside & np.isin(places["stack"], stacks_within(scene, places["stack"][inside], within))
        np.add.at(hits, gap[chosen], 1)
    slept_in, slept = _sleeps(scene, within)
    found: Mask = (hits + slept_in > 0) & (hits + slept_in >= _MOST * (met + slept))
    return found


_SAMPLE_NS = 1_000_000_000 / 49  # between two samples of a CPU


def _sleeps(scene: Scene, within: Callable[[Files], bool]) -> tuple[Column, Column]:
    """Of each gap: the sleeps of its thread in such code, and all of them, in samples."""
    segments, slices = scene.segments, scene.evidence.slices
    size = len(scene.gaps)
    item = np.where(scene.own & (segments.state == State.BLOCKED), segments.slice, -1)
    links = scene.links
    first = segments.link
    if len(links.slice):
        for _ in range(DEPTH):
            above = links.above[np.maximum(first, 0)]
            first = np.where((first >= 0) & (above >= 0), above, first)
        item = np.where(first >= 0, links.slice[np.maximum(first, 0)], item)
    rows = np.flatnonzero(item >= 0)
    if not len(rows):
        return np.zeros(size), np.zeros(size)
    stack = slices["stack"][item[rows]]
    known = stack != 0
    chosen = np.isin(stack, stacks_within(scene, stack, within))
    weight = scene.ns[rows] / _SAMPLE_NS
    gap = segments.gap[rows]
    return (
        np.bincount(gap, weights=weight * chosen, minlength=size),
        np.bincount(gap, weights=weight * known, minlength=size),
    )

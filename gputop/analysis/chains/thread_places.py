"""Lines and functions of threads within gaps, on the CPU or off it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from gputop.analysis.chains import named_ranges
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.chains.call_forms import first_use
from gputop.analysis.chains.chain import DEPTH, State
from gputop.analysis.evidence.api_classes import Group
from gputop.analysis.evidence.blocking import Wait
from gputop.analysis.evidence.call_context import Files, stacks_within, sums_by_line
from gputop.analysis.evidence.columns import Ints, Mask, union
from gputop.analysis.evidence.evidence import Column, Evidence
from gputop.engine.calls.stack_table import Line
from gputop.format import format_percent
from probes.activities import python_place
from probes.code.source_files import is_library

_MOST = 0.5  # least share of the time at a line that stands for all of it
_FEW = 2  # samples; one is chance


@dataclass(frozen=True, slots=True)
class Hot:
    """The function with most samples of a thread, and its line with most samples."""

    line: Line  # the line
    samples: int  # samples in that function
    of: int  # all samples at known lines

    def text(self) -> str:
        """Return it as shown in a link of a chain."""
        return f"{self.line.text()} ({self.samples} of {self.of} samples)"


def hot_line(scene: AttributionContext, rows: Ints) -> Hot | None:
    """Return the line with most samples of some segments' threads; None without enough samples."""
    met = sampled(scene, rows)
    return hottest(scene, [stack for stack, _count in met], [count for _stack, count in met])


def hottest(scene: AttributionContext, stacks: Iterable[int], counts: Iterable[int]) -> Hot | None:
    """Return the line with most samples of some stacks, by their counts."""
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
    # a deep stack may be cut off before the program's own frames: other samples show more
    function = max(functions, key=lambda one: (not is_library(one[0]), functions[one], one))
    if functions[function] < _FEW:
        return None
    line = max(
        (one for one in samples if (one.file, one.function) == function), key=lambda one: (samples[one], one)
    )
    return Hot(line, functions[function], sum(samples.values()))


def end_line(scene: AttributionContext, rows: Ints) -> Line | None:
    """Return the line of the threads at the end of some segments' chains: running, or else blocked."""
    segments = scene.segments
    asleep = segments.state[rows] == State.BLOCKED
    if 2 * int(scene.ns[rows][asleep].sum()) > int(scene.ns[rows].sum()):
        return waiting_line(scene, rows[asleep], segments.thread[rows[asleep]])
    hot = hot_line(scene, rows)
    if hot is None or is_library(hot.line.file):
        other = _at_other_times(scene, rows)
        hot = other if hot is None or (other is not None and not is_library(other.line.file)) else hot
    return hot.line if hot is not None else None


def _at_other_times(scene: AttributionContext, rows: Ints) -> Hot | None:
    """The line with most samples of the thread with most time, over the whole recording."""
    threads, places = scene.segments.thread[rows], scene.evidence.places
    known = (threads >= 0) & ~scene.own[rows]
    if not known.any():
        return None
    most = int(np.argmax(np.bincount(threads[known], weights=scene.ns[rows][known])))
    met = places["stack"][places["tid"] == scene.evidence.threads.tid[most]]
    stacks, counts = np.unique(met, return_counts=True)
    return hottest(scene, stacks.tolist(), counts.tolist())


def sampled(scene: AttributionContext, rows: Ints) -> list[tuple[int, int]]:
    """Return (stack, number of samples) of some segments' threads while they ran."""
    _segments, met = samples_in(scene, rows)
    numbers, counts = np.unique(scene.evidence.places["stack"][met], return_counts=True)
    return list(zip(numbers.tolist(), counts.tolist(), strict=True))


def samples_in(scene: AttributionContext, rows: Ints) -> tuple[Ints, Ints]:
    """Return (segment, row of ``evidence.places``) of the samples of some segments' threads on a CPU."""
    places, threads, segments = scene.evidence.places, scene.evidence.threads, scene.segments
    ran = (segments.state[rows] == State.RUN) | scene.unrecorded[rows]  # samples are taken on a CPU
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


def done_once(scene: AttributionContext, rows: Ints) -> str:
    """Return the start-up work in most samples of some segments (``imports modules``); or ""."""
    stacks = scene.evidence.facts.stacks
    times: dict[str, int] = {}
    for stack, count in sampled(scene, rows):
        words = first_use(frozenset(frame.file for frame in stacks.frames(stack)))
        times[words] = times.get(words, 0) + count
    return max(times, key=lambda words: (times[words], words), default="")


def longest(evidence: Evidence, stacks: Column, ns: Ints) -> Line | None:
    """Return the line with at least half of the time; None without one."""
    shares = line_shares(evidence, stacks, ns)
    return shares[0][0] if shares and shares[0][1] >= _MOST else None


def line_shares(evidence: Evidence, stacks: Column, ns: Ints) -> list[tuple[Line, float]]:
    """Return the lines with their shares of the time, largest first; time at unknown lines is in no share."""
    times = sums_by_line(evidence, stacks, ns)
    total = max(int(ns.sum()), 1)
    return [
        (line, times[line] / total) for line in sorted(times, key=lambda one: (times[one], one), reverse=True)
    ]


def waiting_line(scene: AttributionContext, rows: Ints, threads: Ints | int) -> Line | None:
    """Return the line where threads were blocked for most of some segments; None within libraries only.

    Args:
        scene: The analysis.
        rows: Segments on such a thread, or at the end of a chain through one.
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


# Code of threads within gaps: by the stacks of samples, of sleeps, of the calls around.


def calls_within(scene: AttributionContext, rows: Ints, within: Callable[[Files], bool]) -> Mask:
    """Return True for rows of ``calls`` made in such code; -1 is no call."""
    if not len(rows) or not len(scene.evidence.calls):
        return np.zeros(len(rows), np.bool_)
    of_each = scene.evidence.calls["stack"][np.maximum(rows, 0)]
    found: Mask = (rows >= 0) & np.isin(of_each, stacks_within(scene.evidence, of_each, within))
    return found


def gaps_in_code(scene: AttributionContext, within: Callable[[Files], bool]) -> Mask:
    """Return True for gaps whose submitter was in such code for most of its samples and sleeps there.

    A sleep counts as many samples as its time would have had.
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
        chosen = inside & np.isin(places["stack"], stacks_within(evidence, places["stack"][inside], within))
        np.add.at(hits, gap[chosen], 1)
    slept_in, slept = _sleeps(scene, within)
    found: Mask = (hits + slept_in > 0) & (hits + slept_in >= _MOST * (met + slept))
    return found


_SAMPLE_NS = 1_000_000_000 / 49  # between two samples of a CPU


def _sleeps(scene: AttributionContext, within: Callable[[Files], bool]) -> tuple[Column, Column]:
    """(sleeps of each gap's thread in such code, all of them), in samples."""
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
    chosen = np.isin(stack, stacks_within(scene.evidence, stack, within))
    weight = scene.ns[rows] / _SAMPLE_NS
    gap = segments.gap[rows]
    return (
        np.bincount(gap, weights=weight * chosen, minlength=size),
        np.bincount(gap, weights=weight * known, minlength=size),
    )


# Reads and writes of files: the CPU time in their system calls beside the time blocked in them.

LEAST_WAIT = 0.2  # of a gap without samples, in waits for the disk: its CPU time is of the same loop


def file_samples(scene: AttributionContext, rows: Ints) -> tuple[Ints, Ints, Mask]:
    """Return (segment, row of ``evidence.places``, True in a system call on a file) of each sample."""
    segment, met = samples_in(scene, rows)
    names = scene.evidence.files
    files = np.array([name.startswith("file:") for name in names], np.bool_)
    within: Mask = files[scene.evidence.places["file"][met]] if len(met) else np.zeros(0, np.bool_)
    return segment, met, within


def file_work(scene: AttributionContext) -> Mask:
    """Return True for the submitter on a CPU in gaps with most samples in system calls on files.

    Also in gaps without a sample and ``LEAST_WAIT`` for the disk, if most such gaps with samples qualify.
    """
    runs = scene.own & scene.does(State.RUN) & scene.inside(Group.OTHER)
    waits = scene.own & scene.waits(Wait.DISK, Wait.READ)
    if not runs.any() or (not waits.any() and not len(scene.evidence.places)):
        return scene.mask()
    segment, _met, within = file_samples(scene, np.flatnonzero(runs))
    gap, size = scene.segments.gap, len(scene.gaps)
    inside = np.bincount(gap[segment[within]], minlength=size)
    outside = np.bincount(gap[segment[~within]], minlength=size)
    long = scene.gap_ns(waits) >= LEAST_WAIT * (scene.gaps.end - scene.gaps.begin)
    chosen = inside > outside
    if inside[long].sum() > outside[long].sum():
        chosen |= (outside == 0) & long
    found: Mask = runs & chosen[gap]
    return found


# Places of threads by the operators and functions of an imported file.

_PART, _NAMED, _LONGEST = 0.1, 4, 80
_LINE, _TRACED_WORDS_MOST = 0.2, 0.5  # least share of a function or an operator that stands for all
_TAIL = re.compile(r",? (op_id|seq) = \d+.*$")


def shown(name: str) -> str:
    """Return a name without the numbers of PyTorch's NVTX ranges."""
    return _TAIL.sub("", name).strip()[:_LONGEST]


def places(scene: AttributionContext, rows: Ints) -> dict[str, int]:
    """Return the ns of some segments by innermost operator or range."""
    return _times(scene, rows, python=False)


def in_words(scene: AttributionContext, rows: Ints) -> str:
    """Return ``in aten::item 62 %, autograd 12 %``; "" without a known operator."""
    whole = max(int(scene.ns[rows].sum()), 1)
    found = sorted(places(scene, rows).items(), key=lambda one: -one[1])[:_NAMED]
    parts = [f"{name} {format_percent(100 * ns / whole)} %" for name, ns in found if ns >= _PART * whole]
    return f"in {', '.join(parts)}" if parts else ""


def range_times(scene: AttributionContext, rows: Ints) -> dict[str, int]:
    """Return the ns of some segments by path of named ranges."""
    found: dict[str, int] = {}
    segments, threads = scene.segments, scene.evidence.threads
    if not scene.ranges.any:
        return found
    for thread in np.unique(segments.thread[rows][segments.thread[rows] >= 0]).tolist():
        mine = rows[segments.thread[rows] == thread]
        known = scene.ranges.of(int(threads.pid[thread]), int(threads.tid[thread]))
        for path, ns in known.times(*union(segments.begin[mine], segments.end[mine])).items():
            found[path] = found.get(path, 0) + ns
    return named_ranges.numbers_apart(found)


def range_words(scene: AttributionContext, rows: Ints) -> str:
    """Return ``in range `forward/attention` 62 %``; "" without a range."""
    return named_ranges.in_words(range_times(scene, rows), int(scene.ns[rows].sum()))


def main_range(scene: AttributionContext, rows: Ints) -> str:
    """Return `` in range `forward/attention` `` if most of the time lies in it; else ""."""
    times = range_times(scene, rows)
    path = max(times, key=lambda one: (times[one], one), default="")
    return f" in range `{path}`" if path and times[path] > _MOST * int(scene.ns[rows].sum()) else ""


def own_line(scene: AttributionContext, rows: Ints) -> tuple[Line, float] | None:
    """Return (the program's own function with most of the time, its share)."""
    whole = max(int(scene.ns[rows].sum()), 1)
    found = _times(scene, rows, python=True)
    name = max(found, key=lambda one: (found[one], one), default="")
    place = python_place(name)
    return (Line(*place), found[name] / whole) if place is not None else None


def line_in(scene: AttributionContext, rows: Ints) -> Line | None:
    """Return the program's own function with most of the time, else the operator or range, or None."""
    own = own_line(scene, rows)
    if own is not None and own[1] >= _LINE:
        return own[0]
    if (met := hot_line(scene, rows)) is not None and not is_library(met.line.file):
        return met.line
    whole, found = max(int(scene.ns[rows].sum()), 1), places(scene, rows)
    name = max(found, key=lambda one: (found[one], one), default="")
    if not name or found[name] < _TRACED_WORDS_MOST * whole:
        return None
    return Line("NVTX" if scene.evidence.header.get("source") == "nsys" else "torch", 0, name)


def _times(scene: AttributionContext, rows: Ints, *, python: bool) -> dict[str, int]:
    traced, texts = scene.analysis.traced, scene.evidence.activities.texts
    found: dict[str, int] = {}
    if traced is None:
        return found
    segments = scene.segments
    for thread in np.unique(segments.thread[rows]).tolist():
        mine = rows[segments.thread[rows] == thread]
        tid = int(scene.evidence.threads.tid[thread])
        begin, end = union(segments.begin[mine], segments.end[mine])
        flat = (
            traced.nesting.functions(tid, begin, end, _own_functions(texts))
            if python
            else traced.nesting.named(tid, begin, end)
        )
        for name, ns in flat.times(begin, end).items():
            text = texts[name] if python else shown(texts[name])
            found[text] = found.get(text, 0) + ns
    return found


def _own_functions(texts: tuple[str, ...]) -> Ints:
    """Functions of Python that are the program's."""
    places = ((number, python_place(text)) for number, text in enumerate(texts) if ".py(" in text)
    return np.array([number for number, place in places if place and not is_library(place[0])], np.int64)

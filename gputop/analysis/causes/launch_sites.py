"""Kernels that calls launch, the form of calls, and the submitting thread's own work between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from gputop.analysis.causes.cause import CauseMatch
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.chains.call_forms import Form, Pattern, advice_of, title_of
from gputop.analysis.chains.chain import State
from gputop.analysis.chains.thread_places import samples_in
from gputop.analysis.evidence.api_classes import Group, Role
from gputop.analysis.evidence.blocking import Wait
from gputop.analysis.evidence.call_context import line_numbers, stacks_where, sums_by_line, text_of
from gputop.analysis.evidence.columns import Ints, Mask, among, distinct, group_ids
from gputop.analysis.evidence.evidence import Column, Evidence
from gputop.engine.calls.frameworks import Framework, frameworks_of_file
from gputop.engine.calls.launch_counts import folded, launching, shape_text
from gputop.engine.calls.stack_table import Line
from gputop.format import format_bytes, format_percent
from probes.shapes import Shape
from probes.stacks.stack_samples import kernel_number

_NAMED = 3  # kernels that a sentence names
FUSIBLE, SMALL = 0.25, 0.5  # of the launches: from such a share on they are named
# aten/src/ATen/native/cuda: Loops.cuh, MultiTensorApply.cuh; torch/_inductor names its pointwise kernels so
_ELEMENTWISE = ("elementwise_kernel", "multi_tensor_apply_kernel", "triton_poi_")


def launches_among(evidence: Evidence, rows: Ints) -> Ints:
    """Return the calls that succeeded in launching a kernel by its handle."""
    calls = evidence.calls
    wanted = launching(evidence.apis.names).take(calls["op"][rows], mode="clip")
    wanted &= (calls["ret"][rows] == 0) & ~calls["abandoned"][rows]
    return rows[wanted]


def kernel_name(evidence: Evidence, pid: int, handle: int) -> tuple[str, str]:
    """Return (name, file) of a kernel; both "" where they are not known."""
    frame = next(iter(evidence.facts.stacks.frames(kernel_number(pid, handle))), None)
    return (frame.function, frame.file) if frame is not None else ("", "")


def by_handle(evidence: Evidence, rows: Ints) -> list[tuple[int, Ints]]:
    """Return (handle, its launches) of at least one launch of one process."""
    handles, which = np.unique(evidence.calls["aux"][rows], return_inverse=True)
    order = np.argsort(which.reshape(-1), kind="stable")
    ends = np.cumsum(np.bincount(which.reshape(-1)))
    return list(zip(handles.tolist(), np.split(rows[order], ends[:-1]), strict=True))


def by_shape(evidence: Evidence, rows: Ints) -> dict[Shape, int]:
    """Return the number of launches of each shape; those whose shape is not known are left out."""
    found: dict[Shape, int] = {}
    numbers, counts = np.unique(evidence.calls["shape"][rows], return_counts=True)
    for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
        shape = evidence.facts.shapes.get(number)
        if shape is not None:
            found[shape] = found.get(shape, 0) + count
    return found


@dataclass(frozen=True, slots=True)
class Named:
    """Launches of kernels of one folded name, and the line that makes most of these."""

    name: str
    rows: Ints
    line: Line | None

    def text(self, among: int) -> str:
        """Return the name, its share of so many launches, and the line."""
        at = f" at {self.line.text()}" if self.line is not None else ""
        return f"{self.name} {format_percent(100 * len(self.rows) / among)} %{at}"


def named(scene: AttributionContext, rows: Ints) -> tuple[list[Named], int]:
    """Return (kernels that some calls launch, most launches first; number of launches among the calls)."""
    evidence, calls = scene.evidence, scene.evidence.calls
    if not evidence.facts.stacks.names_kernels:
        return [], 0
    rows = launches_among(evidence, distinct(rows[rows >= 0]))
    found: dict[str, list[Ints]] = {}
    for pid in np.unique(calls["pid"][rows]).tolist():
        for handle, mine in by_handle(evidence, rows[calls["pid"][rows] == pid]):
            found.setdefault(folded(kernel_name(evidence, pid, handle)[0]), []).append(mine)
    made = []
    for name, parts in found.items():
        own = np.concatenate(parts)
        lines = sums_by_line(evidence, calls["stack"][own])
        made.append(Named(name, own, max(lines, key=lambda one: (lines[one], one), default=None)))
    made = [one for one in made if one.name]
    return sorted(made, key=lambda one: (-len(one.rows), one.name)), len(rows)


def launched_most(scene: AttributionContext, rows: Ints, what: str) -> tuple[str, ...]:
    """Return a sentence on the kernels that these calls launch most often; none where no name is known.

    Args:
        scene: Everything.
        rows: Calls; -1 is none.
        what: The sentence's begin, before the names.
    """
    return _sentence(what, *named(scene, rows))


def elementwise_among(scene: AttributionContext, rows: Ints, what: str) -> tuple[str, ...]:
    """Return the same of kernels that work on each element by itself, where they are many of the launches."""
    kernels, launches = named(scene, rows)
    kernels = [one for one in kernels if is_elementwise(one.name)]
    if sum(len(one.rows) for one in kernels) < FUSIBLE * launches:
        return ()
    return _sentence(what, kernels, launches)


def small_among(scene: AttributionContext, rows: Ints, fill: int | None) -> tuple[str, ...]:
    """Return the same of launches with fewer threads than fill the GPU, where most are, with their shape."""
    kernels, launches = named(scene, rows)
    if not fill or not launches:
        return ()
    counted: list[tuple[int, str]] = []
    for one in kernels:
        shapes = {shape: n for shape, n in by_shape(scene.evidence, one.rows).items() if shape.threads < fill}
        if shapes:
            usual = max(shapes, key=lambda shape: (shapes[shape], shape))
            at = f" at {one.line.text()}" if one.line is not None else ""
            counted.append((sum(shapes.values()), f"{one.name} {shape_text(usual)}{at}"))
    small = sum(count for count, _text in counted)
    if small < SMALL * launches:
        return ()
    counted.sort(key=lambda one: (-one[0], one[1]))
    share = format_percent(100 * small / launches)
    names = ", ".join(text for _count, text in counted[:_NAMED])
    return (f"{share} % of launches have too few threads to fill the GPU by themselves: {names}",)


def is_elementwise(name: str) -> bool:
    """Return True for kernels of PyTorch or its compiler that work on each element by itself, by name."""
    return any(part in name for part in _ELEMENTWISE)


def _sentence(what: str, kernels: Sequence[Named], launches: int) -> tuple[str, ...]:
    texts = [one.text(launches) for one in kernels[:_NAMED]]
    return (f"{what}: {', '.join(texts)}",) if texts else ()


# The pattern of the calls of a match, by which title and advice are worded.

MOST_PARTS = 8  # a step: more copies to the device are no batch


def title_for(claim: CauseMatch, form: Form, pattern: Pattern) -> str:
    """Return the title of a match."""
    return title_of(form, pattern.often, torch=claim.torch)


def advice_for(claim: CauseMatch, form: Form, pattern: Pattern) -> tuple[str, ...]:
    """Return what to change, with size and frequency."""
    size, times = format_bytes(max(pattern.size, 0)), claim.per_step(pattern.count)
    return advice_of(form, size=size, times=times, torch=claim.torch)


def pattern_of(
    claim: CauseMatch, rows: Ints, copies: Ints, every: Ints | None = None, *, to_host: bool = False
) -> Pattern:
    """Return the pattern of the line that costs most.

    Args:
        claim: The match.
        rows: The program's call of each of its gaps, -1 for none.
        copies: The copy of that call, -1 for none.
        every: The calls of all gaps; those alike count, whichever cause has their gaps. None: ``rows`` only.
        to_host: The copies' direction.
    """
    scene, evidence, gaps = claim.scene, claim.scene.evidence, claim.scene.gaps
    calls = evidence.calls
    cost = scene.gap_ns(claim.segments)[claim.gaps]
    following = gaps.refilled_by[claim.gaps]
    both = np.maximum(np.append(rows, following), 0)
    lines = line_numbers(evidence, calls["stack"][both])
    lines[np.append(rows, following) < 0] = -1
    mine, after = lines[: len(rows)], lines[len(rows) :]
    chosen = np.ones(len(rows), np.bool_)
    if (mine >= 0).any():
        chosen = mine == np.argmax(np.bincount(mine[mine >= 0], weights=cost[mine >= 0]))
    copied = copies[chosen & (copies >= 0)]
    known = rows[chosen & (rows >= 0)]
    files, text = _source(evidence, known, cost[chosen & (rows >= 0)])
    called = _alike(claim, np.unique(rows[rows >= 0]), every)
    usual_op = np.argmax(np.bincount(calls["op"][known])) if len(known) else -1
    return Pattern(
        size=int(np.median(calls["bytes"][copied])) if len(copied) else -1,
        to_host=to_host,
        role=Role(int(evidence.apis.role.take(usual_op, mode="clip"))) if usual_op >= 0 else Role.OTHER,
        files=files,
        text=text,
        same_line=bool((mine[chosen] >= 0).any() and 2 * (mine == after)[chosen].mean() > 1),
        count=len(called) or len(claim.gaps),
        often=claim.often(called) if len(called) else claim.times,
    )


def _alike(claim: CauseMatch, rows: Ints, every: Ints | None) -> Ints:
    """Return the calls of the process with the function, stack and size of one of ``rows``."""
    calls = claim.scene.evidence.calls
    if every is None or not len(rows):
        return rows
    others = np.unique(every[every >= 0])
    others = others[calls["pid"][others] == claim.pid]
    both = np.append(rows, others)
    keys = np.stack([calls[name][both].astype(np.int64) for name in ("op", "stack", "bytes")])
    kinds = np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1)
    alike: Ints = others[np.isin(kinds[len(rows) :], kinds[: len(rows)])]
    return alike


def _source(evidence: Evidence, rows: Ints, cost: Ints) -> tuple[frozenset[str], str]:
    """Return (the files of the stack that costs most, the text of its line)."""
    if not len(rows):
        return frozenset(), ""
    stacks, which = np.unique(evidence.calls["stack"][rows], return_inverse=True)
    stack = int(stacks[np.argmax(np.bincount(which.reshape(-1), weights=cost))])
    line = evidence.facts.stacks.line(stack)
    files = frozenset(frame.file for frame in evidence.facts.stacks.frames(stack) if not frame.is_native)
    return files, text_of(evidence, line) if line is not None else ""


# The submitting thread's own work: between its calls, or inside one of them.

_QUIET = (Group.OTHER, Group.SYNC, Group.QUERY, Group.EVENT, Group.COPY, Group.DEVICE, Group.STREAM)
_GIVING = (Group.LAUNCH, Group.SET, Group.GRAPH)
LONG_NS = 1_000_000  # no call takes Python so long: between two launches the program does other work


def own_work(scene: AttributionContext) -> Mask:
    """Return the submitting thread's own work: on a CPU or asleep, but not in an allocating call.

    Data from a pipe or a terminal are the work of others.
    """
    quiet = scene.inside(*_QUIET) | (scene.estimated & scene.in_refill & scene.inside(*_GIVING))
    return scene.own & scene.does(State.RUN, State.BLOCKED) & quiet & ~scene.waits(Wait.DATA)


def not_waited(scene: AttributionContext) -> Mask:
    """Return the gaps that no wait opened.

    They follow a query that succeeded at once, or a launch: these are proved only where it is known when
    kernels ran.
    """
    drained_by = scene.gaps.drained_by
    calls, row = scene.evidence.calls, np.maximum(drained_by, 0)
    if not len(calls):
        return np.ones(len(drained_by), np.bool_)
    before = np.maximum(row - 1, 0)
    query = scene.evidence.group_of(row) == Group.QUERY
    polled = (scene.evidence.group_of(before) == Group.QUERY) & (calls["ret"][before] != 0)
    polled &= (calls["row"][before] == calls["row"][row]) & (row > 0)
    free: Mask = (drained_by < 0) | (query & ~polled) | after_launch(scene)
    return free


def after_launch(scene: AttributionContext) -> Mask:
    """Return the proved gaps after a launch: the GPU was done before more was launched, without a wait."""
    gaps = scene.gaps
    if not len(scene.evidence.calls):
        return np.zeros(len(gaps), np.bool_)
    groups = scene.evidence.group_of(np.maximum(gaps.drained_by, 0))
    return ~gaps.estimated & (gaps.drained_by >= 0) & among(groups, _GIVING)


def long_work(scene: AttributionContext) -> Mask:
    """Return the gaps in which the submitting thread works for long between its calls."""
    works = own_work(scene) & scene.inside(Group.OTHER) & ~scene.unrecorded
    return scene.gap_ns(works) >= LONG_NS


def in_own_call(scene: AttributionContext, *groups: Group) -> Mask:
    """Return the submitter's time inside its own calls of these groups, waits included."""
    works = scene.does(State.RUN, State.BLOCKED, State.OUTSIDE, State.UNKNOWN)
    return works & scene.inside(*groups) & ~(scene.estimated & scene.in_refill)


# Whether the submitting thread launches in a gap or does other work: by its samples and its pace.

FAR = 10  # times as long as from one launch of the thread to the next: no gap between launches
FASTEST_NS = 5000  # from one launch to the next, from Python: native code is quicker
LEAST_PAIRS = 20  # of launches, for a thread to have a pace
LEAST_SAMPLES = 3  # fewer may have met anything
MOSTLY = 0.5  # of the samples
_CUDA: Final = re.compile(r"/lib(?:cuda|nccl|cublas|cudnn|cupti|cufft|cusparse|cusolver)[^/]*\.so")


@dataclass(frozen=True, slots=True)
class OwnCode:
    """A row for each gap."""

    own: Mask  # True if the submitting thread's work there is no launching
    works_ns: Ints  # the thread's work there between its calls
    pace_ns: Ints  # the thread's usual time from one launch to the next; 0: not known
    met: Ints  # samples at that place, in all gaps that end there
    met_own: Ints  # those of them in no framework's code


def own_code(scene: AttributionContext) -> OwnCode:
    """Return the submitting thread's work in each gap between its calls.

    Launching takes about as long from launch to launch, and most of that is in a framework's code, wherever
    the program calls it. A gap that is much longer, and in which samples meet the thread in code of the
    program or in a library that launches nothing, is other work, however short.
    """
    return scene.once("own code", lambda: _find(scene))


def own_short(scene: AttributionContext, begin: Ints, end: Ints, refilled_by: Ints, thread: Ints) -> Mask:
    """Return the short gaps that are too long for a launch, as followed gaps that end at the same line.

    Args:
        scene: Everything.
        begin, end: The gaps.
        refilled_by: The call that ends each; -1 for none.
        thread: The thread of that call.
    """
    found, gaps, calls = own_code(scene), scene.gaps, scene.evidence.calls
    own = np.flatnonzero(found.own & (gaps.refilled_by >= 0))
    if not len(own) or not len(begin):
        return np.zeros(len(begin), np.bool_)
    rows = np.append(gaps.refilled_by[own], np.maximum(refilled_by, 0))
    line = line_numbers(scene.evidence, calls["stack"][rows])
    site = np.append(gaps.thread[own], thread).astype(np.int64) << 32 | (line + 1)
    far = np.maximum(FAR * _pace(scene.evidence)[thread], FASTEST_NS)
    alike: Mask = np.isin(site[len(own) :], site[: len(own)])
    return alike & (refilled_by >= 0) & (end - begin >= far)


def _find(scene: AttributionContext) -> OwnCode:
    gaps, evidence = scene.gaps, scene.evidence
    works = own_work(scene) & scene.inside(Group.OTHER) & ~scene.unrecorded
    works_ns = scene.gap_ns(works)
    pace = _pace(evidence)[gaps.thread] if len(gaps) else works_ns
    far = works_ns >= FAR * pace
    site = _sites(scene, far)
    segment, met = samples_in(scene, np.flatnonzero(works))
    where = site[scene.segments.gap[segment]]
    own = _in_no_framework(evidence, evidence.places["stack"][met]) if len(met) else np.zeros(0, np.bool_)
    seen = np.bincount(where, minlength=len(gaps))[site]
    seen_own = np.bincount(where[own], minlength=len(gaps))[site]
    found = far & (seen >= LEAST_SAMPLES) & (seen_own > MOSTLY * seen)
    return OwnCode(found, works_ns, pace, seen, seen_own)


def _sites(scene: AttributionContext, far: Mask) -> Ints:
    """Return a number for each gap, the same where a thread ends it at the same line, far too late or not."""
    gaps, calls = scene.gaps, scene.evidence.calls
    if not len(gaps) or not len(calls):
        return np.zeros(len(gaps), np.int64)
    line = line_numbers(scene.evidence, calls["stack"][np.maximum(gaps.refilled_by, 0)])
    line = np.where(gaps.refilled_by >= 0, line, -1)
    return group_ids(gaps.thread, line + 1, far)


def _pace(evidence: Evidence) -> Ints:
    """Return each thread's usual time from one launch to the next, ns; 0 of those that launch seldom."""
    calls = evidence.calls
    pace = np.zeros(len(evidence.threads.tid), np.int64)
    launches = evidence.group(calls) == Group.LAUNCH
    both = np.flatnonzero(launches[1:] & launches[:-1] & (calls["row"][1:] == calls["row"][:-1]))
    between = np.maximum(calls["begin"][both + 1] - calls["end"][both], 0)
    bounds = np.searchsorted(calls["row"][both], np.arange(len(pace) + 1)).tolist()  # calls are by thread
    for thread, (low, high) in enumerate(pairwise(bounds)):
        if high - low >= LEAST_PAIRS:
            pace[thread] = max(int(np.median(between[low:high])), FASTEST_NS)
    return pace


def _in_no_framework(evidence: Evidence, stacks: Column) -> Mask:
    """Return the samples in code that launches nothing, by the innermost Python, else by native code."""

    def own(stack: int) -> bool:
        frames = [frame for frame in evidence.facts.stacks.frames(stack) if frame.file]
        innermost = next((frame for frame in frames if not frame.is_native), next(iter(frames), None))
        if innermost is None or frameworks_of_file(innermost.file) - {Framework.PYTHON}:
            return False
        return _CUDA.search(innermost.file) is None

    return np.isin(stacks, stacks_where(stacks, own))

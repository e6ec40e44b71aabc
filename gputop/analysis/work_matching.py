"""The work of a step of one recording, in steps of another: handles differ, structure does not.

Compared in this order: inputs of equal size (copies to the device, equally often per step), inputs of other
sizes (a batch of twice the samples, with the same launches), multiples of the same launches, by the kernels'
names and shapes where these are known. A change may remove launches, copies and waits, or move work from the
host to the GPU: where a step launches about as much as before, the steps are equal. Else the ratio is
unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from gputop.analysis.causes.launch_sites import by_handle, kernel_name, launches_among
from gputop.analysis.chains.steps import Steps
from gputop.analysis.evidence.api_classes import Group, Role
from gputop.analysis.evidence.columns import Floats, Ints
from gputop.analysis.evidence.evidence import Column, Evidence
from gputop.analysis.evidence.repetition import FEWEST, EnqueuedWork, WorkSequence
from gputop.documents.fields import HIDDEN, Mark
from gputop.engine.threads.occupancy import expand
from probes.shapes import Shape

ALIKE = 0.05  # sizes and volumes that differ by no more are equal
LAUNCHES_ALIKE = 0.02
_REGULAR = 0.9  # of the steps must contain an operation for it to be compared
_LEAST_BYTES = 64  # smaller copies are numbers, no input
_SAMPLE = 256  # steps
_MOST = 0.5  # of the launches of one must be of kernels that both launch, in one ratio
_AGREE = 0.5  # of the kernels that both launch must be in that ratio
_MOST_LAUNCHES = 0.8  # of kernels without names, equally often in both, for equal work
TENTH = 0.1  # launches of equal work differ by no more
_FAR = 10  # times the usual bytes: a first step, which copies the model to the device
_KERNELS = 3  # kinds of kernels; fewer are no structure
_TIMES = 1.5  # least ratio that launches and bytes show together
_TOGETHER = 0.15
_LAUNCHED = (EnqueuedWork.KERNEL, EnqueuedWork.GRAPH, EnqueuedWork.COLLECTIVE)
_MOST_KERNELS = 256  # of a part whose launches are counted by window


Kernel = tuple[str, Shape | None]  # name and shape


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of about one size: bytes of each, and how many a step."""

    size: float
    count: float

    @property
    def volume(self) -> float:
        """Bytes a step."""
        return self.size * self.count


@dataclass(frozen=True, slots=True)
class Profile:
    """The work of a usual step."""

    launches: float  # kernels, graphs and collectives
    of_loop: float  # the mean over all steps of the loop: more, where some steps are of more work
    inside: float  # kernels in its graphs beyond one each, by the launches during capture
    kernels: Floats  # launches of each kernel, in ascending order
    # launches of each kernel by name and shape, where both are known: comparable across recordings
    named: Mapping[Kernel, float]
    # sends, reads: copies to the device, and large ones to the host, that nearly every step makes
    sends: tuple[Copies, ...]
    reads: tuple[Copies, ...]

    @property
    def sent(self) -> float:
        """Bytes that a step copies to the device."""
        return sum(one.volume for one in self.sends)


@dataclass(frozen=True, slots=True)
class Ratio:
    """Steps of BEFORE in one step of AFTER, and by which figure (``""`` for equal steps).

    ``shown``: something common to both proves it; else nothing contradicts it. ``known``: False where the
    ratio is unknown.
    """

    times: Annotated[float, Mark("ratio")]
    by: Annotated[str, Mark(schema=str | None, make=lambda by: by or None)]
    shown: Annotated[bool, HIDDEN] = True
    known: Annotated[bool, HIDDEN] = True


SAME_STEP, LIKELY_SAME = Ratio(1.0, ""), Ratio(1.0, "", shown=False)
UNKNOWN = Ratio(1.0, "", shown=False, known=False)
BY_BYTES, BY_LAUNCHES = "bytes copied to the device", "kernel launches"


def profile(evidence: Evidence, steps: Steps) -> Profile:
    """Return the work of the usual one of these steps."""
    known = steps.sequence
    chosen = np.unique(np.linspace(0, steps.count - 1, min(steps.count, _SAMPLE)).astype(np.int64))
    row, place = expand(steps.head[chosen], steps.tail[chosen])
    symbol = known.symbol[place]
    used, number = np.unique(symbol, return_inverse=True)
    counts = np.bincount(row * len(used) + number.reshape(-1), minlength=len(chosen) * len(used))
    counts = counts.reshape(len(chosen), len(used))
    work = known.work[used]
    launched = np.isin(work, _LAUNCHED)
    loop = known.symbol[int(steps.head.min()) : int(steps.tail.max())]
    regular = (counts > 0).mean(axis=0) >= _REGULAR
    usual = np.median(counts, axis=0)
    moved = np.bincount(
        row * len(used) + number.reshape(-1),
        weights=evidence.calls["bytes"][known.rows[place]],
        minlength=counts.size,
    ).reshape(counts.shape)

    def copies(kind: EnqueuedWork) -> tuple[Copies, ...]:
        found = (
            _usual(moved[:, one], counts[:, one]) for one in np.flatnonzero(regular & (work == kind)).tolist()
        )
        return tuple(one for one in found if one.size >= _LEAST_BYTES)

    graphs = float(np.median(counts[:, work == EnqueuedWork.GRAPH].sum(axis=1)))
    return Profile(
        float(np.median(counts[:, launched].sum(axis=1))),
        float(np.isin(known.work[loop], _LAUNCHED).sum() / steps.count),
        graphs * (_captured(evidence, int(evidence.threads.pid[steps.thread])) - 1) if graphs else 0.0,
        np.sort(usual[regular & (work == EnqueuedWork.KERNEL)]),
        _named(
            evidence, steps, known.rows[place[work[number.reshape(-1)] == EnqueuedWork.KERNEL]], len(chosen)
        ),
        copies(EnqueuedWork.SEND),
        copies(EnqueuedWork.READ),
    )


def _usual(moved: Column, counts: Column) -> Copies:
    """Copies of one kind by the steps that make them, without steps that move far more."""
    usual = moved <= _FAR * np.median(moved[counts > 0])
    return Copies(float(moved[usual].sum() / max(counts[usual].sum(), 1)), float(counts[usual].mean()))


def _named(evidence: Evidence, steps: Steps, rows: Ints, count: int) -> dict[Kernel, float]:
    """Launches per step of each kernel of these calls, by name and shape."""
    pid, calls = int(evidence.threads.pid[steps.thread]), evidence.calls
    found: dict[Kernel, float] = {}
    if not evidence.facts.stacks.names_kernels:
        return found
    pairs = np.stack([calls["aux"][rows], calls["shape"][rows].astype(np.uint64)])
    (handles, shapes), times = np.unique(pairs, axis=1, return_counts=True)
    for handle, number, launched in zip(handles.tolist(), shapes.tolist(), times.tolist(), strict=True):
        name, shape = kernel_name(evidence, pid, handle)[0], evidence.facts.shapes.get(number)
        if name and shape is not None:
            found[name, shape] = found.get((name, shape), 0.0) + launched / count
    return found


def _captured(evidence: Evidence, pid: int) -> float:
    """Mean number of kernels in a graph of this process: its launches during capture."""
    calls = evidence.calls
    own = np.flatnonzero(calls["pid"] == pid)
    roles, groups = evidence.role(calls)[own], evidence.group(calls)[own]
    begins = np.sort(calls["end"][own[roles == Role.CAPTURE_BEGIN]])
    ends = np.sort(calls["begin"][own[roles == Role.CAPTURE_END]])
    launches = np.sort(calls["begin"][own[groups == Group.LAUNCH]])
    pairs = min(len(begins), len(ends))
    held = np.searchsorted(launches, ends[:pairs]) - np.searchsorted(launches, begins[:pairs])
    return float(np.mean(held[held > 0])) if (held > 0).any() else 1.0


def compare_work(before: Profile, after: Profile) -> Ratio:
    """Return the work of one step of AFTER in steps of BEFORE.

    Usual steps may be alike and the loops not: threads in turns make some steps of the work of two.
    """
    ratio = _of_usual(before, after)
    times = after.of_loop / max(before.of_loop, 1)
    alike = _near(before.launches, after.launches, TENTH)
    if ratio.shown or not ratio.known or not alike or _near(times, 1, TENTH):
        return ratio
    return Ratio(times, BY_LAUNCHES)


def _of_usual(before: Profile, after: Profile) -> Ratio:
    if _shared(before.sends, after.sends):
        return SAME_STEP
    named = _by_names(before, after)  # before the reads: a read of the last result only has any ratio
    if named is not None:
        return named
    launches = after.launches / max(before.launches, 1)
    likely = LIKELY_SAME if _near(launches, 1, TENTH) or _shared(before.reads, after.reads) else UNKNOWN
    if not (before.named and after.named) and _as_often(before.kernels, after.kernels):
        likely = LIKELY_SAME
    if before.sends and after.sends:
        times = after.sent / before.sent
        as_often = _near(
            sum(one.count for one in before.sends), sum(one.count for one in after.sends), LAUNCHES_ALIKE
        )
        if _near(times, 1, ALIKE):
            return SAME_STEP
        if as_often and _near(launches, 1, LAUNCHES_ALIKE):
            return Ratio(times, BY_BYTES)
        if max(times, 1 / times) >= _TIMES and _near(times, launches, _TOGETHER):
            return Ratio(times, BY_BYTES)
        return likely
    if before.inside or after.inside:
        times = (after.launches + after.inside) / max(before.launches + before.inside, 1)
        return Ratio(times, BY_LAUNCHES) if max(times, 1 / times) >= _TIMES else LIKELY_SAME
    return _by_kernels(before.kernels, after.kernels) or likely


def _near(one: float, other: float, part: float) -> bool:
    return abs(one - other) <= part * max(abs(one), abs(other))


def _shared(before: tuple[Copies, ...], after: tuple[Copies, ...]) -> bool:
    return any(
        _near(one.size, other.size, ALIKE) and _near(one.count, other.count, ALIKE)
        for one in before
        for other in after
    )


def _by_kernels(before: Floats, after: Floats) -> Ratio | None:
    """The ratio if each kernel is launched the same whole number of times as often."""
    if len(before) != len(after) or len(before) < _KERNELS:
        return None
    times = after / np.maximum(before, 1)
    usual = float(np.median(times))
    whole = round(max(usual, 1 / max(usual, 1e-9)))
    if whole < 2 or not np.allclose(times, usual, rtol=ALIKE):
        return None
    return Ratio(float(whole) if usual > 1 else 1 / whole, BY_LAUNCHES)


def _as_often(before: Floats, after: Floats) -> bool:
    """True if most launches of both are of kernels launched equally often per step in the other."""
    rest, shared = after.tolist(), 0.0
    for times in before[::-1].tolist():
        same = next((one for one in rest if _near(one, times, ALIKE)), None)
        if same is not None:
            rest.remove(same)
            shared += times
    return len(before) > 0 and shared >= _MOST_LAUNCHES * max(float(before.sum()), float(after.sum()))


def _by_names(before: Profile, after: Profile) -> Ratio | None:
    """The ratio of kernels that both launch, by name and shape, where they are most launches of one.

    A loop over samples that became a batch has other shapes. Kernels added or removed by a change have no
    common ratio.
    """
    agreed = in_proportion(before.named, after.named)
    if agreed is None:
        return None
    chosen, usual = agreed
    shares = (
        sum(before.named[one] for one in chosen) / max(before.launches, 1),
        sum(after.named[one] for one in chosen) / max(after.launches, 1),
    )
    if max(shares) < _MOST:
        return None
    return SAME_STEP if _near(usual, 1, ALIKE) else Ratio(usual, BY_LAUNCHES)


def in_proportion(
    before: Mapping[Kernel, float], after: Mapping[Kernel, float]
) -> tuple[list[Kernel], float] | None:
    """(kernels that both launch in about one ratio, that ratio); None if these are too few."""
    both = sorted(before.keys() & after.keys(), key=str)
    if not both:
        return None
    times = np.array([after[one] / before[one] for one in both])
    # the ratio of most kernels, each with its neighbours
    alike = np.abs(np.log(times[:, None] / times[None, :])) <= ALIKE
    best = alike[int(np.argmax(alike.sum(axis=1)))]
    if best.sum() < max(_AGREE * len(both), min(_KERNELS, len(both))):
        return None
    return [one for one, chosen in zip(both, best.tolist(), strict=True) if chosen], float(
        np.median(times[best])
    )


def common_launches(sides: Sequence[Mapping[Kernel, Ints]]) -> tuple[Ints, ...] | None:
    """Launches by window of kernels that both sides launch in one ratio; None if these are too few."""
    counts = [{kernel: float(by_window.sum()) for kernel, by_window in side.items()} for side in sides]
    agreed = in_proportion(*counts)
    if agreed is None:
        return None
    found = tuple(sum((side[kernel] for kernel in agreed[0]), np.int64(0)) for side in sides)
    shares = [float(own.sum()) / sum(known.values()) for own, known in zip(found, counts, strict=True)]
    return found if max(shares) >= _MOST and min(int(own.sum()) for own in found) >= FEWEST else None


def launched(evidence: Evidence, pid: int, edges: Ints) -> dict[Kernel, Ints]:
    """Launches of each kernel of a process between the edges, by name and, where known, shape."""
    if not evidence.facts.stacks.names_kernels:
        return {}
    calls = evidence.calls
    rows = launches_among(evidence, np.flatnonzero(calls["pid"] == pid))
    found: dict[Kernel, Ints] = {}
    for handle, own in by_handle(evidence, rows) if len(rows) else ():
        name = kernel_name(evidence, pid, handle)[0]
        for number in np.unique(calls["shape"][own]).tolist() if name else ():
            kernel = name, evidence.facts.shapes.get(number)
            begins = calls["begin"][own[calls["shape"][own] == number]]
            found[kernel] = found.get(kernel, np.int64(0)) + np.histogram(begins, edges)[0]
    most = sorted(found, key=lambda kernel: -int(found[kernel].sum()))
    return {kernel: found[kernel] for kernel in most[:_MOST_KERNELS]}


def common_input(
    before: list[tuple[int, float, float]], after: list[tuple[int, float, float]]
) -> tuple[int, int] | None:
    """The common input with most bytes, by its symbol in each; arguments as returned by ``inputs``."""
    found = [
        (min(volume, more), one, other)
        for one, size, volume in before
        for other, same, more in after
        if size >= _LEAST_BYTES and _near(size, same, ALIKE)
    ]
    return max(found)[1:] if found else None


def inputs(known: WorkSequence, sizes: Ints, least: int) -> list[tuple[int, float, float]]:
    """(symbol, bytes of one, bytes of all) of recurring copies to the device, most bytes first."""
    count = np.bincount(known.symbol, minlength=len(known.work))
    sums = np.bincount(known.symbol, weights=sizes, minlength=len(known.work))
    sent = np.flatnonzero((known.work == EnqueuedWork.SEND) & (count >= least))
    sent = sent[np.argsort(-sums[sent], kind="stable")]
    return [(int(one), float(sums[one] / count[one]), float(sums[one])) for one in sent.tolist()]

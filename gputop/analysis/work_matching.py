"""How much work a step of one recording is, in steps of another: handles differ, structure does not.

What the two have in common is looked for in this order: the same input (a copy to the device of the same
size, as often a step), inputs of other sizes (a batch of twice the samples, with the same launches), the
same launches so many times over, by the kernels' names and shapes where these are known. A change may remove
launches, copies and waits, or make work on the GPU that was done on the host: where a step launches about as
much as before, a step is a step. Where nothing of the kind holds, it is not known whether it is.
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

ALIKE = 0.05  # sizes and volumes that differ by no more are the same
LAUNCHES_ALIKE = 0.02
_REGULAR = 0.9  # of the steps must hold what is compared
_LEAST_BYTES = 64  # smaller copies are numbers, no input
_LOOKED_AT = 256  # steps
_MOST = 0.5  # of the launches of one must be of kernels that both launch, in the same ratio
_AGREE = 0.5  # of the kernels that both launch must be in that ratio
_MOST_LAUNCHES = 0.8  # of kernels without names that come as often in both, for them to be the same work
TENTH = 0.1  # by so much launches may differ, and be the same work
_FAR = 10  # times as many bytes as usual: a first step, which takes the model to the device
_KERNELS = 3  # kinds of kernels; fewer are no structure
_TIMES = 1.5  # times as much work, to be recognised by launches and bytes together
_TOGETHER = 0.15
_LAUNCHED = (EnqueuedWork.KERNEL, EnqueuedWork.GRAPH, EnqueuedWork.COLLECTIVE)
_MOST_KERNELS = 256  # of a part whose launches are counted by window


Kernel = tuple[str, Shape | None]  # its name and its shape


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
    """What a usual step does.

    Attributes:
        launches: Kernels, graphs and collectives.
        of_loop: The same of the whole loop for each of its steps: more, where some steps are of more work.
        inside: Kernels that its graphs hold beside one each, by what was captured.
        kernels: How often each kernel, in ascending order.
        named: How often each kernel by name and shape, where both are known: the same work in any recording.
        sends, reads: Copies to the device, and large ones to the host, that nearly every step makes.
    """

    launches: float
    of_loop: float
    inside: float
    kernels: Floats
    named: Mapping[Kernel, float]
    sends: tuple[Copies, ...]
    reads: tuple[Copies, ...]

    @property
    def sent(self) -> float:
        """Bytes that a step copies to the device."""
        return sum(one.volume for one in self.sends)


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many steps of BEFORE one step of AFTER is worth, and by what (``""`` where a step is a step).

    ``shown``: something that both do shows it; else nothing speaks against it. ``known``: False where it may
    be any.
    """

    times: Annotated[float, Mark("ratio")]
    by: Annotated[str, Mark(schema=str | None, make=lambda by: by or None)]
    shown: Annotated[bool, HIDDEN] = True
    known: Annotated[bool, HIDDEN] = True


SAME_STEP, LIKELY_SAME = Ratio(1.0, ""), Ratio(1.0, "", shown=False)
UNKNOWN = Ratio(1.0, "", shown=False, known=False)
BY_BYTES, BY_LAUNCHES = "bytes copied to the device", "kernel launches"


def profile(evidence: Evidence, steps: Steps) -> Profile:
    """What the usual one of these steps does."""
    known = steps.sequence
    chosen = np.unique(np.linspace(0, steps.count - 1, min(steps.count, _LOOKED_AT)).astype(np.int64))
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
    """Copies of one kind by the steps that have it, without those that move far more."""
    usual = moved <= _FAR * np.median(moved[counts > 0])
    return Copies(float(moved[usual].sum() / max(counts[usual].sum(), 1)), float(counts[usual].mean()))


def _named(evidence: Evidence, steps: Steps, rows: Ints, count: int) -> dict[Kernel, float]:
    """How often a step launches each kernel that these calls do, by name and shape."""
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
    """How many kernels a graph of this process holds, on average: what it launched while it captured."""
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
    """How much of BEFORE's work one step of AFTER does.

    Where nothing that both do shows it, usual steps may be alike and the loops not: threads that take turns
    make some steps of the work of two.
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
    named = _by_names(before, after)  # who reads the last result only reads as much as one turn of the loop
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
        return _by_graphs(before, after)
    return _by_kernels(before.kernels, after.kernels) or likely


def _by_graphs(before: Profile, after: Profile) -> Ratio:
    """A graph does what was launched while it was captured."""
    times = (after.launches + after.inside) / max(before.launches + before.inside, 1)
    return Ratio(times, BY_LAUNCHES) if max(times, 1 / times) >= _TIMES else LIKELY_SAME


def _near(one: float, other: float, part: float) -> bool:
    return abs(one - other) <= part * max(abs(one), abs(other))


def _shared(before: tuple[Copies, ...], after: tuple[Copies, ...]) -> bool:
    return any(
        _near(one.size, other.size, ALIKE) and _near(one.count, other.count, ALIKE)
        for one in before
        for other in after
    )


def _by_kernels(before: Floats, after: Floats) -> Ratio | None:
    """The same kernels so many times over: each of them."""
    if len(before) != len(after) or len(before) < _KERNELS:
        return None
    times = after / np.maximum(before, 1)
    usual = float(np.median(times))
    whole = round(max(usual, 1 / max(usual, 1e-9)))
    if whole < 2 or not np.allclose(times, usual, rtol=ALIKE):
        return None
    return Ratio(float(whole) if usual > 1 else 1 / whole, BY_LAUNCHES)


def _as_often(before: Floats, after: Floats) -> bool:
    """Whether most launches of both are of kernels without a name that come as often a step in the other."""
    rest, shared = after.tolist(), 0.0
    for times in before[::-1].tolist():
        same = next((one for one in rest if _near(one, times, ALIKE)), None)
        if same is not None:
            rest.remove(same)
            shared += times
    return len(before) > 0 and shared >= _MOST_LAUNCHES * max(float(before.sum()), float(after.sum()))


def _by_names(before: Profile, after: Profile) -> Ratio | None:
    """Most of what one of them launches is kernels that both do, in the same shapes, so many times as often.

    A loop over samples that became a batch has other shapes. What a change adds or leaves out is among the
    rest, which has no common ratio.
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
    """(kernels that both launch in about one ratio, that ratio); None where these are too few of them."""
    both = sorted(before.keys() & after.keys(), key=str)
    if not both:
        return None
    times = np.array([after[one] / before[one] for one in both])
    # of all ratios that in which most kernels are, each with its neighbours
    alike = np.abs(np.log(times[:, None] / times[None, :])) <= ALIKE
    best = alike[int(np.argmax(alike.sum(axis=1)))]
    if best.sum() < max(_AGREE * len(both), min(_KERNELS, len(both))):
        return None
    return [one for one, chosen in zip(both, best.tolist(), strict=True) if chosen], float(
        np.median(times[best])
    )


def common_launches(sides: Sequence[Mapping[Kernel, Ints]]) -> tuple[Ints, ...] | None:
    """Launches by window of kernels that both sides launch in one ratio; None of too few."""
    counts = [{kernel: float(by_window.sum()) for kernel, by_window in side.items()} for side in sides]
    agreed = in_proportion(*counts)
    if agreed is None:
        return None
    found = tuple(sum((side[kernel] for kernel in agreed[0]), np.int64(0)) for side in sides)
    shares = [float(own.sum()) / sum(known.values()) for own, known in zip(found, counts, strict=True)]
    return found if max(shares) >= _MOST and min(int(own.sum()) for own in found) >= FEWEST else None


def launched(evidence: Evidence, pid: int, edges: Ints) -> dict[Kernel, Ints]:
    """How often a process launched each kernel, by name and, where it is known, shape, between the edges."""
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
    """The input that both copy, by its symbol in each, of what ``inputs`` says: most bytes first."""
    found = [
        (min(volume, more), one, other)
        for one, size, volume in before
        for other, same, more in after
        if size >= _LEAST_BYTES and _near(size, same, ALIKE)
    ]
    return max(found)[1:] if found else None


def inputs(known: WorkSequence, sizes: Ints, least: int) -> list[tuple[int, float, float]]:
    """(symbol, bytes of one, bytes of all) of the copies to the device that recur."""
    count = np.bincount(known.symbol, minlength=len(known.work))
    sums = np.bincount(known.symbol, weights=sizes, minlength=len(known.work))
    sent = np.flatnonzero((known.work == EnqueuedWork.SEND) & (count >= least))
    return [(int(one), float(sums[one] / count[one]), float(sums[one])) for one in sent.tolist()]

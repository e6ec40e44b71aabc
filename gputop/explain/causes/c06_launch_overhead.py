"""C06: the host launches kernels more slowly than the GPU runs them.

Where idle time is estimated, or a query found the GPU idle, it takes pieces of it; else it is assessed.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from gputop.engine.frameworks import Framework
from gputop.engine.lines import Line
from gputop.explain.answer.report import DiagnosisKind, Finding, Level, Link, Range
from gputop.explain.causes.assessment import LEAST_NS, LEAST_SHARE, assessed, within
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.chaintext import placed, usual_api, usual_line
from gputop.explain.causes.launch_places import launch_place
from gputop.explain.causes.launched import elementwise_among, launched_most, small_among
from gputop.explain.causes.own_work import LONG_NS, not_waited, own_work
from gputop.explain.causes.registry import register
from gputop.explain.chains.chain import State
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.apiclass import Group
from gputop.explain.evidence.call_time import call_time
from gputop.explain.evidence.ranges import Ints, Mask, covered
from gputop.format import format_ns, format_percent

MANY = 100  # launches between two waits (docs/causes/C06.md)


LITTLE_WAIT = 0.05  # of that time: a GPU that is behind would make the wait longer


BUSY = 0.9  # of that time the thread is on a CPU


FULL_NS = 100_000  # a launch that takes longer met a full queue: the host is ahead (docs/explain.md)


ADVICE = (
    "launch less: torch.compile(mode='reduce-overhead') or CUDA graphs (torch.cuda.graph), fused optimizers "
    "(fused=True) and kernels, or a larger batch"
)


PLAIN_ADVICE = "launch less: CUDA graphs, fused kernels, or more work in each"


FUSE = "fuse these kernels, each of which works on every element by itself"


def _advice(scene: Scene, pid: int, launches: Ints) -> tuple[str, ...]:
    torch = Framework.TORCH in scene.evidence.frameworks(pid)
    fuse = elementwise_among(scene, launches, f"{FUSE} (torch.compile)" if torch else FUSE)
    return (ADVICE if torch else PLAIN_ADVICE, *fuse)


def launch_bound(scene: Scene, span_ns: int) -> list[Finding]:
    """One finding per thread that is bound by its launches."""
    if scene.analysis.estimated:  # then it is a cause like the others (``_launches``)
        return []
    evidence = scene.evidence
    calls = evidence.calls
    groups = evidence.group(calls)
    found = []
    bounds = np.searchsorted(calls["row"], np.arange(len(evidence.threads.tid) + 1)).tolist()
    for thread, (low, high) in enumerate(pairwise(bounds)):  # one by one: of ten million few at a time
        launched = (groups[low:high] == Group.LAUNCH) & (calls["ret"][low:high] == 0)
        if np.count_nonzero(launched) < MANY:
            continue
        mine = within(scene, low + np.flatnonzero(launched))
        if len(mine) < MANY:
            continue
        finding = _of_thread(scene, thread, mine, span_ns)
        found += [finding] if finding else []
    return found


def _of_thread(scene: Scene, thread: int, launches: Ints, span_ns: int) -> Finding | None:
    evidence = scene.evidence
    calls = evidence.calls
    low, high = np.searchsorted(calls["row"], [thread, thread + 1])
    rows = np.arange(low, high)
    waits = within(scene, rows[evidence.group_of(rows) == Group.SYNC])
    if not len(waits):
        return None
    # units from the first launch after a wait to the return of the next wait
    unit = np.searchsorted(waits, launches)
    count = np.bincount(unit, minlength=len(waits) + 1)[: len(waits)]
    first = launches[np.minimum(np.searchsorted(launches, np.append(low - 1, waits[:-1])), len(launches) - 1)]
    dense = (count >= MANY) & (first < waits)
    if not dense.any():
        return None
    begin, end = calls["begin"][first[dense]], calls["end"][waits[dense]]
    waited = calls["end"][waits[dense]] - calls["begin"][waits[dense]]
    full = launches[calls["end"][launches] - calls["begin"][launches] >= FULL_NS]
    full = full[np.isin(np.searchsorted(waits, full), np.flatnonzero(dense))]
    inside = call_time(evidence, full)
    long = inside.on_cpu + inside.blocked  # not what it waited for a CPU
    waiting = int(waited.sum()) + int(long[long >= FULL_NS].sum())
    spent = int((end - begin).sum())
    empty = int(covered((scene.gaps.begin, scene.gaps.end), begin, end).sum())
    off = _off_cpu(scene, thread, begin, end)
    loss = spent - waiting - empty
    if (
        waiting > LITTLE_WAIT * spent
        or off > (1 - BUSY) * spent
        or loss < max(LEAST_SHARE * span_ns, LEAST_NS)
    ):
        return None
    return _finding(scene, launches, int(count[dense].sum()), spent, waiting, loss, begin)


def _off_cpu(scene: Scene, thread: int, begin: Ints, end: Ints) -> int:
    """Time off the CPU of a thread in these intervals."""
    slices = scene.evidence.slices
    low, high = np.searchsorted(slices["row"], [thread, thread + 1])
    rows = np.arange(low, high)
    return int(covered((slices["begin"][rows], slices["end"][rows]), begin, end).sum())


def _finding(
    scene: Scene, launches: Ints, count: int, spent: int, waiting: int, loss: int, begin: Ints
) -> Finding:
    calls = scene.evidence.calls
    pid, tid = int(calls["pid"][launches[0]]), int(calls["tid"][launches[0]])
    inside = call_time(scene.evidence, launches).on_cpu
    api = usual_api(scene, launches)
    where, line = placed(scene, launches), usual_line(scene, launches)
    return assessed(
        scene,
        LAUNCHES,
        level=Level.STRONG,
        kind="idle",
        loss=Range(0, loss),
        pid=pid,
        tid=tid,
        api=api,
        chain=(
            Link(
                "gpu",
                0,
                0,
                "idle between short kernels; the calls alone do not show for how long",
                loss,
                count,
            ),
            Link("cuda", pid, tid, f"{where}, one after the other", int(inside.sum()), count, line),
            Link("host", pid, tid, "running all the time", spent - waiting, count),
        ),
        evidence=(
            f"{count} launches in {format_ns(spent)}, one every {format_ns(spent / max(count, 1))}",
            f"waits for the GPU take {format_percent(100 * waiting / spent)} % of it: the GPU keeps up",
            *launched_most(scene, launches, "launched most"),
            *small_among(scene, launches, scene.evidence.fill),
        ),
        advice=_advice(scene, pid, launches),
        gain_ns=loss,
        moments=begin,
        count=count,
        line=line,
    )


def _launches(scene: Scene, free: Mask) -> Mask:
    """What the submitting thread does between one piece of work and the next, which is no input."""
    estimated = scene.estimated & own_work(scene)
    # the GPU was found idle by a query: nothing made the thread wait
    asked = not_waited(scene) & (scene.gaps.drained_by >= 0)
    exact = scene.unrecorded & _between_launches(scene)[scene.segments.gap]
    return free & (exact | estimated | (own_work(scene) & scene.does(State.RUN) & asked[scene.segments.gap]))


def _between_launches(scene: Scene) -> Mask:
    """Short gaps between two kernels of one thread, by the GPU's own clock: no wait is between them."""
    gaps, evidence = scene.gaps, scene.evidence
    if not scene.unrecorded.any():
        return np.zeros(len(gaps), np.bool_)
    before, after = np.maximum(gaps.drained_by, 0), np.maximum(gaps.refilled_by, 0)
    launches = (evidence.group_of(before) == Group.LAUNCH) & (evidence.group_of(after) == Group.LAUNCH)
    known = (gaps.drained_by >= 0) & (gaps.refilled_by >= 0) & (gaps.end - gaps.begin < LONG_NS)
    short: Mask = known & launches & (evidence.calls["row"][before] == evidence.calls["row"][after])
    return short


def _advise_launches(claim: Claim) -> tuple[str, ...]:
    usual = _advice(claim.scene, claim.pid, claim.scene.gaps.refilled_by[claim.gaps])
    place = launch_place(claim)
    if place is None or not place.loop:
        return usual
    by_torch = "torch._foreach_ operations (torch._foreach_lerp_, torch._foreach_mul_), or "
    return (
        f"{place.line.function}() launches many small kernels, each for one tensor: work on all of them at "
        f"once, with {by_torch if claim.torch else ''}one tensor that holds them all",
        *usual,
    )


def _kernels(claim: Claim) -> tuple[str, ...]:
    refilled = claim.scene.gaps.refilled_by[claim.gaps]
    most = launched_most(claim.scene, refilled, "the GPU waited for the launches of")
    return (*most, *small_among(claim.scene, refilled, claim.scene.evidence.fill))


def _line(claim: Claim) -> Line | None:
    place = launch_place(claim)
    return place.line if place is not None else None


def _told(claim: Claim) -> tuple[str, ...]:
    place = launch_place(claim)
    if place is None:
        return _kernels(claim)
    share = format_percent(100 * place.share)
    return (f"{share} % of it is lost between launches at {place.line.text()}", *_kernels(claim))


LAUNCHES = register(
    Cause(
        "C06",
        "CPU overhead between launches",
        _launches,
        _advise_launches,
        lambda _claim: Level.STRONG,
        assess=launch_bound,
        culprit="refilled_by",
        at=_line,
        told=_told,
        kind=DiagnosisKind.LAUNCH,
        short="launch",
        family="H",
        rank=240,
    )
)

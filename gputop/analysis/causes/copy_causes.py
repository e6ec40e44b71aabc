"""C04, C05, C27 and C35: copies between host and device that block, or that are too many."""

from __future__ import annotations

import numpy as np

from gputop.analysis.answer.report import DiagnosisKind, Finding, Level, Range
from gputop.analysis.causes.cause import LEAST_NS, AboutCalls, Cause, CauseMatch, assessed, within
from gputop.analysis.causes.drains import Drain, drained, read_between, source_of
from gputop.analysis.causes.launch_sites import MOST_PARTS, advice_for, own_work, pattern_of, title_for
from gputop.analysis.chains.attribution_context import BIG_COPY, AttributionContext
from gputop.analysis.chains.call_forms import Form, Pattern, advice_of, by_loader, form_of_send, title_of
from gputop.analysis.chains.thread_places import calls_within
from gputop.analysis.evidence.api_classes import H2D, Group
from gputop.analysis.evidence.call_context import Files, call_time, line_numbers, stacks_within
from gputop.analysis.evidence.columns import Ints, Mask, distinct
from gputop.engine.calls.frameworks import Framework
from gputop.format import format_bytes, format_ns

LEAST_SHARE = 0.02
_FAST = 10  # percentile of ns/byte that stands for staging without waiting, when no copy met an empty GPU


def pageable_copies(scene: AttributionContext, span_ns: int) -> list[Finding]:
    """Return a finding per process whose staging costs enough."""
    if scene.analysis.estimated:  # then it claims segments (``_staged``)
        return []
    evidence = scene.evidence
    calls = evidence.calls
    groups = evidence.group(calls)
    rows = np.flatnonzero((groups == Group.COPY) & (calls["direction"] == H2D) & (calls["ret"] == 0))
    rows = within(scene, rows[calls["bytes"][rows] >= BIG_COPY])
    ranges = scene.analysis.gpu.ranges
    rows = rows[~ranges.pinned(calls["pid"][rows], calls["aux"][rows], calls["begin"][rows])]
    found = []
    for pid in np.unique(calls["pid"][rows]).tolist():
        mine = rows[calls["pid"][rows] == pid]
        staging = _staging(scene, mine)
        total = int(staging.sum())
        if len(mine) >= 3 and total >= max(LEAST_SHARE * span_ns, LEAST_NS):
            more = min(_late(scene, mine, staging), total)
            found.append(_finding(scene, int(pid), mine, staging, more))
    return found


def _staging(scene: AttributionContext, rows: Ints) -> Ints:
    """Return the CPU time that each call spent on staging, without waiting for earlier work, ns.

    A copy that met an empty GPU had nothing to wait for, so its CPU time is staging alone. Others spin while
    they wait: they get the same time per byte, at most their own.
    """
    calls = scene.evidence.calls
    busy = call_time(scene.evidence, rows).on_cpu
    alone = np.isin(rows, scene.gaps.refilled_by)
    rate = busy / calls["bytes"][rows]
    usual = float(np.median(rate[alone])) if alone.any() else float(np.percentile(rate, _FAST))
    estimate = np.minimum((calls["bytes"][rows] * usual).astype(np.int64), busy)
    return np.where(alone, busy, estimate)


def _late(scene: AttributionContext, rows: Ints, staging: Ints) -> int:
    """Return how much longer than usual these calls waited, ns: they may have met an empty GPU late.

    A thread that sleeps until earlier work ends may get its CPU back only a while after that.
    """
    calls = scene.evidence.calls
    waited = (calls["end"] - calls["begin"])[rows] - staging
    waited = waited[~np.isin(rows, scene.gaps.refilled_by)]
    return int(np.maximum(waited - np.percentile(waited, _FAST), 0).sum()) if len(waited) else 0


def _finding(scene: AttributionContext, pid: int, rows: Ints, staging: Ints, more: int) -> Finding:
    about, total = AboutCalls.of(scene, rows, staging), int(staging.sum())
    size = int(np.median(scene.evidence.calls["bytes"][rows]))
    certain = scene.analysis.gpu.ranges.certain(pid)
    which = "pageable" if certain else "memory not seen to be page-locked, so presumably pageable"
    torch = Framework.TORCH in scene.evidence.frameworks(pid)
    return assessed(
        scene,
        STAGED,
        about,
        level=Level.STRONG,
        kind="waste",
        loss=Range(0, total + more),
        chain=(
            about.link("cuda", f"{about.where} from {which} memory", total),
            about.link("host", "the CPU copies it into the driver's pinned buffer first", total),
        ),
        evidence=(
            f"{len(rows)} copies: median {format_bytes(size)}, "
            f"{format_ns(float(np.median(staging)))} of CPU each",
        ),
        advice=(f"the CPU waits inside each copy: {_pinned(torch=torch)}",),
    )


def _staged(scene: AttributionContext, free: Mask) -> Mask:
    """Return the time inside large copies to the device from memory that is not known to be page-locked."""
    calls, refilled_by = scene.evidence.calls, np.maximum(scene.gaps.refilled_by, 0)
    if not len(calls) or not len(scene.gaps):
        return scene.mask()
    pinned = scene.analysis.gpu.ranges.pinned(
        calls["pid"][refilled_by], calls["aux"][refilled_by], calls["begin"][refilled_by]
    )
    copies = scene.gap_facts.sent_bytes >= BIG_COPY
    copies &= (scene.gaps.refilled_by >= 0) & (calls["direction"][refilled_by] == H2D) & ~pinned
    copies &= read_between(scene) < 0
    known = scene.estimated | (scene.analysis.traced is not None)  # the GPU's own clock proves it
    return free & known & scene.own & scene.in_refill & copies[scene.segments.gap]


def _pinned(*, torch: bool) -> str:
    """Return what to do instead, in the words of the program's framework."""
    if torch:
        return (
            "copy from pinned memory with non_blocking=True (tensor.pin_memory(), or pin_memory=True in the "
            "DataLoader)"
        )
    return "copy asynchronously from page-locked memory (cudaHostAlloc, cudaHostRegister)"


STAGED = Cause(
    "C04",
    "pageable host-to-device copies",
    _staged,
    lambda claim: (
        f"the CPU copies {format_bytes(claim.sent_bytes)} into the driver's pinned buffers inside each call: "
        f"{_pinned(torch=claim.torch)}",
    ),
    lambda _claim: Level.STRONG,
    assess=pageable_copies,
    calls_go=frozenset({"sends"}),
    culprit="refilled_by",
    kind=DiagnosisKind.COPY,
    family="C",
    rank=180,
)

# C05: many small copies to the device, or copies of which no loader makes so many.

MANY_COPIES = 20  # a step, of one process


def _made(scene: AttributionContext) -> Mask:
    """Return the gaps before copies to the device of which a step has more than a loader makes.

    A batch goes to the device once a step, in a few parts. Small copies count together, others by the line
    that makes them: twenty of a process may be those of several batches.
    """
    facts, gaps = scene.gap_facts, scene.gaps
    sent: Mask = (facts.sent_bytes >= 0) & (read_between(scene) < 0)
    small = sent & (facts.sent_bytes < BIG_COPY)
    made = np.zeros(len(gaps), np.bool_)
    owner = scene.evidence.threads.pid[gaps.thread]
    stacks = scene.evidence.calls["stack"]
    for pid in np.unique(owner[sent]).tolist():
        own = owner == pid
        steps = scene.steps_of(pid)
        units = steps.count if steps is not None else max(int(own.sum()) // (2 * MANY_COPIES), 1)
        if np.count_nonzero(small & own) > MANY_COPIES * units:
            made |= small & own
        rows = np.flatnonzero(sent & own & ~made)
        if steps is None or len(rows) <= MOST_PARTS * units:
            continue
        of_each = stacks[gaps.refilled_by[rows]]
        line = line_numbers(scene.evidence, of_each)
        loads = np.isin(of_each, stacks_within(scene.evidence, of_each, by_loader))
        often = np.bincount(line[line >= 0], minlength=1) > MOST_PARTS * units
        made[rows[(line >= 0) & often[line] & ~loads]] = True
    return made


def _copies(claim: CauseMatch) -> int:
    """Return the time in the copies between these gaps and in the waits for them, ns."""
    scene, gaps = claim.scene, claim.scene.gaps
    calls = scene.evidence.calls
    before = np.maximum(gaps.drained_by[claim.gaps] - 1, 0)
    # only waits right after such a copy: others wait for kernels, too
    after_copy = (calls["direction"][before] == H2D) & (calls["row"][before] == gaps.thread[claim.gaps])
    waits = gaps.drained_by[claim.gaps][after_copy]
    rows = distinct(np.concatenate([waits, gaps.refilled_by[claim.gaps]]))
    return int((calls["end"][rows] - calls["begin"][rows]).sum())


def _sent(claim: CauseMatch) -> Ints:
    """Return the copies: between two of them there may be a proved gap and an estimated one."""
    return distinct(claim.scene.gaps.refilled_by[claim.gaps])


def _form(claim: CauseMatch) -> Form:
    """Return the form: small copies count together, large ones and indices by their caller."""
    refilled_by = claim.scene.gaps.refilled_by[claim.gaps]
    form = form_of_send(pattern_of(claim, refilled_by, refilled_by))
    if form == "index":
        return form
    return "small" if claim.sent_bytes < BIG_COPY else "made"


def _advise_tiny(claim: CauseMatch) -> tuple[str, ...]:
    size, times = format_bytes(claim.sent_bytes), claim.per_step(len(_sent(claim)))
    return advice_of(_form(claim), size=size, times=times, torch=claim.torch)


TINY_COPIES = Cause(
    "C05",
    "many small host-to-device copies",
    lambda scene, free: free & own_work(scene) & _made(scene)[scene.segments.gap],
    _advise_tiny,
    more=_copies,
    culprit="refilled_by",
    calls_go=frozenset({"sends"}),
    short="copy",
    relaunched=True,
    titled=lambda claim: title_of(_form(claim), claim.often(_sent(claim)), torch=claim.torch),
    kind=DiagnosisKind.COPY,
    family="C",
    rank=170,
)

# C27: a blocking copy to the device drains the queue, and the host works while the GPU is idle.


def _blocking(scene: AttributionContext, free: Mask) -> Mask:
    moved: Mask = (drained(scene) == Drain.MOVED)[scene.segments.gap]
    return free & own_work(scene) & moved


def _send(claim: CauseMatch) -> tuple[Form, Pattern]:
    every = claim.scene.gap_facts.moved_row
    row = every[claim.gaps]
    pattern = pattern_of(claim, row, row, every)
    form = form_of_send(pattern)
    often = (claim.times_of(pattern.count) or 0) > MOST_PARTS
    return ("moved" if form == "batch" and often else form), pattern


BLOCKING = Cause(
    "C27",
    "blocking host-to-device copy every step (`.to(device)`, `.cuda()`)",
    _blocking,
    lambda claim: advice_for(claim, *_send(claim)),
    overlaps=True,
    calls_go=frozenset({"reads"}),
    titled=lambda claim: title_for(claim, *_send(claim)),
    kind=DiagnosisKind.COPY,
    family="C",
    rank=220,
)

# C35: kernels are launched with arrays of the host, which are copied in and out at each launch (Numba).

_COPIES = "/numba/cuda/args.py"  # Numba's module that does so


def copies_arguments(files: Files) -> bool:
    """Return True for a stack within the code that copies arguments."""
    return any(_COPIES in file for file in files)


def _arguments(scene: AttributionContext, free: Mask) -> Mask:
    """Return own work around such a copy, and the copies themselves."""
    gaps = scene.gaps
    if not len(gaps):
        return scene.mask()
    source = source_of(scene)
    drained = np.where(source >= 0, gaps.drained_by[np.maximum(source, 0)], gaps.drained_by)
    around = calls_within(scene, gaps.refilled_by, copies_arguments)
    around |= calls_within(scene, drained, copies_arguments)
    works = own_work(scene) | (scene.own & scene.in_refill)
    return free & works & around[scene.segments.gap]


def _copied(claim: CauseMatch) -> Ints:
    """Return the copies to and from the device that Numba makes of arguments, and the waits for them."""
    calls = claim.scene.evidence.calls
    rows = np.flatnonzero((calls["pid"] == claim.pid) & (calls["stack"] != 0))
    return rows[calls_within(claim.scene, rows, copies_arguments)]


def _calls_ns(claim: CauseMatch) -> int:
    """Return the time in the copies outside of these gaps, ns."""
    calls, rows = claim.scene.evidence.calls, _copied(claim)
    inside = claim.segments & claim.scene.in_refill
    spent = int((calls["end"][rows] - calls["begin"][rows]).sum())
    return max(spent - int(claim.scene.ns[inside].sum()), 0)


def _advise(claim: CauseMatch) -> tuple[str, ...]:
    calls, rows = claim.scene.evidence.calls, _copied(claim)
    rows = rows[calls["direction"][rows] > 0]
    size = int(np.median(calls["bytes"][rows])) if len(rows) else 0
    return advice_of("arguments", size=format_bytes(size), times=claim.per_step(len(rows)), torch=False)


HOST_ARRAYS = Cause(
    "C35",
    "host arrays as arguments of kernels",
    _arguments,
    _advise,
    more=_calls_ns,
    calls_go=frozenset({"reads", "sends"}),
    gone=_copied,
    culprit="refilled_by",
    titled=lambda claim: title_of("arguments", claim.times, torch=False),
    kind=DiagnosisKind.COPY,
    family="C",
    rank=155,
)

"""C06, C34, C48 and C50: launches come too slowly, or the queue waits although they have come."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from gputop.analysis.answer.report import DiagnosisKind, Finding, Level, Link, Range
from gputop.analysis.causes.cause import (
    LEAST_NS,
    LEAST_SHARE,
    AboutCalls,
    Cause,
    CauseMatch,
    assessed,
    within,
)
from gputop.analysis.causes.drains import launch_place
from gputop.analysis.causes.launch_sites import (
    LONG_NS,
    elementwise_among,
    launched_most,
    not_waited,
    own_work,
    small_among,
)
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.chains.call_forms import how_often
from gputop.analysis.chains.chain import State
from gputop.analysis.chains.thread_places import gaps_in_code
from gputop.analysis.evidence.api_classes import WAIT, Group
from gputop.analysis.evidence.call_context import call_time
from gputop.analysis.evidence.columns import Ints, Mask, covered
from gputop.analysis.proofs.gaps import KernelTime
from gputop.engine.calls.frameworks import Framework
from gputop.format import format_ns, format_percent
from probes.activities import Table

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


def _advice(scene: AttributionContext, pid: int, launches: Ints) -> tuple[str, ...]:
    torch = Framework.TORCH in scene.evidence.frameworks(pid)
    fuse = elementwise_among(scene, launches, f"{FUSE} (torch.compile)" if torch else FUSE)
    return (ADVICE if torch else PLAIN_ADVICE, *fuse)


def launch_bound(scene: AttributionContext, span_ns: int) -> list[Finding]:
    """Return a finding per thread that is bound by its launches."""
    if scene.analysis.estimated:  # then it claims segments (``_launches``)
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
        waits = within(scene, low + np.flatnonzero(groups[low:high] == Group.SYNC))
        if len(mine) >= MANY and len(waits):
            finding = _of_thread(scene, thread, low, mine, waits, span_ns)
            found += [finding] if finding else []
    return found


def _of_thread(
    scene: AttributionContext, thread: int, low: int, launches: Ints, waits: Ints, span_ns: int
) -> Finding | None:
    """Return the finding of a thread, whose calls begin at row ``low``; None where it is not bound."""
    calls = scene.evidence.calls
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
    inside = call_time(scene.evidence, full)
    long = inside.on_cpu + inside.blocked  # without its waits for a CPU
    waiting = int(waited.sum()) + int(long[long >= FULL_NS].sum())
    spent = int((end - begin).sum())
    empty = int(covered((scene.gaps.begin, scene.gaps.end), begin, end).sum())
    slices = scene.evidence.slices
    own = slice(*np.searchsorted(slices["row"], [thread, thread + 1]))
    off = int(covered((slices["begin"][own], slices["end"][own]), begin, end).sum())
    loss, least = spent - waiting - empty, max(LEAST_SHARE * span_ns, LEAST_NS)
    if waiting > LITTLE_WAIT * spent or off > (1 - BUSY) * spent or loss < least:
        return None
    return _finding(scene, launches, int(count[dense].sum()), spent, waiting, loss, begin)


def _finding(
    scene: AttributionContext, launches: Ints, count: int, spent: int, waiting: int, loss: int, begin: Ints
) -> Finding:
    about = replace(AboutCalls.of(scene, launches), count=count, begin=begin)
    inside = int(call_time(scene.evidence, launches).on_cpu.sum())
    idle = "idle between short kernels; the calls alone do not show for how long"
    return assessed(
        scene,
        LAUNCHES,
        about,
        level=Level.STRONG,
        kind="idle",
        loss=Range(0, loss),
        chain=(
            Link("gpu", 0, 0, idle, loss, count),
            about.link("cuda", f"{about.where}, one after the other", inside),
            about.link("host", "running all the time", spent - waiting),
        ),
        evidence=(
            f"{count} launches in {format_ns(spent)}, one every {format_ns(spent / max(count, 1))}",
            f"waits for the GPU take {format_percent(100 * waiting / spent)} % of it: the GPU keeps up",
            *launched_most(scene, launches, "launched most"),
            *small_among(scene, launches, scene.evidence.fill),
        ),
        advice=_advice(scene, about.pid, launches),
    )


def _launches(scene: AttributionContext, free: Mask) -> Mask:
    """Return the submitting thread's time between one piece of work and the next that is no input."""
    estimated = scene.estimated & own_work(scene)
    # the GPU was found idle by a query: nothing made the thread wait
    ready = not_waited(scene) & (scene.gaps.drained_by >= 0)
    exact = scene.unrecorded & _between_launches(scene)[scene.segments.gap]
    return free & (exact | estimated | (own_work(scene) & scene.does(State.RUN) & ready[scene.segments.gap]))


def _between_launches(scene: AttributionContext) -> Mask:
    """Return short gaps between two kernels of one thread, by the GPU's own clock, without a wait."""
    gaps, evidence = scene.gaps, scene.evidence
    if not scene.unrecorded.any():
        return np.zeros(len(gaps), np.bool_)
    before, after = np.maximum(gaps.drained_by, 0), np.maximum(gaps.refilled_by, 0)
    launches = (evidence.group_of(before) == Group.LAUNCH) & (evidence.group_of(after) == Group.LAUNCH)
    known = (gaps.drained_by >= 0) & (gaps.refilled_by >= 0) & (gaps.end - gaps.begin < LONG_NS)
    short: Mask = known & launches & (evidence.calls["row"][before] == evidence.calls["row"][after])
    return short


def _advise_launches(claim: CauseMatch) -> tuple[str, ...]:
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


def _kernels(claim: CauseMatch) -> tuple[str, ...]:
    refilled = claim.scene.gaps.refilled_by[claim.gaps]
    most = launched_most(claim.scene, refilled, "the GPU waited for the launches of")
    return (*most, *small_among(claim.scene, refilled, claim.scene.evidence.fill))


def _evidence_lines(claim: CauseMatch) -> tuple[str, ...]:
    place = launch_place(claim)
    if place is None:
        return _kernels(claim)
    share = format_percent(100 * place.share)
    return (f"{share} % of it is lost between launches at {place.line.text()}", *_kernels(claim))


LAUNCHES = Cause(
    "C06",
    "CPU overhead between launches",
    _launches,
    _advise_launches,
    lambda _claim: Level.STRONG,
    assess=launch_bound,
    culprit="refilled_by",
    at=lambda claim: place.line if (place := launch_place(claim)) is not None else None,
    evidence=_evidence_lines,
    kind=DiagnosisKind.LAUNCH,
    short="launch",
    family="H",
    rank=240,
)

# C50: kernels that were queued in time follow each other with microseconds between them: the GPU's own time.

BETWEEN_KERNELS = Cause(
    "C50",
    "the GPU's own time between queued kernels",
    advice=lambda claim: (
        "the host is not to blame: each kernel costs the GPU some microseconds before it runs. Fewer and "
        f"larger ones: fused kernels{' (torch.compile)' if claim.torch else ''}, a larger batch, CUDA "
        "graphs, which shorten these gaps",
    ),
    culprit="refilled_by",
    kind=DiagnosisKind.LAUNCH,
    family="H",
    rank=330,
)

# C48: the GPU stood still although its next work had been launched: it waited for an event or a rank.

LATE_NS = 20_000  # within this time a launch reaches an idle GPU
PART = 0.1  # of the time, for the work before or after to be named
COLLECTIVE = re.compile(
    r"nccl|rccl|nvshmem|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all", re.IGNORECASE
)


def _queued_lines(claim: CauseMatch) -> tuple[str, ...]:
    """Return what ran before and after, and whether the stream had been made to wait for an event."""
    scene, gpu = claim.scene, claim.scene.analysis.gpu
    if not isinstance(gpu, KernelTime):
        return ()
    parts: dict[str, int] = {}
    ns = scene.gap_ns(claim.segments)[claim.gaps]
    waits = scene.evidence.activities.of(WAIT)
    events = np.array(["Event" in text for text in scene.evidence.activities.texts] or [False])
    waits = waits[events[waits["name"]] & (waits["stream"] >= 0)]
    for device in np.unique(scene.gaps.device[claim.gaps]).tolist():
        rows = gpu.of(device)
        mine = scene.gaps.device[claim.gaps] == device
        gaps = claim.gaps[mine]
        following = rows[np.minimum(np.searchsorted(rows["begin"], scene.gaps.end[gaps]), len(rows) - 1)]
        ended = rows[np.argsort(rows["end"], kind="stable")]
        place = np.minimum(np.searchsorted(ended["end"], scene.gaps.begin[gaps]), len(ended) - 1)
        for word, chosen in _words(scene.evidence.activities.texts, ended[place], following, waits):
            parts[word] = parts.get(word, 0) + int(ns[mine][chosen].sum())
    whole = max(int(ns.sum()), 1)
    texts = [
        f"{word} {format_percent(100 * part / whole)} %"
        for word, part in sorted(parts.items(), key=lambda one: -one[1])
        if part >= PART * whole
    ]
    return (f"of this time: {', '.join(texts)}",) if texts else ()


def _words(
    texts: tuple[str, ...], before: Table, after: Table, waits: Table
) -> Iterator[tuple[str, np.ndarray[tuple[int], np.dtype[np.bool_]]]]:
    collective = np.array([COLLECTIVE.search(text) is not None for text in texts] or [False])
    yield "behind a collective", collective[before["name"]]
    yield "before a collective", collective[after["name"]] & ~collective[before["name"]]
    yield "within a CUDA graph", (after["graph"] >= 0) & (after["graph"] == before["graph"])
    yield "behind another stream", before["stream"] != after["stream"]
    waited = np.isin(after["stream"], waits["stream"])
    yield "on a stream that was made to wait for an event", waited
    alike = (before["stream"] == after["stream"]) & ~waited & ~collective[before["name"]]
    yield (
        "behind work of the same stream, with nothing between them in the file (another program had the GPU, "
        "or the profiler lost kernels)",
        alike & ((after["graph"] < 0) | (after["graph"] != before["graph"])),
    )


QUEUED = Cause(
    "C48",
    "queued work did not start",
    advice=lambda _claim: (
        "the launching thread is not to blame: look at what the stream waits for (cudaStreamWaitEvent, a "
        "copy or a host function before it, another rank, another GPU)",
    ),
    culprit="refilled_by",
    evidence=_queued_lines,
    kind=DiagnosisKind.QUEUE,
    family="C",
    rank=310,
)

# C34: code is compiled in the loop, again and again: torch.compile, Triton, Numba, CuPy.

# (parts of paths of the compiler, its name, what keeps it from compiling again); in this order
COMPILERS = (
    (
        ("/torch/_inductor/", "/torch/_dynamo/", "/torch/_functorch/"),
        "torch.compile",
        "keep shapes and Python values fixed, or mark what changes (dynamic=True, "
        "torch._dynamo.mark_dynamic); TORCH_LOGS=recompiles names what changed",
    ),
    (
        ("/triton/compiler/", "/triton/backends/"),
        "Triton",
        "each new value of a tl.constexpr compiles the kernel anew: pass what changes as an ordinary "
        "argument, or round it up to a few values",
    ),
    (
        ("/numba/core/", "/numba/cuda/compiler.py", "/numba/cuda/core/", "/numba/cuda/codegen.py"),
        "Numba",
        "each new type of an argument, and each function made anew, is compiled: define kernels once outside "
        "of the loop, with signatures or one type for each argument",
    ),
    (
        ("/cupy/cuda/compiler", "/cupy/_core/raw", "/cupy/_core/_fusion"),
        "CuPy",
        "make kernels (RawKernel, ElementwiseKernel, fuse) once before the loop, not in it",
    ),
    (("/torch/utils/cpp_extension.py",), "an extension's build", "build it once, before the program starts"),
)


def _within(scene: AttributionContext, *paths: str) -> Mask:
    """Return the gaps in code whose files have one of these in their paths."""
    return gaps_in_code(scene, lambda files: any(path in file for file in files for path in paths))


def _compiling(scene: AttributionContext, free: Mask) -> Mask:
    paths = (path for parts, _name, _fix in COMPILERS for path in parts)
    inside = _within(scene, *paths)[scene.segments.gap]
    starved = scene.own & scene.does(State.QUEUED)
    return free & inside & ~starved


def _compiler(claim: CauseMatch) -> tuple[str, str]:
    """Return (the compiler that most gaps are in, what to do)."""
    counts = [np.count_nonzero(_within(claim.scene, *parts)[claim.gaps]) for parts, _name, _fix in COMPILERS]
    return COMPILERS[int(np.argmax(counts))][1:]


COMPILING = Cause(
    "C34",
    "compiles in the loop",
    _compiling,
    lambda claim: (f"code is compiled {claim.per_step()} while the GPU waits: {_compiler(claim)[1]}",),
    culprit="refilled_by",
    titled=lambda claim: f"compiles {how_often(claim.times)} ({_compiler(claim)[0]})",
    kind=DiagnosisKind.HOST,
    family="A",
    rank=17,
)

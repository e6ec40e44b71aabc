"""C01 to C03, C07 and C36: the host waits for the GPU, then works while it is idle."""

from __future__ import annotations

import math

import numpy as np

from gputop.analysis.answer.report import DiagnosisKind
from gputop.analysis.causes.cause import Cause, CauseMatch, bursts
from gputop.analysis.causes.drains import (
    MANY_READS,
    Drain,
    advise_read,
    drained,
    form_of_claim,
    read_between,
    source_of,
    title_of_read,
)
from gputop.analysis.causes.launch_sites import (
    advice_for,
    after_launch,
    not_waited,
    own_work,
    pattern_of,
    title_for,
)
from gputop.analysis.chains.attribution_context import SCALAR_BYTES, AttributionContext
from gputop.analysis.chains.call_forms import Form, Pattern, advice_of, form_of_read, form_of_sync
from gputop.analysis.chains.chain import State
from gputop.analysis.chains.thread_places import calls_within, samples_in
from gputop.analysis.evidence.api_classes import Group
from gputop.analysis.evidence.call_context import NAMES, Files, stacks_within
from gputop.analysis.evidence.columns import Ints, Mask, covered, distinct, union


def _reads(scene: AttributionContext, least: int, most: float) -> Mask:
    """Return own work in gaps whose queue was drained by a read of so many bytes."""
    size = read_between(scene)[scene.segments.gap]
    return own_work(scene) & (size >= least) & (size <= most)


SCALAR = Cause(
    "C01",
    "`.item()` every step",
    lambda scene, free: free & _reads(scene, 0, SCALAR_BYTES),
    advise_read,
    overlaps=True,
    calls_go=frozenset({"reads"}),
    titled=title_of_read,
    kind=DiagnosisKind.SYNC,
    family="S",
    rank=200,
)

TENSOR = Cause(
    "C02",
    "device-to-host read every step (`.cpu()`, `.numpy()`)",
    lambda scene, free: free & _reads(scene, SCALAR_BYTES + 1, math.inf),
    advise_read,
    calls_go=frozenset({"reads", "sends"}),
    titled=title_of_read,
    kind=DiagnosisKind.SYNC,
    family="S",
    rank=210,
)

# C03: the host waits for the GPU by an explicit call, then works while it is idle.


def _explicit(scene: AttributionContext, free: Mask) -> Mask:
    # a gap after a launch goes back to a wait only where the wait took the host's lead
    waited = scene.estimated | (~not_waited(scene) | after_launch(scene))[scene.segments.gap]
    explicit: Mask = (drained(scene) == Drain.EXPLICIT)[scene.segments.gap]
    return free & own_work(scene) & waited & explicit


def _sync(claim: CauseMatch) -> tuple[Form, Pattern]:
    scene, gaps = claim.scene, claim.scene.gaps
    explicit = (drained(scene) == Drain.EXPLICIT) & ~(gaps.estimated | after_launch(scene))
    every = np.where(explicit, gaps.drained_by, -1)
    pattern = pattern_of(claim, every[claim.gaps], np.full(len(claim.gaps), -1), every)
    return form_of_sync(pattern), pattern


EXPLICIT = Cause(
    "C03",
    "explicit synchronisation every step",
    _explicit,
    lambda claim: advice_for(claim, *_sync(claim)),
    overlaps=True,
    between=False,  # a program that waits to time layers still runs them
    calls_go=frozenset({"reads"}),
    titled=lambda claim: title_for(claim, *_sync(claim)),
    kind=DiagnosisKind.SYNC,
    family="S",
    rank=230,
)

# C07: a tensor is printed, or read element by element.

PRINT_BYTES = 8  # the formatter of a tensor's repr reads element by element
PRINT_READS = 50  # at least this many within PRINT_NS (docs/causes/C07.md); a step's own are a handful
PRINT_NS = 50_000_000


def _prints(scene: AttributionContext, free: Mask) -> Mask:
    facts = scene.gap_facts
    tiny = np.flatnonzero((facts.read_bytes >= 0) & (facts.read_bytes <= PRINT_BYTES))
    if not len(scene.gaps):
        return scene.mask()
    in_burst = np.zeros(len(scene.gaps) + 1, np.bool_)
    in_burst[tiny] = bursts(scene.gaps.begin[tiny], PRINT_READS, PRINT_NS) & _many_a_step(scene, tiny)
    return free & own_work(scene) & (in_burst[:-1] | _formatted(scene))[scene.segments.gap]


def _many_a_step(scene: AttributionContext, reads: Ints) -> Mask:
    """Return the reads of which few steps have many: a burst may also be one read of many short steps."""
    many = np.ones(len(reads), np.bool_)
    owner = scene.evidence.threads.pid[scene.gaps.thread[reads]]
    for pid in np.unique(owner).tolist():
        steps = scene.steps_of(pid)
        if steps is not None and steps.count:
            own = np.flatnonzero(owner == pid)
            step = np.searchsorted(steps.begin, scene.gaps.begin[reads[own]], side="right")
            many[own] = bursts(step, PRINT_READS, PRINT_READS // MANY_READS)
    return many


def _formatted(scene: AttributionContext) -> Mask:
    """Return the gaps whose read was made by PyTorch's formatter of tensors, by the Python stack."""
    rows = scene.gap_facts.read_row
    return calls_within(scene, rows, lambda files: form_of_read(Pattern(files=files)) == "print")


def _print(claim: CauseMatch) -> tuple[Form, Pattern]:
    form, pattern = form_of_claim(claim)
    return ("print" if form == "print" else "elements"), pattern


PRINTS = Cause(
    "C07",
    "tensor printed or read element by element",
    _prints,
    lambda claim: advice_of(_print(claim)[0], size="", times=claim.per_step(), torch=claim.torch),
    calls_go=frozenset({"reads"}),
    titled=lambda claim: title_for(claim, *_print(claim)),
    kind=DiagnosisKind.SYNC,
    family="S",
    rank=160,
)

# C36: autograd's anomaly mode checks every gradient, and the host waits for each answer.

# each operation of the forward pass keeps its Python stack as text, by these files
_FORMATS = "/torch/fx/traceback.py"
_TEXT = "/traceback.py"
LEAST_SAMPLES = 3
_CHECKS = 2  # kernels of a check: grad.ne(grad).any()
_MOSTLY = 0.5  # of a thread's samples in the forward pass, for it to be about them
_FLAG_BYTES = 1  # a bool: is a gradient NaN


def keeps_stacks(files: Files) -> bool:
    """Return True for a stack within the code by which anomaly mode keeps the forward pass's stacks."""
    return any(_FORMATS in file for file in files) and any(
        file.endswith(_TEXT) and "/torch/" not in file for file in files
    )


def _on(scene: AttributionContext) -> frozenset[int]:
    """Return the processes in which it is switched on."""
    places = scene.evidence.places
    if not len(places):
        return frozenset()
    met = places[np.isin(places["stack"], stacks_within(scene.evidence, places["stack"], keeps_stacks))]
    thread = scene.evidence.threads.row(met["tid"])
    pids, counts = np.unique(scene.evidence.threads.pid[thread[thread >= 0]], return_counts=True)
    return frozenset(pids[counts >= LEAST_SAMPLES].tolist())


def _checks(scene: AttributionContext, free: Mask) -> Mask:
    switched_on = _on(scene)
    if not switched_on or not len(scene.gaps):
        return scene.mask()
    threads, names = scene.evidence.threads, scene.evidence.facts
    named = [names.thread_name(tid).startswith(NAMES) for tid in threads.tid.tolist()]
    autograd = np.array(named, np.bool_) & np.isin(threads.pid, list(switched_on))
    size, source = read_between(scene), np.maximum(source_of(scene), 0)
    read = scene.gap_facts.read_row[source]
    reader = np.where(read >= 0, scene.evidence.calls["row"][np.maximum(read, 0)], scene.gaps.thread)
    # after the last check of a backward pass the thread that called backward() goes on
    flags = (autograd[scene.gaps.thread] | autograd[reader]) & (size >= 0) & (size <= _FLAG_BYTES)
    works = own_work(scene)
    forward = free & works & scene.does(State.RUN) & (size < 0)[scene.segments.gap]
    return (free & works & flags[scene.segments.gap]) | _keeping(scene, forward)


def _keeping(scene: AttributionContext, forward: Mask) -> Mask:
    """Return the forward pass of threads that most samples meet while they keep its stacks."""
    found = scene.mask()
    for thread in np.unique(scene.segments.thread[forward]).tolist():
        rows = np.flatnonzero(forward & (scene.segments.thread == thread))
        if _share(scene, rows) >= _MOSTLY:
            found[rows] = True
    return found


def _share(scene: AttributionContext, rows: Ints) -> float:
    """Return the share of a thread's samples in these segments that meet it keeping stacks; 0 of too few."""
    _segments, met = samples_in(scene, rows)
    stacks = scene.evidence.places["stack"][met]
    keeping = np.count_nonzero(np.isin(stacks, stacks_within(scene.evidence, stacks, keeps_stacks)))
    return keeping / len(met) if keeping >= LEAST_SAMPLES else 0.0


def _stacks(claim: CauseMatch) -> tuple[Ints, Ints]:
    """Return (begin, end) of keeping stacks between two calls of the forward pass, on an idle GPU or not."""
    scene, calls, slices = claim.scene, claim.scene.evidence.calls, claim.scene.evidence.slices
    forward = claim.segments & (read_between(scene) < 0)[scene.segments.gap]
    found = [(np.zeros(0, np.int64),) * 2]
    for thread in np.unique(scene.segments.thread[forward]).tolist():
        share = _share(scene, np.flatnonzero(forward & (scene.segments.thread == thread)))
        low, high = np.searchsorted(calls["row"], [thread, thread + 1])
        begin, end = np.maximum.accumulate(calls["end"][low:high])[:-1], calls["begin"][low + 1 : high]
        low, high = np.searchsorted(slices["row"], [thread, thread + 1])
        away = union(slices["begin"][low:high], slices["end"][low:high])
        ran = (end > begin) & (covered(away, begin, np.maximum(end, begin)) == 0)
        found.append((begin[ran], begin[ran] + ((end - begin)[ran] * share).astype(np.int64)))
    return np.concatenate([one[0] for one in found]), np.concatenate([one[1] for one in found])


def _checking(claim: CauseMatch) -> Ints:
    """Return the calls of the checks: the two launches before each read, and the fills for them."""
    scene, calls = claim.scene, claim.scene.evidence.calls
    row = distinct(scene.gap_facts.read_row[claim.gaps])
    row = row[row >= 0]
    thread, launches, found = calls["row"][row], np.zeros(len(row), np.int64), [row[:0]]
    for _ in range(_CHECKS * 2):
        row = row - 1
        group = scene.evidence.group_of(np.maximum(row, 0))
        goes_on = (row >= 0) & (calls["row"][np.maximum(row, 0)] == thread) & (launches < _CHECKS)
        goes_on &= np.isin(group, [int(Group.LAUNCH), int(Group.SET)])
        row, thread, launches = row[goes_on], thread[goes_on], (launches + (group == Group.LAUNCH))[goes_on]
        found.append(row)
    return distinct(np.concatenate(found))


ANOMALY = Cause(
    "C36",
    "autograd's anomaly mode checks each gradient",
    _checks,
    lambda claim: (
        f"anomaly mode waits {claim.per_step()} in backward() to learn whether a gradient is NaN, and keeps "
        "a Python stack for each operation of the forward pass: torch.autograd.set_detect_anomaly(False); "
        "switch it on only to find a NaN",
    ),
    overlaps=True,
    works=_stacks,
    calls_go=frozenset({"reads"}),
    between=False,  # the backward pass itself
    gone=_checking,
    kind=DiagnosisKind.SYNC,
    family="S",
    rank=156,
)

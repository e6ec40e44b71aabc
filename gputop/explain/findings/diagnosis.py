"""What kind of trouble it is, in the words of the field: input-bound, sync-bound, launch-bound, …

An idle GPU is of the class whose causes take most of its idle time. A busy one is told by what it is busy
with: GPM's activity of multiprocessors, tensor cores and memory, and where there is no GPM, as a hint, NVML's
utilisation of the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gputop.engine.frameworks import Framework
from gputop.explain.answer.report import Account, Diagnosis, DiagnosisKind, Finding, Level, Range
from gputop.explain.answer.wording import accounts_for
from gputop.explain.causes import CATALOGUE, CAUSES
from gputop.explain.causes.c26_no_request import idle_client
from gputop.explain.causes.cause import Claim
from gputop.explain.causes.launched import elementwise_among, small_among
from gputop.explain.causes.peer_causes import who
from gputop.explain.chains.peers import loader_helpers
from gputop.explain.chains.places import end_line, waiting_line
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Ints
from gputop.explain.findings.collectives import of_lateness
from gputop.explain.findings.findings import Outcome
from gputop.explain.findings.traced_class import class_of_traced
from gputop.explain.proofs.kernels import KernelTime
from gputop.explain.proofs.witness import UTILIZATION_KEY, readings
from gputop.format import format_percent

TITLES: dict[DiagnosisKind, str] = {
    DiagnosisKind.INPUT: "input-bound",
    DiagnosisKind.SYNC: "sync-bound",
    DiagnosisKind.LAUNCH: "launch-bound (CPU overhead)",
    DiagnosisKind.HOST: "host-bound",
    DiagnosisKind.COPY: "copy-bound",
    DiagnosisKind.COMPUTE: "compute-bound",
    DiagnosisKind.MEMORY: "memory-bound",
    DiagnosisKind.COMMUNICATION: "communication-bound",
    DiagnosisKind.CPU: "starved of CPU",
    DiagnosisKind.SHARED: "GPU shared",
    DiagnosisKind.UNASKED: "no work requested",
    DiagnosisKind.QUEUE: "queue-bound (launched work did not start)",
    DiagnosisKind.STARTUP: "start-up (contexts, code, memory)",
}
_OF_CAUSE = {cause.number: cause.kind for cause in CAUSES}
MOSTLY = 0.5  # of the time in which no work is requested, for it to be called a sleep
POLLS = "it looks for work again and again there: wait for it instead (queue.Queue.get, Condition.wait)"
# rows of the catalogue that are no fault: no work is requested
UNASKED_ROWS = tuple(row for row, cause in enumerate(CATALOGUE) if not cause.fault)
LEAST = 0.1  # of the span: what a class of causes must take, or its first one's change win, to be the answer
# of the span: start-up and what happened once, from which on they are said to be left out
WORTH_TELLING = 0.05
MOST_IDLE = 0.4  # a GPU that is idle for longer, and nobody knows why, is of no class
# Percent of what the GPU can do. Work is bound by what is above (Nsight Compute's speed of light rule); what
# is below is hardly used; with fewer multiprocessors at work the kernels are too small
BOUND, HARDLY, FULL = 60.0, 10.0, 50.0


def class_of(finding: Finding) -> DiagnosisKind | None:
    """The class of its cause."""
    return _OF_CAUSE.get(finding.cause)


@dataclass(frozen=True, slots=True)
class Ground:
    """What one part says of its class where no loss does: its words, and of how much time they are."""

    span_ns: int
    diagnosis: Diagnosis | None


def ground_of(
    scene: Scene, outcome: Outcome, findings: Sequence[Finding], accounts: Sequence[Account]
) -> Diagnosis | None:
    """The class of what was explained, with the words that only the evidence has."""
    gpu = scene.analysis.gpu
    kinds = kinds_of(scene, outcome, findings)
    if isinstance(gpu, KernelTime):
        return class_of_traced(scene, gpu, outcome, findings, kinds, accounts, TITLES)
    once = sum(event.ns for event in outcome.events)
    outside = sum(one.outside_ns for one in accounts)
    found, idle = class_of_rows(findings, kinds, unasked_of(scene, outcome), once, accounts)
    if found is not None:
        return _where_unasked(scene, outcome, found)
    if idle is None:
        return None
    apart = (once + outside) / sum(one.span_ns for one in accounts)
    return _of_busy(scene, 1 - idle, "in the loop " if apart >= WORTH_TELLING else "")


def class_of_rows(
    findings: Sequence[Finding],
    kinds: Sequence[DiagnosisKind | None],
    unasked_ns: float,
    once_ns: int,
    accounts: Sequence[Account],
) -> tuple[Diagnosis | None, float | None]:
    """(the class of what is lost, else the idle share of GPUs that are busy); None for what is not known."""
    outside = sum(one.outside_ns for one in accounts)
    # what happened once, at the start as a rule, is neither work nor a loss of the loop
    span = sum(one.span_ns for one in accounts) - outside - once_ns
    if span <= 0:
        return None, None
    of_losses = by_losses(findings, kinds, unasked_ns, span, accounts)
    if of_losses is not None:
        return of_losses, None
    idle = max(sum(one.proved_ns + one.estimated_ns for one in accounts) - once_ns - outside, 0) / span
    known = any(one.source or one.busy_ns > 0.5 * one.span_ns for one in accounts)
    return None, idle if idle <= MOST_IDLE and known else None


def unasked_of(scene: Scene, outcome: Outcome) -> float:
    """Idle time in which no work was requested, ns."""
    return float(sum(scene.ns[outcome.cause == row].sum() for row in UNASKED_ROWS))


def _where_unasked(scene: Scene, outcome: Outcome, found: Diagnosis) -> Diagnosis:
    """The class with the line at which nobody asks for work, and what to do about a sleep that polls."""
    if found.kind is not DiagnosisKind.UNASKED:
        return found
    rows = np.flatnonzero(np.isin(outcome.cause, UNASKED_ROWS))
    submitters = scene.gaps.thread[scene.segments.gap[rows]]
    line = waiting_line(scene, rows, submitters)
    said = found.evidence[0] + (f", waiting at {line.text()}" if line is not None else "")
    asleep = rows[idle_client(scene, np.ones(scene.size, np.bool_))[rows]]
    if scene.ns[asleep].sum() > MOSTLY * scene.ns[rows].sum():
        chosen = np.zeros(scene.size, np.bool_)
        chosen[asleep] = True
        gaps = np.flatnonzero(scene.gap_ns(chosen))
        client, where = who(Claim(scene, chosen, gaps)), end_line(scene, asleep)
        asleep_at = f" at {where.text()}" if where is not None else ""
        said = f"{client} sends no work, it sleeps{asleep_at}; {said}"  # the end of the chain comes first
        line = where or line
    polls = (scene.polling & scene.own)[rows]
    if scene.ns[rows][polls].sum() > MOSTLY * scene.ns[rows].sum():
        return replace(found, evidence=(said, *found.evidence[1:]), advice=(POLLS,), line=line)
    return replace(found, evidence=(said, *found.evidence[1:]), line=line)


def by_losses(
    findings: Sequence[Finding],
    kinds: Sequence[DiagnosisKind | None],
    unasked_ns: float,
    span_ns: int,
    accounts: Sequence[Account],
) -> Diagnosis | None:
    """The class that takes most of the time; None where none takes enough.

    Args:
        findings: What is lost, and to what.
        kinds: The class of each.
        unasked_ns: Idle time in which nobody asked for work.
        span_ns: The time of all GPUs together in the loop.
        accounts: All of their time.
    """
    ranges = _taken(findings, kinds, unasked_ns)
    taken = {kind: loss.middle for kind, loss in ranges.items()}
    kind = max(taken, key=lambda one: taken[one]) if taken else None
    longest = span_ns / max(len(accounts), 1)
    lead = kinds.index(kind) if kind in kinds else None
    # a wait costs more than the gap behind it: launches that are no longer ahead of the GPU
    won = max(taken[kind], findings[lead].max_gain_ns if lead is not None else 0) if kind else 0
    if kind is None or won < LEAST * (span_ns if kind is DiagnosisKind.UNASKED else longest):
        return None
    level = findings[lead].level if lead is not None else Level.STRONG
    said = accounts_for(ranges[kind], sum(one.span_ns for one in accounts))
    agreed = all(one.agrees for one in accounts)
    return Diagnosis(kind, TITLES[kind], level if agreed else Level.HINT, (said,), (), lead)


def kinds_of(scene: Scene, outcome: Outcome, findings: Sequence[Finding]) -> list[DiagnosisKind | None]:
    """The class of each finding."""
    crowded = _crowded(scene, outcome)
    return [
        DiagnosisKind.INPUT if (one.cause, one.pid, one.tid) in crowded else class_of(one) for one in findings
    ]


def _taken(
    findings: Sequence[Finding], kinds: Sequence[DiagnosisKind | None], unasked_ns: float
) -> dict[DiagnosisKind, Range]:
    """The time that each class takes: of findings, and of time in which no work was requested."""
    taken = {DiagnosisKind.UNASKED: Range(int(unasked_ns), int(unasked_ns))}
    for finding, kind, moved in zip(findings, kinds, of_lateness(findings), strict=True):
        if kind is not None:
            taken[kind] = taken.get(kind, Range(0, 0)).plus(finding.loss).plus(Range(int(moved), int(moved)))
    return {kind: loss for kind, loss in taken.items() if loss.middle}


def _crowded(scene: Scene, outcome: Outcome) -> set[tuple[str, int, int]]:
    """Findings of threads that want a CPU on which mostly their own loader's workers run."""
    helpers = set(loader_helpers(scene).tolist())
    found = set()
    for finding, (_cause, claim) in zip(outcome.findings, outcome.claims, strict=True):
        if helpers and class_of(finding) is DiagnosisKind.CPU:
            shares = scene.occupant_shares(claim.segments)
            if sum(share for pid, share in shares.items() if pid in helpers) > 0.5 * sum(shares.values()):
                found.add((finding.cause, finding.pid, finding.tid))
    return found


@dataclass(frozen=True, slots=True)
class _Activity:
    """Means over the span, percent; None where the GPU does not tell. ``ran``: a kernel ran."""

    ran: float | None
    sm: float | None
    tensor: float | None
    dram: float | None
    memory: float | None


def _of_busy(scene: Scene, busy: float, when: str) -> Diagnosis:
    """Compute or memory: by what is at its ceiling. ``when`` says of which time, if it is not all of it."""
    seen, torch = _activity(scene), _torch(scene)
    advised = _ADVICE if torch else _PLAIN_ADVICE
    share = f"{when}a kernel ran for about {format_percent(100 * busy)} % of the time"
    if seen.dram is None or seen.sm is None:
        if seen.memory is None:
            return Diagnosis(None, "the GPU is busy", Level.HINT, (share,), ())
        kind = (
            DiagnosisKind.MEMORY
            if seen.memory >= BOUND * (seen.ran or 100 * busy) / 100
            else DiagnosisKind.COMPUTE
        )
        said = f"its memory was read or written for {seen.memory:.0f} % of the time (NVML)"
        return Diagnosis(kind, TITLES[kind], Level.HINT, (share, said), advised[kind])
    # while kernels run, not over all the time
    ran = max(seen.ran or 100 * busy, 1.0) / 100
    dram, tensor, sm = (min((value or 0) / ran, 100.0) for value in (seen.dram, seen.tensor, seen.sm))
    said = f"GPM: SMs active {sm:.0f} %, tensor cores {tensor:.0f} %, memory bandwidth {dram:.0f} %"
    if dram >= BOUND and dram >= tensor:
        which = elementwise_among(scene, _calls_of(scene), "elementwise kernels, of all launches")
        return Diagnosis(
            DiagnosisKind.MEMORY,
            TITLES[DiagnosisKind.MEMORY],
            Level.STRONG,
            (share, said, *which),
            advised[DiagnosisKind.MEMORY],
        )
    grounds = [share, said]
    advice = list(advised[DiagnosisKind.COMPUTE])
    if sm < FULL:
        grounds += small_among(scene, _calls_of(scene), scene.evidence.fill)
        advice = [f"kernels keep {sm:.0f} % of the SMs active: a larger batch fills more of them"]
    if tensor < HARDLY:
        advice.insert(0, (_TENSOR if torch else _PLAIN_TENSOR).format(tensor=tensor))
    return Diagnosis(
        DiagnosisKind.COMPUTE, TITLES[DiagnosisKind.COMPUTE], Level.STRONG, tuple(grounds), tuple(advice)
    )


def _calls_of(scene: Scene) -> Ints:
    """The calls of the stretch that is explained."""
    low, high = scene.analysis.gpu.stretch
    calls = scene.evidence.calls
    rows: Ints = np.flatnonzero((calls["end"] > low) & (calls["end"] <= high))
    return rows


def _torch(scene: Scene) -> bool:
    """Whether a program with PyTorch is among those that are explained."""
    evidence = scene.evidence
    pids = np.unique(evidence.threads.pid).tolist()
    return any(Framework.TORCH in evidence.frameworks(pid) for pid in pids)


_HARDLY = "tensor cores are hardly used ({tensor:.0f} %): "
_TENSOR = f"{_HARDLY}torch.set_float32_matmul_precision('high') (TF32), or torch.autocast to bfloat16"
_PLAIN_TENSOR = f"{_HARDLY}matrix products in TF32, BF16 or FP16 use them"
_PLAIN_ADVICE: dict[DiagnosisKind, tuple[str, ...]] = {
    DiagnosisKind.COMPUTE: ("the GPU itself is the limit: a faster algorithm, lower precision, less work",),
    DiagnosisKind.MEMORY: (
        "memory bandwidth is the limit: fuse kernels that read the same data, keep intermediate results on "
        "the chip, use smaller types",
    ),
}
_ADVICE: dict[DiagnosisKind, tuple[str, ...]] = {
    DiagnosisKind.COMPUTE: (
        "the GPU itself is the limit: torch.compile, fused attention (scaled_dot_product_attention), "
        "less work",
    ),
    DiagnosisKind.MEMORY: (
        "memory bandwidth is the limit: fuse elementwise chains (torch.compile), channels_last for "
        "convolutions, no clone() or contiguous() that is not needed, autocast to halve the bytes",
    ),
}


def _activity(scene: Scene) -> _Activity:
    keys = (
        UTILIZATION_KEY,
        "sm_active_percent",
        "tensor_active_percent",
        "dram_bandwidth_percent",
        "memory_utilization_percent",
    )
    return _Activity(*(_mean(scene, key) for key in keys))


def _mean(scene: Scene, key: str) -> float | None:
    """Over the GPUs' spans; None where no GPU tells it."""
    gpu, means = scene.analysis.gpu, []
    for span in gpu.spans:
        time, value = readings(scene.evidence, gpu.devices.index[span.device], key)
        inside = (time >= span.begin) & (time <= span.end)
        if inside.any():
            means.append(float(value[inside].mean()))
    return float(np.mean(means)) if means else None

"""The class of trouble: of losses, of busy GPUs, and of files that hold their kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gputop.analysis.answer.report import (
    Account,
    Diagnosis,
    DiagnosisKind,
    Event,
    Finding,
    Level,
    OneOff,
    Range,
    whole,
)
from gputop.analysis.answer.wording import accounts_for, ends_of
from gputop.analysis.causes import CATALOGUE, CAUSES
from gputop.analysis.causes.cause import CauseMatch
from gputop.analysis.causes.external_causes import idle_client
from gputop.analysis.causes.launch_sites import elementwise_among, small_among
from gputop.analysis.causes.process_causes import who
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.chains.roles import loader_helpers
from gputop.analysis.chains.thread_places import end_line, hot_line, in_words, waiting_line
from gputop.analysis.evidence.columns import Ints, length
from gputop.analysis.findings.exact_work import BusyTime, busy_time
from gputop.analysis.findings.findings import Outcome
from gputop.analysis.findings.gap_findings import of_lateness
from gputop.analysis.proofs.gaps import KernelTime
from gputop.analysis.proofs.nvml_witness import UTILIZATION_KEY, readings
from gputop.engine.calls.frameworks import Framework
from gputop.format import format_ns, format_percent

LEAST = 0.1  # of the time, for an idle GPU's class
MOVES = 1.5  # times as long as all others: kernels that go over each element once, for a memory-bound GPU
LEAST_SHARE = 0.02  # of the kernels' time, for a kind to be reported


def class_of_traced(
    scene: AttributionContext,
    gpu: KernelTime,
    outcome: Outcome,
    findings: Sequence[Finding],
    kinds: Sequence[DiagnosisKind | None],
    accounts: Sequence[Account],
    titles: dict[DiagnosisKind, str],
) -> Diagnosis | None:
    """Return the class by the rows of a file: of no kind where it lacks the reasons, None without work."""
    span = sum(one.span_ns for one in accounts)
    if not span:
        return None
    busy = busy_time(gpu, scene.evidence.activities.texts)
    of_kind: dict[DiagnosisKind | None, int] = {}
    for row, cause in enumerate(CATALOGUE):
        of_kind[cause.kind] = of_kind.get(cause.kind, 0) + int(scene.ns[outcome.cause == row].sum())
    of_kind[None] = of_kind.get(None, 0) + sum(length(*one) for one in gpu.unlinked.values())
    of_kind[DiagnosisKind.STARTUP] = sum(length(*one) for one in gpu.first_use.values())
    for one, name in ((DiagnosisKind.COMMUNICATION, "communication"), (DiagnosisKind.COPY, "copies")):
        of_kind[one] = of_kind.get(one, 0) + busy.alone[name]
    kind = max(of_kind, key=lambda name: of_kind[name])
    working = busy.busy - sum(busy.alone.values())
    # a GPU that works nearly all the time loses so little that its work is the answer
    barely = busy.busy > 0.9 * span and of_kind[kind] < working
    if of_kind[kind] < LEAST * max(span, working) or barely:
        share = f"a kernel or a copy ran for {format_percent(100 * busy.busy / span)} % of the time"
        return _of_busy(busy, share, titles)
    if kind is None:
        part = format_percent(100 * of_kind[None] / span)
        text = (
            f"for {format_ns(of_kind[None])} ({part} %) the reason is not in the file: it holds no launches "
            "of the work that ended these gaps (profile the calls with the kernels: ProfilerActivity.CPU, "
            "nsys profile --trace cuda)"
        )
        return Diagnosis(None, "the reason is not in the file", Level.PROVED, (text,), ())
    share = f"{format_percent(100 * of_kind[kind] / span)} % of the time goes to this"
    lead = next((place for place, one in enumerate(kinds) if one is kind), None)
    if lead is not None:
        return Diagnosis(kind, titles[kind], findings[lead].level, (share,), (), lead)
    text = _class_text(scene, gpu, outcome, kind, busy, span)
    return Diagnosis(kind, titles[kind], Level.STRONG, (text or share,), _ADVICE.get(kind, ()))


def _class_text(
    scene: AttributionContext,
    gpu: KernelTime,
    outcome: Outcome,
    kind: DiagnosisKind,
    busy: BusyTime,
    span: int,
) -> str:
    """Return the evidence of a class without a finding."""
    if kind is DiagnosisKind.STARTUP:
        calls = _loading(scene, gpu)
        ns = sum(length(*one) for one in gpu.first_use.values())
        return f"loading code and allocating memory for the first time took {format_ns(ns)}{calls}"
    if kind is DiagnosisKind.COMMUNICATION and busy.alone["communication"] > LEAST * span:
        return _alone(busy, "communication", "collectives", span)
    if kind is DiagnosisKind.COPY and busy.alone["copies"] > LEAST * span:
        return _alone(busy, "copies", "copies and fills", span)
    return _largest(scene, outcome, kind)


def _alone(busy: BusyTime, name: str, words: str, span: int) -> str:
    share = format_percent(100 * busy.alone[name] / span)
    return f"nothing but {words} ran for {share} % of the time"


def _loading(scene: AttributionContext, gpu: KernelTime) -> str:
    """Return the calls that took most of the first uses."""
    calls = scene.evidence.calls
    first = [one for one in gpu.first_use.values() if len(one[0])]
    found: dict[str, int] = {}
    for begin, end in first:
        inside = np.flatnonzero((calls["end"] > begin[0]) & (calls["begin"] < end[-1]))
        inside = inside[calls["end"][inside] - calls["begin"][inside] >= 1_000_000]
        for row in inside.tolist():
            low, high = np.maximum(begin, calls["begin"][row]), np.minimum(end, calls["end"][row])
            name = scene.evidence.apis.name(int(calls["op"][row]))
            found[name] = found.get(name, 0) + int(np.maximum(high - low, 0).sum())
    most = sorted(found.items(), key=lambda one: -one[1])[:3]
    parts = ", ".join(f"{name} {format_ns(ns)}" for name, ns in most if ns)
    return f" ({parts})" if parts else ""


def _largest(scene: AttributionContext, outcome: Outcome, kind: DiagnosisKind) -> str:
    """Return the largest cause of this class, with where the thread was."""
    best = max(
        (row for row, cause in enumerate(CATALOGUE) if cause.kind is kind),
        key=lambda row: int(scene.ns[outcome.cause == row].sum()),
        default=-1,
    )
    if best < 0:
        return ""
    mine = outcome.cause == best
    ns, gaps = int(scene.ns[mine].sum()), len(np.unique(scene.segments.gap[mine]))
    where = in_words(scene, np.flatnonzero(mine))
    title = CATALOGUE[best].title.removesuffix(" every step")
    return f"{title} for {format_ns(ns)} in {gaps} gap{'s' * (gaps != 1)}{f', {where}' if where else ''}"


def _of_busy(busy: BusyTime, share: str, titles: dict[DiagnosisKind, str]) -> Diagnosis:
    """Return compute or memory, by the kinds of kernels that run longest; ``share``: the GPU's busy time."""
    kernels = {name: busy.ran[name] for name in ("compute", "memory", "other")}
    for name, kind, words in (
        ("communication", DiagnosisKind.COMMUNICATION, "collectives"),
        ("copies", DiagnosisKind.COPY, "copies and fills"),
    ):
        if busy.alone[name] > 0.5 * busy.busy:
            part = format_percent(100 * busy.alone[name] / busy.busy)
            alone = f"for {part} % of that time nothing but {words} ran"
            return Diagnosis(kind, titles[kind], Level.STRONG, (share, alone), _ADVICE[kind])
    whole = max(sum(kernels.values()), 1)
    kind = (
        DiagnosisKind.COMPUTE
        if kernels["memory"] < MOVES * (kernels["compute"] + kernels["other"])
        else DiagnosisKind.MEMORY
    )
    parts = [
        f"{format_percent(100 * ns / whole)} % {words}"
        for words, ns in (
            ("matrix products, convolutions and attention", kernels["compute"]),
            ("kernels that go over each element once", kernels["memory"]),
            ("other kernels", kernels["other"]),
        )
        if ns > LEAST_SHARE * whole
    ]
    text = share
    if max(kernels["compute"], kernels["memory"]) > LEAST_SHARE * whole:
        text += f"; by their names the kernels' time is {', '.join(parts)}"
    elif parts:
        text += "; the names of its kernels do not tell whether they compute or move memory"
    if busy.ran["communication"] > LEAST * sum(busy.ran.values()):
        part = format_percent(100 * busy.ran["communication"] / sum(busy.ran.values()))
        text += f"; beside them {part} % of all work is collectives"
    return Diagnosis(kind, titles[kind], Level.HINT, (text,), _ADVICE[kind])


_ADVICE: dict[DiagnosisKind, tuple[str, ...]] = {
    DiagnosisKind.COMPUTE: (
        "the GPU itself is the limit: lower precision (TF32, bfloat16), torch.compile, fused attention, less "
        "work",
    ),
    DiagnosisKind.MEMORY: (
        "memory bandwidth is the limit: fuse elementwise chains (torch.compile), channels_last for "
        "convolutions, autocast to halve the bytes",
    ),
    DiagnosisKind.COMMUNICATION: (
        "overlap collectives with backward (larger or fewer buckets), shard less, or look for a rank that is "
        "late: gputop merge of all ranks' files",
    ),
    DiagnosisKind.COPY: (
        "copy while kernels run: a stream of its own and pinned memory (non_blocking=True), or keep on the "
        "GPU what is copied again and again",
    ),
    DiagnosisKind.STARTUP: (
        "profile later steps (torch.profiler.schedule with wait and warmup) to see the loop itself",
    ),
}

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
    DiagnosisKind.NO_REQUESTS: "no work requested",
    DiagnosisKind.QUEUE: "queue-bound (launched work did not start)",
    DiagnosisKind.STARTUP: "start-up (contexts, code, memory)",
}
_OF_CAUSE = {cause.number: cause.kind for cause in CAUSES}
MOSTLY = 0.5  # of the time in which no work is requested, for it to be a sleep
POLLS = "it looks for work again and again there: wait for it instead (queue.Queue.get, Condition.wait)"
# rows of the catalogue that are no fault: no work is requested
NO_REQUESTS_ROWS = tuple(row for row, cause in enumerate(CATALOGUE) if not cause.fault)
# of the span: start-up and single events, from which on they are listed as left out
WORTH_REPORTING = 0.05
MOST_IDLE = 0.4  # a GPU that is idle for longer without a known cause is of no class
# percent of the GPU's peak: above, a unit bounds the work (Nsight Compute's speed of light rule); below, it
# is hardly used; with fewer multiprocessors at work the kernels are too small
BOUND, HARDLY, FULL = 60.0, 10.0, 50.0


def class_of(finding: Finding) -> DiagnosisKind | None:
    """Return the class of a finding's cause."""
    return _OF_CAUSE.get(finding.cause)


@dataclass(frozen=True, slots=True)
class Ground:
    """The class of one part where no loss has one, and the time that it is about."""

    span_ns: int
    diagnosis: Diagnosis | None


def ground_of(
    scene: AttributionContext, outcome: Outcome, findings: Sequence[Finding], accounts: Sequence[Account]
) -> Diagnosis | None:
    """Return the class of the explained time, with the words that only the evidence has."""
    gpu = scene.analysis.gpu
    kinds = kinds_of(scene, outcome, findings)
    # of gputop's own recordings the causes are as well known with kernels as without
    own = scene.evidence.header.get("source", "gputop") == "gputop"
    if isinstance(gpu, KernelTime) and not own:
        return class_of_traced(scene, gpu, outcome, findings, kinds, accounts, TITLES)
    once = sum(event.ns for event in outcome.events)
    outside = sum(one.outside_ns for one in accounts)
    found, idle = class_of_rows(findings, kinds, no_requests_ns(scene, outcome), once, accounts)
    if found is not None:
        return _with_idle_line(scene, outcome, found)
    if idle is not None:
        apart = (once + outside) / sum(one.span_ns for one in accounts)
        busy = _class_of_busy(scene, 1 - idle, "in the loop " if apart >= WORTH_REPORTING else "")
        if busy.kind is not None or not isinstance(gpu, KernelTime):
            return busy
        # NVML does not tell, the kernels' names may
        return _of_busy(busy_time(gpu, scene.evidence.activities.texts), busy.evidence[0], TITLES)
    if isinstance(gpu, KernelTime):
        return class_of_traced(scene, gpu, outcome, findings, kinds, accounts, TITLES)
    return None


def class_of_rows(
    findings: Sequence[Finding],
    kinds: Sequence[DiagnosisKind | None],
    no_requests_ns: float,
    once_ns: int,
    accounts: Sequence[Account],
) -> tuple[Diagnosis | None, float | None]:
    """Return (the class of the losses, else the idle share of GPUs that are busy); None: not known."""
    outside = sum(one.outside_ns for one in accounts)
    # single events, at the start as a rule, are neither work nor a loss of the loop
    span = sum(one.span_ns for one in accounts) - outside - once_ns
    if span <= 0:
        return None, None
    of_losses = by_losses(findings, kinds, no_requests_ns, span, accounts)
    if of_losses is not None:
        return of_losses, None
    idle = max(sum(one.proved_ns + one.estimated_ns for one in accounts) - once_ns - outside, 0) / span
    known = any(one.source or one.busy_ns > 0.5 * one.span_ns for one in accounts)
    return None, idle if idle <= MOST_IDLE and known else None


def no_requests_ns(scene: AttributionContext, outcome: Outcome) -> float:
    """Return the idle time in which no work was requested, ns."""
    return float(sum(scene.ns[outcome.cause == row].sum() for row in NO_REQUESTS_ROWS))


def _with_idle_line(scene: AttributionContext, outcome: Outcome, found: Diagnosis) -> Diagnosis:
    """Return the class with the line that waits for work, and advice for a sleep that polls."""
    if found.kind is not DiagnosisKind.NO_REQUESTS:
        return found
    rows = np.flatnonzero(np.isin(outcome.cause, NO_REQUESTS_ROWS))
    submitters = scene.gaps.thread[scene.segments.gap[rows]]
    line = waiting_line(scene, rows, submitters)
    text = found.evidence[0] + (f", waiting at {line.text()}" if line is not None else "")
    asleep = rows[idle_client(scene, np.ones(scene.size, np.bool_))[rows]]
    if scene.ns[asleep].sum() > MOSTLY * scene.ns[rows].sum():
        chosen = np.zeros(scene.size, np.bool_)
        chosen[asleep] = True
        gaps = np.flatnonzero(scene.gap_ns(chosen))
        client, where = who(CauseMatch(scene, chosen, gaps)), end_line(scene, asleep)
        asleep_at = f" at {where.text()}" if where is not None else ""
        text = f"{client} sends no work, it sleeps{asleep_at}; {text}"  # the end of the chain comes first
        line = where or line
    polls = (scene.polling & scene.own)[rows]
    mostly = scene.ns[rows][polls].sum() > MOSTLY * scene.ns[rows].sum()
    advice = (POLLS,) if mostly else found.advice
    return replace(found, evidence=(text, *found.evidence[1:]), advice=advice, line=line)


def by_losses(
    findings: Sequence[Finding],
    kinds: Sequence[DiagnosisKind | None],
    no_requests_ns: float,
    span_ns: int,
    accounts: Sequence[Account],
) -> Diagnosis | None:
    """Return the class of most of the time; None where none has enough."""
    ranges = _time_by_class(findings, kinds, no_requests_ns)
    losses = {kind: loss.middle for kind, loss in ranges.items()}
    kind = max(losses, key=lambda one: losses[one]) if losses else None
    longest = span_ns / max(len(accounts), 1)
    lead = kinds.index(kind) if kind in kinds else None
    # a wait costs more than the gap behind it: launches that are no longer ahead of the GPU
    won = max(losses[kind], findings[lead].gain.ns if lead is not None else 0) if kind else 0
    if kind is None or won < LEAST * (span_ns if kind is DiagnosisKind.NO_REQUESTS else longest):
        return None
    level = findings[lead].level if lead is not None else Level.STRONG
    idle = whole(accounts)
    # of several findings the upper ends may be the same time
    most_ns = ends_of(idle)[1] + sum(one.loss.upper for one in findings if one.kind != "idle")
    whole_ns = sum(one.span_ns for one in accounts)
    low, high = (min(end, most_ns, whole_ns) for end in ends_of(ranges[kind]))
    text = accounts_for(Range(low, high), whole_ns)
    agreed = all(one.agrees for one in accounts)
    return Diagnosis(kind, TITLES[kind], level if agreed else Level.HINT, (text,), (), lead)


def kinds_of(
    scene: AttributionContext, outcome: Outcome, findings: Sequence[Finding]
) -> list[DiagnosisKind | None]:
    """Return the class of each finding."""
    crowded = _crowded(scene, outcome)
    return [
        DiagnosisKind.INPUT if (one.cause, one.pid, one.tid) in crowded else class_of(one) for one in findings
    ]


def _time_by_class(
    findings: Sequence[Finding], kinds: Sequence[DiagnosisKind | None], no_requests_ns: float
) -> dict[DiagnosisKind, Range]:
    """Return the time of each class: of findings, and of time in which no work was requested."""
    result = {DiagnosisKind.NO_REQUESTS: Range(int(no_requests_ns), int(no_requests_ns))}
    for finding, kind, moved in zip(findings, kinds, of_lateness(findings), strict=True):
        if kind is not None:
            result[kind] = result.get(kind, Range(0, 0)) + finding.loss + Range(int(moved), int(moved))
    return {kind: loss for kind, loss in result.items() if loss.middle}


def _crowded(scene: AttributionContext, outcome: Outcome) -> set[tuple[str, int, int]]:
    """Return the findings of threads that want a CPU on which mostly their own loader's workers run."""
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
    """Means over the span, percent; None where the GPU does not report it. ``ran``: a kernel ran."""

    ran: float | None
    sm: float | None
    tensor: float | None
    dram: float | None
    memory: float | None


def _class_of_busy(scene: AttributionContext, busy: float, when: str) -> Diagnosis:
    """Return compute or memory, by the unit at its ceiling; ``when``: the part of the time, if not all."""
    evidence = scene.evidence
    torch = any(
        Framework.TORCH in evidence.frameworks(pid) for pid in np.unique(evidence.threads.pid).tolist()
    )
    seen = _Activity(*(_mean(scene, key) for key in _ACTIVITY_KEYS))
    advised = _CLASS_ADVICE if torch else _PLAIN_ADVICE
    share = f"{when}a kernel ran for about {format_percent(100 * busy)} % of the time"
    if seen.dram is None or seen.sm is None:
        if seen.memory is None:
            return Diagnosis(None, "the GPU is busy", Level.HINT, (share,), ())
        kind = (
            DiagnosisKind.MEMORY
            if seen.memory >= BOUND * (seen.ran or 100 * busy) / 100
            else DiagnosisKind.COMPUTE
        )
        figure = f"its memory was read or written for {seen.memory:.0f} % of the time (NVML)"
        return Diagnosis(kind, TITLES[kind], Level.HINT, (share, figure), advised[kind])
    # while kernels run, not over all the time
    ran = max(seen.ran or 100 * busy, 1.0) / 100
    dram, tensor, sm = (min((value or 0) / ran, 100.0) for value in (seen.dram, seen.tensor, seen.sm))
    figure = f"GPM: SMs active {sm:.0f} %, tensor cores {tensor:.0f} %, memory bandwidth {dram:.0f} %"
    if dram >= BOUND and dram >= tensor:
        kind = DiagnosisKind.MEMORY
        which = elementwise_among(scene, _calls_of(scene), "elementwise kernels, of all launches")
        return Diagnosis(kind, TITLES[kind], Level.STRONG, (share, figure, *which), advised[kind])
    kind, grounds = DiagnosisKind.COMPUTE, [share, figure]
    advice = list(advised[kind])
    if sm < FULL:
        grounds += small_among(scene, _calls_of(scene), scene.evidence.fill)
        advice = [f"kernels keep {sm:.0f} % of the SMs active: a larger batch fills more of them"]
    if tensor < HARDLY:
        advice.insert(0, (_TENSOR if torch else _PLAIN_TENSOR).format(tensor=tensor))
    return Diagnosis(kind, TITLES[kind], Level.STRONG, tuple(grounds), tuple(advice))


def _calls_of(scene: AttributionContext) -> Ints:
    """Return the calls of the explained stretch."""
    low, high = scene.analysis.gpu.stretch
    calls = scene.evidence.calls
    return np.flatnonzero((calls["end"] > low) & (calls["end"] <= high))


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
_CLASS_ADVICE: dict[DiagnosisKind, tuple[str, ...]] = {
    DiagnosisKind.COMPUTE: (
        "the GPU itself is the limit: torch.compile, fused attention (scaled_dot_product_attention), "
        "less work",
    ),
    DiagnosisKind.MEMORY: (
        "memory bandwidth is the limit: fuse elementwise chains (torch.compile), channels_last for "
        "convolutions, no clone() or contiguous() that is not needed, autocast to halve the bytes",
    ),
}


_ACTIVITY_KEYS = (
    UTILIZATION_KEY,
    "sm_active_percent",
    "tensor_active_percent",
    "dram_bandwidth_percent",
    "memory_utilization_percent",
)


def _mean(scene: AttributionContext, key: str) -> float | None:
    """Return the mean over the GPUs' spans; None where no GPU reports it."""
    gpu, means = scene.analysis.gpu, []
    for span in gpu.spans:
        time, value = readings(scene.evidence, gpu.devices.index[span.device], key)
        inside = (time >= span.begin) & (time <= span.end)
        if inside.any():
            means.append(float(value[inside].mean()))
    return float(np.mean(means)) if means else None


# Idle time that is no loss of a loop: start-up, pauses, first uses.

SHARE = 0.1  # of the idle time: less is not worth mentioning in the first line
STARTUP = "start-up and end"
Rows = Mapping[tuple[str, str], tuple[int, ...]]  # (cause, what) -> ns, how often


def rows_of(scene: AttributionContext, outcome: Outcome) -> Rows:
    """Return the time of each cause without a finding here, less its events."""
    found_causes = {finding.cause for finding in outcome.findings}
    found = {}
    for row in np.unique(outcome.cause[outcome.cause >= 0]).tolist() if len(outcome.cause) else ():
        cause = CATALOGUE[row]
        if cause.number in found_causes or not cause.fault:
            continue
        pieces = np.flatnonzero(outcome.cause == row)
        left = int(scene.ns[pieces].sum()) - sum(
            one.ns for one in outcome.events if one.cause == cause.number
        )
        hot = hot_line(scene, pieces)
        at = f" at {hot.line.text()}" if hot is not None else ""
        if left > 0:
            found[cause.number, f"{cause.title}{at}"] = left, len(np.unique(scene.segments.gap[pieces]))
    return found


def one_offs(
    rows: Rows, findings: Sequence[Finding], accounts: Sequence[Account], events: Sequence[Event]
) -> tuple[OneOff, ...]:
    """Return the sums of idle time that did not repeat, the largest first."""
    found = [OneOff(STARTUP, sum(one.outside_ns for one in accounts), 1)]
    sums: dict[str, tuple[int, int]] = {}
    for event in events:
        at = f" at {event.line.text()}" if event.line is not None else ""
        ns, count = sums.get(f"{event.title}{at}", (0, 0))
        sums[f"{event.title}{at}"] = ns + event.ns, count + 1
    found += [OneOff(what, ns, count) for what, (ns, count) in sums.items()]
    reported = {finding.cause for finding in findings}
    found += [OneOff(what, ns, count) for (cause, what), (ns, count) in rows.items() if cause not in reported]
    whole = sum(one.ns for one in found)
    return tuple(sorted((one for one in found if one.ns > SHARE * whole), key=lambda one: -one.ns))

"""Evidence in, report out: the one path of the command, the screen and ``diff``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gputop.analysis.answer.kernel_report import GraphReport, KernelReport
from gputop.analysis.answer.picture import RankReport
from gputop.analysis.answer.report import DiagnosisKind, Finding, Level, Report, account
from gputop.analysis.answer.wording import about_ends
from gputop.analysis.causes import CAUSES
from gputop.analysis.chains.analysis import analyse
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.chains.chain import State
from gputop.analysis.evidence.columns import WHOLE, Effort, length
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.evidence.power import energy_of
from gputop.analysis.findings.diagnosis import Ground, ground_of, kinds_of, no_requests_ns
from gputop.analysis.findings.diagnosis import rows_of as once_rows
from gputop.analysis.findings.evidence_text import trace_notes
from gputop.analysis.findings.exact_work import exact_work
from gputop.analysis.findings.findings import Outcome, find
from gputop.analysis.findings.gap_findings import ranks_of, storms
from gputop.analysis.findings.kernel_findings import graphs_of, kernels_of
from gputop.analysis.findings.memory_findings import memory_of
from gputop.analysis.findings.step_findings import loops_of
from gputop.analysis.gains import Replays, what_if, with_gains
from gputop.analysis.ledger import Entry, Key, Ledger, ThreadStorm, entry_of, ranked, report_of
from gputop.analysis.proofs.gaps import GpuTime, KernelTime, held_kernels
from gputop.analysis.proofs.nvml_witness import contradictions, shared_gpus, strangers
from gputop.engine.calls.failed_calls import between

MANY_AGAINST, PART_AGAINST = 3, 0.2  # NVML samples that refute the proofs: number, and share of all


def explain(
    evidence: Evidence, pids: frozenset[int] | None = None, stretch: tuple[int, int] | None = None
) -> Report:
    """Return the report; arguments as of ``ledger_of``. A stretch includes only its own failed calls."""
    report = examine(evidence, pids, stretch)[0]
    if stretch is None:
        return report
    return replace(report, failures=between(report.failures, report.start_ns, stretch))


def examine(
    evidence: Evidence,
    pids: frozenset[int] | None = None,
    stretch: tuple[int, int] | None = None,
    effort: Effort = WHOLE,
) -> tuple[Report, AttributionContext, Outcome]:
    """Return the report and its sources; arguments as of ``ledger_of``."""
    ledger, scene, outcome = ledger_of(evidence, pids, stretch, effort)
    return report_of(ledger), scene, outcome


def ledger_of(
    evidence: Evidence,
    pids: frozenset[int] | None = None,
    stretch: tuple[int, int] | None = None,
    effort: Effort = WHOLE,
    *,
    part: bool = False,
) -> tuple[Ledger, AttributionContext, Outcome]:
    """Return the ledger of an explanation and its sources.

    Args:
        evidence: The recorded evidence.
        pids: Only findings of these processes; GPU idle time is that of all.
        stretch: Only the time between these moments, ns of CLOCK_MONOTONIC.
        effort: How much of a long stretch is analysed in full.
        part: True if this is one of several parts to be joined.
    """
    start = int(evidence.header.get("start_ns", evidence.start_ns))
    stretch = stretch or (start, evidence.end_ns)
    analysis = analyse(evidence, stretch, effort)
    scene = AttributionContext(analysis)
    gpu = analysis.gpu
    # the threshold of a finding is a share of one GPU's time: each of eight ranks may lose its own
    scale = max((device.span_ns for device in gpu.spans), default=0)
    against, checked = contradictions(evidence, gpu)
    refuted = against >= MANY_AGAINST and against > PART_AGAINST * checked
    # of one or two samples all must contradict
    coverage = not (refuted or against == checked > 0)
    shared = shared_gpus(evidence, gpu)
    alone = {one.device for one in gpu.spans} - shared if coverage else frozenset[int]()
    outcome = find(scene, scale, coverage=coverage and not shared, part=part)
    replays = Replays(scene, outcome, effort.waits)
    findings = with_gains(scene, outcome, replays)
    if not evidence.header.get("unproved"):  # this check needs arguments that are not in such a file
        for cause in CAUSES:
            # where kernels are recorded, calls alone prove nothing
            if analysis.traced is None or cause.late_rank:
                findings += cause.assess(scene, scale)
    kinds = kinds_of(scene, outcome, findings)
    at = (stretch[0] - start, stretch[1] - start)
    entries = _entries(outcome, findings, kinds, start, at, settled=not part)
    if pids is not None:
        entries = {key: entry for key, entry in entries.items() if key[2] in pids}
    little = {one.place for one in outcome.judged if not one.worth}
    findings = [
        finding
        for place, finding in enumerate(findings)
        if place not in little and (pids is None or finding.pid in pids)
    ]
    findings = [findings[place] for place in ranked(findings)]
    labels = [gpu.devices.labels[device.device] for device in gpu.spans]
    accounts = [account(analysis, device, shared=device.device in shared) for device in gpu.spans]
    ground = ground_of(scene, outcome, findings, accounts)
    kind = ground.kind if ground is not None else None
    span = sum(device.span_ns for device in gpu.spans)
    duration = stretch[1] - stretch[0]
    chances = what_if(scene, outcome, findings, replays)
    del replays  # each of these takes megabytes for a moment: one after the other
    kernels = kernels_of(scene, pids, effort, alone) or KernelReport(duration, {}, ())
    loops = loops_of(scene, outcome)
    count = loops.count if loops is not None else 0
    ledger = Ledger(
        start_ns=start,
        begin_ns=stretch[0],
        end_ns=stretch[1],
        accounts=dict(zip(labels, accounts, strict=True)),
        seen=dict.fromkeys(labels, duration),
        outside_ns=_outside(gpu, stretch) + sum(one.ended_ns for one in analysis.estimates),
        short_ns=outcome.short_ns,
        unexplained_ns=outcome.unexplained_ns,
        unknown_ns=gpu.voided_ns,
        lost_events=evidence.lost_events,
        exact=isinstance(gpu, KernelTime),
        entries=entries,
        events=tuple(event for event in outcome.events if pids is None or event.pid in pids),
        once=once_rows(scene, outcome),
        no_requests_ns=no_requests_ns(scene, outcome),
        grounds={kind: Ground(span, ground)},
        spans={kind: span},
        loops={(loops.pid, loops.tid): loops} if loops is not None else {},
        what_if={
            tuple(one.cause for one in chances): (
                count,
                *(ns * count for one in chances for ns in (one.before_ns, one.after_ns, one.least_ns)),
            )
        }
        if chances
        else {},
        storms={
            (one.pid, one.tid): ThreadStorm(
                one.name, one.switches, one.switches / max(one.switches_per_second, 1e-9), one.gpu_ns
            )
            for one in storms(scene)
        },
        cpu_waits=_cpu_waits(scene),
        coverage=coverage,
        notes=_notes(scene, coverage=coverage, shared=bool(shared)),
        nothing=_nothing(evidence),
        failures=tuple(
            one for one in evidence.failed.failures(evidence.facts, start) if pids is None or one.pid in pids
        ),
        memory=memory_of(scene, start, pids),
        kernels=kernels,
        exact_work=exact_work(scene, pids),
        graphs=graphs_of(scene, pids) or GraphReport(),
        ranks=ranks_of(scene, pids) or RankReport(),
        energy=energy_of(evidence.gpus, *stretch),
    )
    return ledger, scene, outcome


def _entries(
    outcome: Outcome,
    findings: Sequence[Finding],
    kinds: Sequence[DiagnosisKind | None],
    start_ns: int,
    at: tuple[int, int],
    *,
    settled: bool,
) -> dict[Key, Entry]:
    """Losses by cause, kind and process; ``settled``: this is the whole, so its findings are final."""
    made: dict[Key, Entry] = {}
    for one in outcome.judged:
        finding = findings[one.place] if one.place is not None else None
        kind = kinds[one.place] if one.place is not None else one.cause.kind
        loss, usual, alone = one.loss, one.usual, one.alone.copy()
        alone["begin"] -= start_ns
        if len(usual):
            usual = usual.copy()
            usual["begin"] -= start_ns
        levels, names = (
            {level: loss.middle} if finding is not None and loss.middle else {}
            for level in (
                (finding.idle_level, finding.name_level) if finding is not None else (Level.PROVED,) * 2
            )
        )
        entry = Entry(
            finding,
            at,
            loss if finding is None or not settled else finding.loss,
            one.sure_ns,
            one.total_ns,
            finding.gain.ns if finding is not None and one.gaps else one.total_ns,
            one.gaps,
            levels,
            names,
            {kind: max(loss.middle, 1.0)},
            usual,
            alone,
            gone_ns=finding.gain.work_ns if finding is not None and one.gaps else 0,
            settled=settled and finding is not None,
        )
        key = one.cause.number, "idle", one.pid
        made[key] = made[key].joined(entry) if key in made else entry
    for finding, kind in zip(findings[len(outcome.findings) :], kinds[len(outcome.findings) :], strict=True):
        entry = entry_of(finding, kind, at)
        key = finding.cause, finding.kind, finding.pid
        made[key] = made[key].joined(entry) if key in made else entry
    return made


def _outside(gpu: GpuTime, stretch: tuple[int, int]) -> int:
    """Start-up, wind-down and first use: the stretch without the spans."""
    first_use = sum(device.outside_ns for device in gpu.spans)
    if isinstance(gpu, KernelTime):
        first_use += sum(length(*one) for one in gpu.first_use.values())
    edges = [max(device.begin - stretch[0], 0) + max(stretch[1] - device.end, 0) for device in gpu.spans]
    return first_use + sum(edges)


def _nothing(evidence: Evidence) -> str:
    if why := evidence.header.get("unproved"):
        return f"Idle time is not known from this file: {why}. Findings that do not need it are listed below."
    if len(evidence.unkept[0]):
        return "No call that enqueued GPU work was kept (record --detail), so idle time is not known."
    if not len(evidence.calls):
        return "No CUDA call was seen, so nothing is known about a GPU."
    return "No call enqueued GPU work, so there is no idle time to explain."


def _cpu_waits(scene: AttributionContext) -> dict[int, int]:
    queued = scene.segments.state == State.QUEUED
    pids = np.unique(scene.evidence.slices["pid"]).tolist()
    return {pid: int(scene.ns[queued & (scene.pid == pid)].sum()) for pid in pids}


def _notes(scene: AttributionContext, *, coverage: bool, shared: bool) -> tuple[str, ...]:
    notes, evidence, gpu = [], scene.evidence, scene.analysis.gpu
    if not coverage:
        notes.append(
            "NVML saw the GPU busy while every known stream was empty: some work reaches it by a way that is "
            "not traced, so nothing is called proved"
        )
    others = strangers(evidence, gpu)
    if others:
        numbers = ", ".join(str(pid) for pid in sorted(others)[:4])
        notes.append(
            f"other processes use the GPU ({numbers}): what it does for them is not seen call by "
            "call, so nothing is called proved"
            if shared
            else f"other processes hold memory on the GPU ({numbers}): idle time is time without work of the "
            "watched ones"
        )
    late = sorted({int(pid) for pid in np.unique(gpu.streams.pid).tolist()} - evidence.complete)
    if late and not held_kernels(evidence):
        numbers = ", ".join(str(pid) for pid in late[:4])
        notes.append(
            f"process {numbers} ran before the recording: until a device synchronisation returns, a stream "
            "from before may hold work, so its gaps up to then are strong, not proved"
        )
    if evidence.lost_events and evidence.header.get("addresses") and evidence.held.sums:
        notes.append(
            "events were lost: held memory may be more or less than reported, and memory that seems to grow "
            "may have been freed"
        )
    reset = evidence.held.unsure if evidence.header.get("addresses") else ()
    if reset:
        notes.append(
            f"process {', '.join(str(pid) for pid in sorted(reset)[:4])} reset one of its GPUs; memory that "
            "may have been on that GPU is still shown as held"
        )
    notes += about_ends(evidence.facts, int(evidence.header.get("start_ns", 0)))
    return (*notes, *trace_notes(scene))

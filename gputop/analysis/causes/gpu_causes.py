"""C20 to C22, C24 and C25: device memory, page-locked memory, code, clocks, and shared GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np

from gputop.analysis.answer.report import DiagnosisKind, Finding, Level, Link, Range
from gputop.analysis.causes.cause import (
    LEAST_NS,
    LEAST_SHARE,
    AboutCalls,
    Cause,
    CauseMatch,
    assessed,
    usual_line,
    within,
)
from gputop.analysis.causes.launch_sites import in_own_call
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.evidence.api_classes import Group, Role
from gputop.analysis.evidence.call_context import stacks_where
from gputop.analysis.evidence.columns import Ints, covered, distinct
from gputop.analysis.proofs.gaps import DeviceTime
from gputop.analysis.proofs.nvml_witness import others_at_work, strangers
from gputop.format import format_ns, format_percent
from probes.samples import listed_gpus

# bits of NVML's clock event reasons that are a fault or a limit of cooling; a power cap (0x4) at full load is
# as it should be
REASONS = {
    0x8: "hardware slowdown",
    0x20: "temperature",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
OFTEN, SLOWER = 0.2, 0.1  # of the samples under load, and of the clock (docs/causes/C24.md)


def slow_clocks(scene: AttributionContext, span_ns: int) -> list[Finding]:
    """Return a finding for each GPU whose clocks were throttled while it had work."""
    gpu = scene.analysis.gpu
    found = []
    for span in gpu.spans:
        index = gpu.devices.index[span.device]
        rows = _samples(scene, index)
        if index < 0 or len(rows) < 2:
            continue
        time = np.array([row[0] for row in rows], np.int64)
        clock, reasons = np.array([row[1] for row in rows]), np.array([row[2] for row in rows])
        held = (reasons & sum(REASONS)) != 0
        begin = np.append(span.begin, time[:-1])
        loaded = covered(gpu.pending(span.device), np.minimum(begin, time), time)
        full = float(max(clock[~held].max(initial=0), rows[0][3]))
        if not held.any() or full <= 0 or loaded[held].sum() < OFTEN * max(int(loaded.sum()), 1):
            continue
        lost = loaded * np.maximum(1 - clock / full, 0) * held
        total = int(lost.sum())
        if np.median(clock[held]) > (1 - SLOWER) * full or total < max(LEAST_SHARE * span_ns, LEAST_NS):
            continue
        bits = int(np.bitwise_or.reduce(reasons[held]))
        found.append(_slow(scene, span.device, total, held, clock, full, bits, begin[np.argsort(-lost)]))
    return found


def _samples(scene: AttributionContext, index: int) -> list[tuple[int, int, int, int]]:
    """Return (time, SM clock, reasons, largest SM clock) of each sample of a GPU."""
    low, high = scene.analysis.gpu.stretch
    rows: list[tuple[int, int, int, int]] = []
    for sample in scene.evidence.gpus:
        gpus = [row for row in listed_gpus(sample) if row.get("index") == index]
        if not gpus or not low <= sample.time_ns <= high:
            continue
        clock, reasons = gpus[0].get("sm_clock_mhz"), gpus[0].get("clock_event_reasons")
        if clock is not None and reasons is not None:
            rows.append((sample.time_ns, int(clock), int(reasons), int(gpus[0].get("sm_clock_max_mhz") or 0)))
    return rows


def _slow(
    scene: AttributionContext,
    device: int,
    total: int,
    held: Any,
    clock: Any,
    full: float,
    bits: int,
    worst: Ints,
) -> Finding:
    calls, gaps = scene.evidence.calls, scene.analysis.gpu.streams
    pid = int(gaps.pid[gaps.device == device][0])
    tid = int(calls["tid"][calls["pid"] == pid][0])
    words = ", ".join(text for bit, text in REASONS.items() if bits & bit)
    label = scene.analysis.gpu.devices.labels[device]
    slow, count = float(np.median(clock[held])), int(held.sum())
    return assessed(
        scene,
        THROTTLED,
        AboutCalls(pid, tid, count, worst),
        level=Level.STRONG,
        kind="waste",
        loss=Range(total, total),
        chain=(
            Link("gpu", 0, 0, f"{label} ran at {slow:.0f} of {full:.0f} MHz", total, count),
            Link("system", 0, 0, f"NVML's reason: {words}", total, count),
        ),
        evidence=(
            f"{count} of {len(held)} samples; work took {format_percent(100 * (full / slow - 1))} % longer "
            "then, if it is bound by the clock",
        ),
        advice=(
            "look at cooling, the power limit (nvidia-smi -q -d PERFORMANCE) and the other GPUs in the box",
        ),
    )


THROTTLED = Cause("C24", "the GPU's clocks are throttled", assess=slow_clocks)

# C25: other processes have work on the same GPU.

SHARED = 0.25  # of the span that one process waits while another has work on the same GPU


def contention(scene: AttributionContext, span_ns: int) -> list[Finding]:
    """Return a finding for each process that waits for a GPU while another process has work on it."""
    gpu, calls = scene.analysis.gpu, scene.evidence.calls
    roles = scene.evidence.role(calls)
    waits = within(scene, np.flatnonzero((roles >= Role.PROVE_DEVICE) & (roles <= Role.PROVE_EVENT)))
    found, strangers_share = [], others_at_work(scene.evidence, gpu)
    for span in gpu.spans:
        pids = np.unique(gpu.streams.pid[gpu.streams.device == span.device]).tolist()
        for pid in pids if len(pids) > 1 else ():
            rows = waits[(calls["pid"][waits] == pid) & (gpu.devices.of_calls[waits] == span.device)]
            begin, end = calls["begin"][rows], calls["end"][rows]
            shared = covered(gpu.pending(span.device, without=pid), begin, end)
            total = int(shared.sum())
            if total < max(LEAST_SHARE * span_ns, LEAST_NS, SHARED * span.span_ns):
                continue
            overlap = f"{format_ns(total)} of its waits overlapped work of another process on the GPU"
            found.append(_shared(scene, span.device, rows, shared, total, len(pids) - 1, overlap))
        found += _strangers(scene, span, span_ns, strangers_share[span.device])
    return found


def _strangers(scene: AttributionContext, span: DeviceTime, span_ns: int, share: float) -> list[Finding]:
    """Return the same where the others are not watched, by NVML's share of time in which they use the GPU."""
    gpu, calls = scene.analysis.gpu, scene.evidence.calls
    estimate = next((one for one in scene.analysis.estimates if one.device == span.device), None)
    if share < SHARED or estimate is None:
        return []
    rows = within(scene, np.flatnonzero(scene.evidence.group(calls) == Group.LAUNCH))
    rows = rows[gpu.devices.of_calls[rows] == span.device]
    if not len(rows):
        return []
    # a process that takes turns with one other has half of the GPU: its work lasts so much longer
    works = float(estimate.duration_ns[estimate.queue.kernel].sum())
    total = int(min(works, span.span_ns) * share / (1 + share))
    if total < max(LEAST_SHARE * span_ns, LEAST_NS):
        return []
    others = len(strangers(scene.evidence, gpu))
    modelled = (
        f"NVML: another process used the GPU for {100 * share:.0f} % of the time, which may have made work "
        f"{format_ns(total)} longer"
    )
    return [_shared(scene, span.device, rows, np.zeros(len(rows), np.int64), total, others, modelled)]


def _shared(
    scene: AttributionContext, device: int, rows: Ints, shared: Ints, total: int, others: int, evidence: str
) -> Finding:
    about, label = AboutCalls.of(scene, rows, shared), scene.analysis.gpu.devices.labels[device]
    also = f"{label} also had work of {others} other process{'es' * (others != 1)}"
    return assessed(
        scene,
        CONTENTION,
        about,
        level=Level.HINT,
        kind="waste",
        loss=Range(0, total),
        chain=(
            Link("gpu", 0, 0, also, total, len(rows)),
            about.link("cuda", f"{about.where} waited meanwhile", total),
        ),
        evidence=(evidence,),
        advice=("run them one after the other, on different GPUs, or under MPS or MIG",),
    )


CONTENTION = Cause(
    "C25", "the GPU is shared with other processes", assess=contention, kind=DiagnosisKind.SHARED
)

# C20: the GPU is idle while the host allocates or frees device memory.

_EMPTIES = "empty_cache"
TITLE = "device memory allocated in the loop (`cudaMalloc`)"
EMPTIED = "`torch.cuda.empty_cache()` in the loop"


def _emptied(claim: CauseMatch) -> Ints:
    """Return the frees by PyTorch's ``empty_cache()``; none unless most frees are its."""
    evidence = claim.scene.evidence
    frames = evidence.facts.stacks.frames

    def empties(stack: int) -> bool:
        return any(frame.function == _EMPTIES and "/torch/" in frame.file for frame in frames(stack))

    rows = distinct(claim.scene.segments.call[claim.segments])
    frees = rows[evidence.group_of(rows) == Group.FREE]
    stacks = evidence.calls["stack"][frees]
    emptied: Ints = frees[np.isin(stacks, stacks_where(stacks, empties))]
    return emptied if 2 * len(emptied) > len(frees) else emptied[:0]


def _advise_device(claim: CauseMatch) -> tuple[str, ...]:
    done = f"device memory is allocated and freed {claim.per_step()}"
    if len(_emptied(claim)):
        return (
            f"empty_cache() returns all unused memory {claim.per_step()}, waits for the GPU, and the next "
            "step allocates it again: remove it from the loop; another process that needs the memory is its "
            "only use",
        )
    if not claim.torch:
        return (f"{done}: allocate it once before the loop, or from a pool (cudaMallocAsync)",)
    return (
        f"{done}: keep shapes fixed, keep the caching allocator's blocks (no empty_cache() in the loop), "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or cudaMallocAsync",
    )


DEVICE_MEMORY = Cause(
    "C20",
    TITLE,
    lambda scene, free: free & in_own_call(scene, Group.ALLOC, Group.FREE),
    _advise_device,
    calls_go=frozenset({"inside"}),
    titled=lambda claim: EMPTIED if len(_emptied(claim)) else TITLE,
    at=lambda claim: usual_line(claim.scene, _emptied(claim)),
    culprit="inside",
    kind=DiagnosisKind.SYNC,
    family="A",
    rank=60,
)

# C21: the GPU is idle while the host page-locks memory.


HOST_MEMORY = Cause(
    "C21",
    "host memory pinned in the loop",
    lambda scene, free: free & in_own_call(scene, Group.HOST),
    lambda claim: (
        f"host memory is page-locked {claim.per_step()}, which takes a lock of the driver: allocate pinned "
        "buffers once and reuse them"
        f"{' (pin_memory=True with persistent_workers=True)' if claim.torch else ''}",
    ),
    culprit="inside",
    kind=DiagnosisKind.SYNC,
    family="A",
    rank=70,
)

# C22: the GPU is idle while the host builds graphs or loads code.


GRAPHS = Cause(
    "C22",
    "CUDA graphs built or code loaded in the loop",
    lambda scene, free: free & in_own_call(scene, Group.GRAPH, Group.MODULE),
    lambda claim: (
        f"a graph is built or code is loaded {claim.per_step()}: keep shapes fixed or compile with "
        "dynamic=True, capture once and replay, warm up before the loop",
    ),
    culprit="inside",
    kind=DiagnosisKind.LAUNCH,
    family="A",
    rank=80,
)

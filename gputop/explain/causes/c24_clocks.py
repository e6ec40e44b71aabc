"""C24: the clocks of a GPU are held down while it has work."""

from __future__ import annotations

from typing import Any

import numpy as np

from gputop.explain.answer.report import Finding, Level, Link, Range
from gputop.explain.causes.assessment import LEAST_NS, LEAST_SHARE, assessed
from gputop.explain.causes.cause import Cause
from gputop.explain.causes.registry import register
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Ints, covered
from gputop.format import format_percent
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


def slow_clocks(scene: Scene, span_ns: int) -> list[Finding]:
    """GPUs whose clocks were held down while they had work."""
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


def _samples(scene: Scene, index: int) -> list[tuple[int, int, int, int]]:
    """(time, SM clock, reasons, largest SM clock) of each sample of a GPU."""
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
    scene: Scene, device: int, total: int, held: Any, clock: Any, full: float, bits: int, worst: Ints
) -> Finding:
    calls, gaps = scene.evidence.calls, scene.analysis.gpu.streams
    pid = int(gaps.pid[gaps.device == device][0])
    tid = int(calls["tid"][calls["pid"] == pid][0])
    words = ", ".join(text for bit, text in REASONS.items() if bits & bit)
    label = scene.analysis.gpu.devices.labels[device]
    slow = float(np.median(clock[held]))
    return assessed(
        scene,
        THROTTLED,
        level=Level.STRONG,
        kind="waste",
        loss=Range(total, total),
        pid=pid,
        tid=tid,
        api="",
        chain=(
            Link("gpu", 0, 0, f"{label} ran at {slow:.0f} of {full:.0f} MHz", total, int(held.sum())),
            Link("system", 0, 0, f"NVML's reason: {words}", total, int(held.sum())),
        ),
        evidence=(
            f"{int(held.sum())} of {len(held)} samples; work took "
            f"{format_percent(100 * (full / slow - 1))} % longer then, if it is bound by the clock",
        ),
        advice=(
            "look at cooling, the power limit (nvidia-smi -q -d PERFORMANCE) and the other GPUs in the box",
        ),
        gain_ns=total,
        moments=worst,
        count=int(held.sum()),
        line=None,
    )


THROTTLED = register(
    Cause(
        "C24",
        "the GPU's clocks are throttled",
        assess=slow_clocks,
    )
)

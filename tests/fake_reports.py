"""Explanations made by hand: what the verdict and its page are tested with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gputop.analysis.answer.picture import (
    ASSUMED,
    BLOCKED,
    BUSY,
    CALL_WORDS,
    COLUMN_NS,
    FINDING,
    GPU_ROWS,
    LOST,
    MARK_ROWS,
    PRESUMED,
    PROVED,
    QUEUED,
    RUNNING,
    STATE_ROWS,
    WHOLE,
    GpuLane,
    Lanes,
    Shares,
    ThreadLane,
)
from gputop.analysis.answer.report import (
    Account,
    Diagnosis,
    DiagnosisKind,
    Event,
    Finding,
    Gain,
    GpuSpan,
    Level,
    Link,
    Range,
    Report,
    StepFacts,
    StormCost,
)
from gputop.analysis.evidence.blocking import Wait
from gputop.playback.feed import Explained

MS, S = 1_000_000, 1_000_000_000


def finding(cause: str = "C02", ms: int = 3_200, **changes: object) -> Finding:
    """A loss of so many ms that repeats."""
    made = Finding(
        cause=cause,
        kind="idle",
        title=f"device-to-host read every step (`.cpu()`, `.numpy()`) ({cause})"
        if cause != "C02"
        else "device-to-host read every step (`.cpu()`, `.numpy()`)",
        level=Level.PROVED,
        loss=Range(ms * MS, ms * MS),
        pid=4242,
        tid=4242,
        api="cudaMemcpyAsync",
        chain=(
            Link("gpu", 0, 0, "GPU 0 had nothing to do", ms * MS, 700),
            Link("cuda", 4242, 4242, "from the return of cudaStreamSynchronize", ms * MS, 700),
            Link("host", 4242, 4242, "python (4242) was running", ms * MS, 1_400),
        ),
        evidence=("700 gaps: median 4.5ms, longest 9.0ms",),
        ruled_out=("no CPU for this thread: 0 of 3.20s",),
        advice=("do that work on the device", "or copy once a step"),
        gain=Gain(ms * MS),
        moments_ns=(41 * S, 42 * S, 43 * S + MS),
        gaps=700,
        per_step_ns=4_500_000,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def account(proved_ms: int = 4_800, estimated_ms: int = 0, unknown_ms: int = 0, **changes: object) -> Account:
    """Ten seconds of one GPU; what is not idle and not unknown is work."""
    open_ms = unknown_ms or 10_000 - proved_ms
    made = Account(
        span_ns=10 * S,
        proved_ns=proved_ms * MS,
        estimated_ns=estimated_ms * MS,
        busy_ns=(10_000 - proved_ms - estimated_ms - unknown_ms) * MS,
        unknown_ns=unknown_ms * MS,
        outside_ns=0,
        error_ns=None if unknown_ms else 100 * MS,
        source=None if unknown_ms else "nvml",
        agrees=True,
        seen_busy=None,
        bounds=Range(proved_ms * MS, (proved_ms + open_ms) * MS),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def diagnosis(
    kind: DiagnosisKind | None = DiagnosisKind.SYNC, title: str = "sync-bound", **changes: object
) -> Diagnosis:
    """A class; of its first finding unless told otherwise."""
    made = Diagnosis(kind, title, Level.STRONG, ("a kernel ran for about 96 % of the time",), (), 0)
    return replace(made, **changes)  # type: ignore[arg-type]


def report(*findings: Finding, told: Account | None = None, **changes: object) -> Report:
    """Ten seconds of one GPU that was idle for 48 % of them, unless an account tells otherwise."""
    told = told or account()
    idle = told.idle
    made = Report(
        start_ns=S,
        duration_ns=10 * S,
        verdict="GPU 0 was idle for 48 % of 10.0s, proved.",
        diagnosis=None,
        idle=idle,
        span_ns=10 * S,
        gpus=(GpuSpan("GPU 0", 10 * S, idle, told),),
        steps=StepFacts(700, 14 * MS, 14 * MS, 4242, 4242),
        outside_ns=0,
        events=(Event(7 * S, 300 * MS, "C18", Level.PROVED, "waits for the disk", 4242, ()),),
        findings=findings,
        what_if=(),
        storms=(StormCost(4242, 4242, "python", 39_000, 3_900.0, 719 * MS),),
        cpu_waits=((4242, 719 * MS), (4249, 0)),
        small_ns=2 * MS,
        unexplained_ns=0,
        unknown_ns=0,
        coverage=True,
        lost_events=0,
        notes=("process 4242 ran before the recording",),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def shares(rows: int, columns: int, *filled: tuple[int, int, int]) -> Shares:
    """Columns that belong to one row as a whole: (row, first column, column after the last)."""
    made = np.zeros((rows, columns), np.uint8)
    for row, first, end in filled:
        made[:, first:end], made[row, first:end] = 0, WHOLE
    return made


def gpu_lane(index: int = 0, columns: int = 200) -> GpuLane:
    """A GPU: not known, busy, idle for a read, the same as far as one can tell, presumably busy."""
    part = columns // 5
    rows = (BUSY, PROVED, ASSUMED, PRESUMED)
    filled = [(row, (place + 1) * part, (place + 2) * part) for place, row in enumerate(rows)]
    return GpuLane(f"GPU {index}", index, shares(GPU_ROWS, columns, *filled))


def thread_lane(tid: int = 4242, columns: int = 200, pid: int = 4242) -> ThreadLane:
    """A thread: on a CPU, in a run queue, waiting for a lock; in a launch, then in a wait."""
    half, most = columns // 2, columns * 3 // 4
    states = ((RUNNING, 0, half), (QUEUED, half, most), (BLOCKED + Wait.LOCK, most, columns))
    calls = shares(len(CALL_WORDS), columns, (2, 0, columns // 4), (0, half, columns))
    return ThreadLane(pid, tid, shares(STATE_ROWS, columns, *states), calls)


def lanes(end_ns: int = 100 * S, columns: int = 200, gpus: int = 1, lossy: bool = False) -> Lanes:
    """The ten seconds before a moment; in the last of them is the worst of a finding."""
    marks = np.zeros((MARK_ROWS, columns), np.uint8)
    tenth = columns - columns // 10
    marks[FINDING, tenth : tenth + 1] = 1
    marks[LOST, columns // 4 : columns // 3] = lossy
    every = tuple(gpu_lane(index, columns) for index in range(gpus))
    first = end_ns // COLUMN_NS - columns
    return Lanes(first, columns, every, (thread_lane(columns=columns),), marks)


def explained(
    *findings: Finding, end_ns: int = 100 * S, told: Account | None = None, **changes: object
) -> Explained:
    """The explanation up to a moment of a session that began at 1 s."""
    return Explained(report(*findings, told=told, **changes), end_ns, S, lanes=lanes(end_ns))

"""Explanations made by hand: what the verdict and its page are tested with."""

from __future__ import annotations

from dataclasses import replace

from gputop.explain.causes.cause import Level
from gputop.explain.report import Event, Finding, GpuSpan, Link, Range, Report, StepFacts, StormCost
from gputop.ui.feed import Explained

MS, S = 1_000_000, 1_000_000_000


def finding(cause: str = "C02", ms: int = 3_200, **changes: object) -> Finding:
    """A loss of so many ms that repeats."""
    made = Finding(
        cause=cause,
        kind="idle",
        title=f"a tensor is read in the loop ({cause})" if cause != "C02" else "a tensor is read in the loop",
        level=Level.PROVED,
        loss=Range(ms * MS, ms * MS),
        pid=4242,
        tid=4242,
        api="cudaMemcpyAsync",
        chain=(
            Link("gpu", 0, 0, "GPU 0 had nothing to do", ms * MS, 700),
            Link("cuda", 4242, 4242, "from the return of cudaStreamSynchronize", ms * MS, 700),
            Link("host", 4242, 4242, "python (4242) was on a CPU", ms * MS, 1_400),
        ),
        evidence=("700 gaps, usually 4.5ms",),
        ruled_out=("no CPU for this thread: 0 of 3.20s",),
        advice=("do that work on the device", "or copy once a step"),
        max_gain_ns=ms * MS,
        moments_ns=(41 * S, 42 * S, 43 * S + MS),
        gaps=700,
        per_step_ns=4_500_000,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def report(*findings: Finding, **changes: object) -> Report:
    """Ten seconds of one GPU that was idle for 48 % of them."""
    idle = Range(4_800 * MS, 4_900 * MS)
    made = Report(
        start_ns=S,
        duration_ns=10 * S,
        verdict="GPU 0 provably had nothing to do for 4.80s of 10.0s (48 %).",
        idle=idle,
        span_ns=10 * S,
        gpus=(GpuSpan("GPU 0", 10 * S, idle),),
        steps=StepFacts(700, 14 * MS, 4242, 4242),
        outside_ns=0,
        events=(Event(7 * S, 300 * MS, "C18", "waits for the disk", 4242, ()),),
        findings=findings,
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


def explained(*findings: Finding, end_ns: int = 100 * S, **changes: object) -> Explained:
    """The explanation up to a moment of a session that began at 1 s."""
    return Explained(report(*findings, **changes), end_ns, S)

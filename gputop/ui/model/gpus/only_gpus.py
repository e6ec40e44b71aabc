"""What is shown with ``--gpu``: frames and explanations without the other GPUs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gputop.analysis.answer.report import Report, whole
from gputop.analysis.answer.wording import verdict
from gputop.engine.frame import Frame
from gputop.playback.feed import Explained

CHOSEN = "--gpu"  # begins a problem with what was chosen


def of_gpus(frame: Frame, gpus: Collection[int]) -> Frame:
    """The frame with these GPUs; () for all. One that the machine does not have is a problem."""
    if not gpus:
        return frame
    shown = tuple(gpu for gpu in frame.gpus if gpu.index in gpus)
    here = ", ".join(str(gpu.index) for gpu in frame.gpus)
    absent = ",".join(map(str, sorted({*gpus} - {gpu.index for gpu in frame.gpus})))
    problems = (f"{CHOSEN} {absent}: no such GPU, this machine has {here}",) if absent and here else ()
    return replace(frame, gpus=shown, problems=(*problems, *frame.problems))


def with_unwatched(frame: Frame) -> Frame:
    """The frame with the other users of its GPUs among its processes: they hold memory that is missed."""
    here = {gpu.index for gpu in frame.gpus}
    known = {row.pid for row in frame.processes}
    others = [row for row in frame.unwatched if row.pid not in known and not here.isdisjoint(row.gpus or ())]
    return replace(frame, processes=(*frame.processes, *others)) if others else frame


def explained_of_gpus(explained: Explained, frame: Frame | None, gpus: Collection[int]) -> Explained:
    """The explanation with these GPUs, and without findings of processes that use none of them.

    Args:
        explained: Of all GPUs.
        frame: Which process uses which; of whom that is not known everything stays.
        gpus: The GPUs; () for all.
    """
    if not gpus or explained.report is None:
        return explained
    lanes = explained.lanes
    if lanes is not None:
        lanes = replace(lanes, gpus=tuple(lane for lane in lanes.gpus if lane.index in gpus))
    return replace(explained, report=report_of_gpus(explained.report, frame, gpus), lanes=lanes)


def report_of_gpus(report: Report, frame: Frame | None, gpus: Collection[int]) -> Report:
    """The report with these GPUs, and without findings of processes that use none of them."""
    elsewhere = {
        row.pid for row in (frame.processes if frame else ()) if row.gpus and set(row.gpus).isdisjoint(gpus)
    }
    labels = {f"GPU {index}" for index in gpus}
    findings = tuple(one for one in report.findings if one.pid not in elsewhere)
    diagnosis = report.diagnosis
    if diagnosis is not None and diagnosis.lead is not None:
        lead = report.findings[diagnosis.lead]
        place = next((place for place, one in enumerate(findings) if one is lead), None)
        diagnosis = replace(diagnosis, lead=place) if place is not None else None
    shown = tuple(gpu for gpu in report.gpus if gpu.label in labels)
    accounts = [gpu.account for gpu in shown]
    idle, span_ns = whole(accounts), sum(gpu.span_ns for gpu in shown)
    sentence = report.verdict
    # a report does not say on which GPU it is: on these at most their proved idle time
    unexplained_ns = min(report.unexplained_ns, idle.lower)
    if len(shown) < len(report.gpus):
        sentence = verdict(
            [gpu.label for gpu in shown], accounts, idle, span_ns, findings, diagnosis, unexplained_ns
        )
    return replace(
        report,
        gpus=shown,
        findings=findings,
        diagnosis=diagnosis,
        idle=idle,
        span_ns=span_ns,
        unexplained_ns=unexplained_ns,
        verdict=sentence,
    )

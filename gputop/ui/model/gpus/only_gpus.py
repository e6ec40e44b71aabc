"""What is shown with ``--gpu``: frames and explanations without the other GPUs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gputop.analysis.answer.report import Report
from gputop.engine.frame import Frame
from gputop.playback.feed import Explained


def of_gpus(frame: Frame, gpus: Collection[int]) -> Frame:
    """The frame with these GPUs; () for all."""
    if not gpus:
        return frame
    return replace(frame, gpus=tuple(gpu for gpu in frame.gpus if gpu.index in gpus))


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
    elsewhere = {
        row.pid for row in (frame.processes if frame else ()) if row.gpus and set(row.gpus).isdisjoint(gpus)
    }
    lanes = explained.lanes
    if lanes is not None:
        lanes = replace(lanes, gpus=tuple(lane for lane in lanes.gpus if lane.index in gpus))
    return replace(explained, report=_report(explained.report, gpus, elsewhere), lanes=lanes)


def _report(report: Report, gpus: Collection[int], elsewhere: Collection[int]) -> Report:
    labels = {f"GPU {index}" for index in gpus}
    findings = tuple(one for one in report.findings if one.pid not in elsewhere)
    diagnosis = report.diagnosis
    if diagnosis is not None and diagnosis.lead is not None:
        lead = report.findings[diagnosis.lead]
        place = next((place for place, one in enumerate(findings) if one is lead), None)
        diagnosis = replace(diagnosis, lead=place) if place is not None else None
    shown = tuple(gpu for gpu in report.gpus if gpu.label in labels)
    return replace(report, gpus=shown, findings=findings, diagnosis=diagnosis)

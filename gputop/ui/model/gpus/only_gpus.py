"""Frames and explanations with ``--gpu``: without the other GPUs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gputop.analysis.answer import wording
from gputop.analysis.answer.report import Report
from gputop.engine.frame import Frame
from gputop.playback.feed import Explained

CHOSEN = "--gpu"  # the beginning of a problem about the choice


def of_gpus(frame: Frame, gpus: Collection[int]) -> Frame:
    """Return the frame with these GPUs, () for all; missing ones are a problem."""
    if not gpus:
        return frame
    shown = tuple(gpu for gpu in frame.gpus if gpu.index in gpus)
    here = ", ".join(str(gpu.index) for gpu in frame.gpus)
    absent = ",".join(map(str, sorted({*gpus} - {gpu.index for gpu in frame.gpus})))
    problems = (f"{CHOSEN} {absent}: no such GPU, this machine has {here}",) if absent and here else ()
    return replace(frame, gpus=shown, problems=(*problems, *frame.problems))


def with_unwatched(frame: Frame) -> Frame:
    """Return the frame with the unwatched processes of its GPUs, since they hold memory."""
    here = {gpu.index for gpu in frame.gpus}
    known = {row.pid for row in frame.processes}
    others = [row for row in frame.unwatched if row.pid not in known and not here.isdisjoint(row.gpus or ())]
    return replace(frame, processes=(*frame.processes, *others)) if others else frame


def explained_of_gpus(explained: Explained, frame: Frame | None, gpus: Collection[int]) -> Explained:
    """Return the explanation with these GPUs, without findings of processes that use others only.

    Args:
        explained: The explanation of all GPUs.
        frame: Has the processes' GPUs; findings of unknown processes stay.
        gpus: The GPUs; () for all.
    """
    if not gpus or explained.report is None:
        return explained
    lanes = explained.lanes
    if lanes is not None:
        lanes = replace(lanes, gpus=tuple(lane for lane in lanes.gpus if lane.index in gpus))
    return replace(explained, report=report_of_gpus(explained.report, frame, gpus), lanes=lanes)


def report_of_gpus(report: Report, frame: Frame | None, gpus: Collection[int]) -> Report:
    """Return the report with these GPUs, without findings of processes that use others only."""
    rows = frame.processes if frame else ()
    return wording.of_gpus(
        report, gpus, {row.pid for row in rows if row.gpus and set(row.gpus).isdisjoint(gpus)}
    )

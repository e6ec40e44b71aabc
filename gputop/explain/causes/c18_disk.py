"""C18: the submitting thread waits for the disk."""

from __future__ import annotations

import numpy as np

from gputop.explain.answer.report import DiagnosisKind, Level
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.peer_causes import share
from gputop.explain.causes.registry import register
from gputop.explain.chains.chain import State
from gputop.explain.chains.fileio import file_samples, file_work
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Mask
from gputop.explain.evidence.waits import Wait

MOSTLY = 0.5  # of the time is one file's, for it to be named


def _disk(scene: Scene, free: Mask) -> Mask:
    return free & ((scene.own & scene.waits(Wait.DISK, Wait.READ)) | file_work(scene))


def _level(claim: Claim) -> Level:
    """What slept for the disk is proved; CPU time in system calls on files is known by samples."""
    return Level.STRONG if share(claim, claim.scene.does(State.RUN)) > MOSTLY else Level.PROVED


def _title(claim: Claim) -> str:
    """The file by which most of the time was spent, where one is known."""
    scene, rows = claim.scene, np.flatnonzero(claim.segments)
    names = scene.evidence.files
    spent = np.zeros(len(names))
    asleep = rows[scene.does(State.BLOCKED)[rows] & (scene.segments.slice[rows] >= 0)]
    np.add.at(spent, scene.evidence.slices["file"][scene.segments.slice[asleep]], scene.ns[asleep])
    runs = rows[scene.does(State.RUN)[rows]]
    _segment, met, within = file_samples(scene, runs)
    if within.any():
        each = scene.ns[runs].sum() / within.sum()  # a sample stands for so much
        np.add.at(spent, scene.evidence.places["file"][met[within]], each)
    blocked = scene.ns[asleep].sum() > MOSTLY * claim.ns
    does = "waits for the disk" if blocked else "reads or writes files"
    name = names[int(np.argmax(spent[1:])) + 1] if spent[1:].any() else ""
    if not name.startswith("file:") or spent[1:].max() < MOSTLY * claim.ns:
        return f"the submitting thread {does}"
    return f"the submitting thread {does}: {name.removeprefix('file:')}"


def _advise_disk(_claim: Claim) -> tuple[str, ...]:
    return (
        "it writes or reads a file in the loop (checkpoint, log, fsync): do that in another thread, from a "
        "copy, or less often",
    )


DISK = register(
    Cause(
        "C18",
        "the submitting thread waits for the disk",
        _disk,
        _advise_disk,
        level=_level,
        titled=_title,
        culprit="end",
        kind=DiagnosisKind.HOST,
        family="K",
        rank=140,
    )
)

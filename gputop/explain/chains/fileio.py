"""Reads and writes of files: the CPU time in their system calls beside the time blocked in them."""

from __future__ import annotations

import numpy as np

from gputop.explain.chains.chain import State
from gputop.explain.chains.places import samples_in
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.apiclass import Group
from gputop.explain.evidence.ranges import Ints, Mask
from gputop.explain.evidence.waits import Wait

LEAST_WAIT = 0.2  # of a gap without samples that the disk takes: what runs beside it is the same loop


def file_samples(scene: Scene, rows: Ints) -> tuple[Ints, Ints, Mask]:
    """(segment, row of ``evidence.places``, whether it met a system call on a file) of each sample."""
    segment, met = samples_in(scene, rows)
    names = scene.evidence.files
    files = np.array([name.startswith("file:") for name in names], np.bool_)
    within: Mask = files[scene.evidence.places["file"][met]] if len(met) else np.zeros(0, np.bool_)
    return segment, met, within


def file_work(scene: Scene) -> Mask:
    """The submitter on a CPU, in gaps whose samples mostly met it in a system call on a file.

    Or in gaps without a sample of which the disk takes a fifth, where that holds of those with samples.
    """
    runs = scene.own & scene.does(State.RUN) & scene.inside(Group.OTHER)
    waits = scene.own & scene.waits(Wait.DISK, Wait.READ)
    if not runs.any() or (not waits.any() and not len(scene.evidence.places)):
        return scene.mask()
    segment, _met, within = file_samples(scene, np.flatnonzero(runs))
    gap, size = scene.segments.gap, len(scene.gaps)
    inside = np.bincount(gap[segment[within]], minlength=size)
    outside = np.bincount(gap[segment[~within]], minlength=size)
    long = scene.gap_ns(waits) >= LEAST_WAIT * (scene.gaps.end - scene.gaps.begin)
    chosen = inside > outside
    if inside[long].sum() > outside[long].sum():
        chosen |= (outside == 0) & long
    found: Mask = runs & chosen[gap]
    return found

"""C36: autograd's anomaly mode checks every gradient, and the host waits for each answer."""

from __future__ import annotations

import numpy as np

from gputop.explain.answer.report import DiagnosisKind, Level
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.drains import read_between
from gputop.explain.causes.own_work import own_work
from gputop.explain.causes.registry import register
from gputop.explain.chains.chain import State
from gputop.explain.chains.code import Files, stacks_within
from gputop.explain.chains.places import samples_in
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.apiclass import Group
from gputop.explain.evidence.backward import NAMES
from gputop.explain.evidence.ranges import Ints, Mask, covered, distinct, union

# each operation of the forward pass keeps its Python stack as text, by these files
_FORMATS = "/torch/fx/traceback.py"
_TEXT = "/traceback.py"
LEAST_SAMPLES = 3  # that met it
_CHECKS = 2  # kernels of a check: grad.ne(grad).any()
_MOSTLY = 0.5  # of a thread's samples in the forward pass, for it to be about them
_FLAG_BYTES = 1  # a bool: is a gradient NaN


def keeps_stacks(files: Files) -> bool:
    """Whether a stack is within the code by which anomaly mode keeps the forward pass's stacks."""
    return any(_FORMATS in file for file in files) and any(
        file.endswith(_TEXT) and "/torch/" not in file for file in files
    )


def _on(scene: Scene) -> frozenset[int]:
    """The processes in which it is switched on."""
    places = scene.evidence.places
    if not len(places):
        return frozenset()
    met = places[np.isin(places["stack"], stacks_within(scene, places["stack"], keeps_stacks))]
    thread = scene.evidence.threads.row(met["tid"])
    pids, counts = np.unique(scene.evidence.threads.pid[thread[thread >= 0]], return_counts=True)
    return frozenset(pids[counts >= LEAST_SAMPLES].tolist())


def _checks(scene: Scene, free: Mask) -> Mask:
    switched_on = _on(scene)
    if not switched_on or not len(scene.gaps):
        return scene.mask()
    threads, names = scene.evidence.threads, scene.evidence.facts
    autograd = np.array(
        [
            pid in switched_on and names.thread_name(tid).startswith(NAMES)
            for tid, pid in zip(threads.tid.tolist(), threads.pid.tolist(), strict=True)
        ],
        np.bool_,
    )
    size = read_between(scene)
    flags = autograd[scene.gaps.thread] & (size >= 0) & (size <= _FLAG_BYTES)
    works = own_work(scene)
    forward = free & works & scene.does(State.RUN) & (size < 0)[scene.segments.gap]
    return (free & works & flags[scene.segments.gap]) | _keeping(scene, forward)


def _keeping(scene: Scene, forward: Mask) -> Mask:
    """What threads do in the forward pass, where most of their samples meet them keeping its stacks."""
    found = scene.mask()
    for thread in np.unique(scene.segments.thread[forward]).tolist():
        rows = np.flatnonzero(forward & (scene.segments.thread == thread))
        if _share(scene, rows) >= _MOSTLY:
            found[rows] = True
    return found


def _share(scene: Scene, rows: Ints) -> float:
    """The part of a thread's samples in these segments that meets it keeping stacks; 0 of too few."""
    _segments, met = samples_in(scene, rows)
    stacks = scene.evidence.places["stack"][met]
    keeping = np.count_nonzero(np.isin(stacks, stacks_within(scene, stacks, keeps_stacks)))
    return keeping / len(met) if keeping >= LEAST_SAMPLES else 0.0


def _stacks(claim: Claim) -> tuple[Ints, Ints]:
    """For how long stacks are kept between two calls of the forward pass, whether or not the GPU is idle."""
    scene, calls, slices = claim.scene, claim.scene.evidence.calls, claim.scene.evidence.slices
    forward = claim.segments & (read_between(scene) < 0)[scene.segments.gap]
    found = [(np.zeros(0, np.int64),) * 2]
    for thread in np.unique(scene.segments.thread[forward]).tolist():
        share = _share(scene, np.flatnonzero(forward & (scene.segments.thread == thread)))
        low, high = np.searchsorted(calls["row"], [thread, thread + 1])
        begin, end = np.maximum.accumulate(calls["end"][low:high])[:-1], calls["begin"][low + 1 : high]
        low, high = np.searchsorted(slices["row"], [thread, thread + 1])
        away = union(slices["begin"][low:high], slices["end"][low:high])
        ran = (end > begin) & (covered(away, begin, np.maximum(end, begin)) == 0)
        found.append((begin[ran], begin[ran] + ((end - begin)[ran] * share).astype(np.int64)))
    return np.concatenate([one[0] for one in found]), np.concatenate([one[1] for one in found])


def _checking(claim: Claim) -> Ints:
    """The launches that compare a gradient and look for what differs: the two before each read."""
    scene, calls = claim.scene, claim.scene.evidence.calls
    reads = distinct(scene.gap_facts.read_row[claim.gaps])
    before = np.concatenate([reads - number for number in range(1, _CHECKS + 1)])
    thread = np.tile(calls["row"][reads], _CHECKS)
    before, thread = before[before >= 0], thread[before >= 0]
    launches = scene.evidence.group_of(before) == Group.LAUNCH
    return distinct(before[launches & (calls["row"][before] == thread)])


def _advise(claim: Claim) -> tuple[str, ...]:
    return (
        f"anomaly mode waits {claim.per_step()} in backward() to learn whether a gradient is NaN, and keeps "
        "a Python stack for each operation of the forward pass: torch.autograd.set_detect_anomaly(False); "
        "switch it on only to find a NaN",
    )


ANOMALY = register(
    Cause(
        "C36",
        "autograd's anomaly mode checks each gradient",
        _checks,
        _advise,
        lambda _claim: Level.PROVED,
        overlaps=True,
        works=_stacks,
        calls_go=frozenset({"reads"}),
        between=False,  # the backward pass itself
        gone=_checking,
        kind=DiagnosisKind.SYNC,
        family="S",
        rank=156,
    )
)

"""C35: kernels are launched with arrays of the host, which are copied in and out at each launch (Numba)."""

from __future__ import annotations

import numpy as np

from gputop.explain.answer.report import DiagnosisKind
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.drains import source_of
from gputop.explain.causes.own_work import own_work
from gputop.explain.causes.registry import register
from gputop.explain.chains.code import Files, calls_within
from gputop.explain.chains.formwords import advice_of, title_of
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Ints, Mask
from gputop.format import format_bytes

_COPIES = "/numba/cuda/args.py"  # Numba's module that does so


def copies_arguments(files: Files) -> bool:
    """Whether a stack is within the code that copies arguments."""
    return any(_COPIES in file for file in files)


def _arguments(scene: Scene, free: Mask) -> Mask:
    """Own work around such a copy, the copies that give work among it."""
    gaps = scene.gaps
    if not len(gaps):
        return scene.mask()
    source = source_of(scene)
    drained = np.where(source >= 0, gaps.drained_by[np.maximum(source, 0)], gaps.drained_by)
    around = calls_within(scene, gaps.refilled_by, copies_arguments)
    around |= calls_within(scene, drained, copies_arguments)
    works = own_work(scene) | (scene.own & scene.in_refill)
    return free & works & around[scene.segments.gap]


def _copied(claim: Claim) -> Ints:
    """The copies to and from the device that Numba makes of arguments, and the waits for them."""
    calls = claim.scene.evidence.calls
    rows = np.flatnonzero((calls["pid"] == claim.pid) & (calls["stack"] != 0))
    return rows[calls_within(claim.scene, rows, copies_arguments)]


def _calls_ns(claim: Claim) -> int:
    """Time in the copies themselves outside of these gaps: it goes, too."""
    calls, rows = claim.scene.evidence.calls, _copied(claim)
    inside = claim.segments & claim.scene.in_refill
    spent = int((calls["end"][rows] - calls["begin"][rows]).sum())
    return max(spent - int(claim.scene.ns[inside].sum()), 0)


def _advise(claim: Claim) -> tuple[str, ...]:
    calls, rows = claim.scene.evidence.calls, _copied(claim)
    rows = rows[calls["direction"][rows] > 0]
    size = int(np.median(calls["bytes"][rows])) if len(rows) else 0
    return advice_of("arguments", size=format_bytes(size), times=claim.per_step(len(rows)), torch=False)


HOST_ARRAYS = register(
    Cause(
        "C35",
        "host arrays as arguments of kernels",
        _arguments,
        _advise,
        more=_calls_ns,
        calls_go=frozenset({"reads", "sends"}),
        gone=_copied,
        culprit="refilled_by",
        titled=lambda claim: title_of("arguments", claim.times, torch=False),
        kind=DiagnosisKind.COPY,
        family="C",
        rank=155,
    )
)

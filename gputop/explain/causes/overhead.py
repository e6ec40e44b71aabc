"""C06 and C04 where idle time is estimated: the GPU waits for launches, or for copies that are staged."""

from __future__ import annotations

import numpy as np

from gputop.explain.answer.report import Level
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.drains import read_between
from gputop.explain.causes.reads import not_waited, own_work
from gputop.explain.chains.chain import State
from gputop.explain.chains.scene import BIG_COPY, Scene
from gputop.explain.evidence.apiclass import H2D
from gputop.explain.evidence.ranges import Mask
from gputop.format import format_bytes, format_ns

LONG_NS = 1_000_000  # no call takes Python so long: between two launches the program does other work


TITLE = "CPU overhead between launches"
ADVICE = (
    "launch less: torch.compile(mode='reduce-overhead') or CUDA graphs (torch.cuda.graph), fused optimizers "
    "(fused=True) and kernels, or a larger batch"
)


def _launches(scene: Scene, free: Mask) -> Mask:
    """What the submitting thread does between one piece of work and the next, which is no input."""
    estimated = scene.estimated & own_work(scene)
    # the GPU was found idle by a query: nothing made the thread wait
    asked = not_waited(scene) & (scene.gaps.opener >= 0)
    return free & (estimated | (own_work(scene) & scene.does(State.RUN) & asked[scene.leaves.gap]))


def _staged(scene: Scene, free: Mask) -> Mask:
    """Inside a copy to the device that is large and not from page-locked memory, as far as was seen."""
    calls, closer = scene.evidence.calls, np.maximum(scene.gaps.closer, 0)
    if not len(calls) or not len(scene.gaps):
        return scene.mask()
    pinned = scene.analysis.gpu.ranges.pinned(
        calls["pid"][closer], calls["aux"][closer], calls["begin"][closer]
    )
    copies = scene.gap_facts.sent_bytes >= BIG_COPY
    copies &= (scene.gaps.closer >= 0) & (calls["direction"][closer] == H2D) & ~pinned
    copies &= read_between(scene) < 0
    return free & scene.estimated & scene.own & scene.in_closer & copies[scene.leaves.gap]


def _advise_launches(claim: Claim) -> tuple[str, ...]:
    usual = float(np.median(scene_gaps(claim)))
    if usual >= LONG_NS:
        return (
            f"the submitting thread does {format_ns(usual)} of other work between two launches: move it to "
            "another process, do it less often, or do it after the launches of the next step",
        )
    return (ADVICE,)


def scene_gaps(claim: Claim) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The time that a claim takes of each of its gaps, ns."""
    return claim.scene.gap_ns(claim.leaves)[claim.gaps]


def _advise_staged(claim: Claim) -> tuple[str, ...]:
    size = int(np.median(claim.scene.gap_facts.sent_bytes[claim.gaps]))
    return (
        f"the CPU copies {format_bytes(size)} into the driver's pinned buffers inside each call: "
        "pin_memory=True in the DataLoader (or tensor.pin_memory()) and .to(device, non_blocking=True)",
    )


LAUNCHES = Cause(
    "C06",
    TITLE,
    _launches,
    _advise_launches,
    lambda _claim: Level.STRONG,
    culprit="closer",
)
STAGED = Cause(
    "C04",
    "pageable host-to-device copies",
    _staged,
    _advise_staged,
    lambda _claim: Level.STRONG,
    calls_go=frozenset({"sends"}),
    culprit="closer",
)

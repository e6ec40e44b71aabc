"""C06 in gaps: the GPU was found idle without a wait, so the host does not launch fast enough."""

from __future__ import annotations

from gputop.explain.causes.cause import Cause, Level
from gputop.explain.causes.reads import not_waited, own_work
from gputop.explain.chain import State
from gputop.explain.ranges import Mask
from gputop.explain.scene import Scene

TITLE = "launch-bound: CPU overhead between launches"
ADVICE = (
    "launch less: torch.compile(mode='reduce-overhead') or CUDA graphs (torch.cuda.graph), fused optimizers "
    "(fused=True) and kernels, or a larger batch"
)


def _overhead(scene: Scene, free: Mask) -> Mask:
    """The submitting thread computes after a query that found the GPU idle: nothing made it wait."""
    asked = not_waited(scene) & (scene.gaps.opener >= 0)
    return free & own_work(scene) & scene.does(State.RUN) & asked[scene.leaves.gap]


OVERHEAD = Cause(
    "C06",
    TITLE,
    _overhead,
    lambda _claim: (ADVICE,),
    lambda _claim: Level.STRONG,
    culprit="closer",
)

"""Which cause each segment belongs to: the catalogue's causes take their pieces in turn."""

from __future__ import annotations

import numpy as np

from gputop.explain.causes import CATALOGUE
from gputop.explain.chains.chain import State
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Ints
from gputop.explain.findings.traced_owners import traced_owners


def owners(scene: Scene) -> Ints:
    """The row of ``CATALOGUE`` of each segment, -1 where no cause takes it."""
    free = np.isin(scene.segments.state, [State.RUN, State.QUEUED, State.BLOCKED, State.OUTSIDE])
    free |= scene.unrecorded
    owner, settled = traced_owners(scene)
    free &= ~settled
    for number, cause in enumerate(CATALOGUE):
        taken = cause.claim(scene, free)
        owner[taken] = number
        free = free & ~taken  # another array: a cause may take all of it
    return owner

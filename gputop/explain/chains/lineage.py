"""Which waits led to a segment: questions about the whole way from the submitting thread down."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gputop.explain.chains.chain import DEPTH
from gputop.explain.chains.pytorch import by_loader
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Mask


def any_on_the_way(scene: Scene, chosen: Mask) -> Mask:
    """Leaves that lie in one of these stays off the CPU, or were reached through one.

    Args:
        scene: Everything.
        chosen: Of ``evidence.slices``.
    """
    segments, links = scene.segments, scene.links
    if not len(chosen):
        return scene.mask()
    own = segments.slice >= 0
    found: Mask = own & chosen[np.maximum(segments.slice, 0)]
    if not len(links.slice):
        return found
    above, reached = links.above, links.of_slices(chosen, 0)
    for _ in range(DEPTH):
        reached = reached | np.where(above >= 0, reached[np.maximum(above, 0)], False)
    linked = segments.link >= 0
    found |= linked & reached[np.maximum(segments.link, 0)]
    return found


def led_by(scene: Scene, waits: Callable[[frozenset[str]], bool], chosen: Mask | None = None) -> Mask:
    """Leaves to which a wait in certain Python code led.

    Args:
        scene: Everything.
        waits: Whether it is that code, by the paths of the files on the waiting thread's stack.
        chosen: The stays off the CPU that count; all of them by default.
    """
    slices, stacks = scene.evidence.slices, scene.evidence.facts.stacks
    if not len(slices) or not slices["stack"].any():
        return scene.mask()
    found = [
        stack
        for stack in np.unique(slices["stack"]).tolist()
        if waits(frozenset(frame.file for frame in stacks.frames(stack)))
    ]
    within = np.isin(slices["stack"], found)
    return any_on_the_way(scene, within if chosen is None else within & chosen) if found else scene.mask()


def in_loader(scene: Scene) -> Mask:
    """Leaves to which a wait for the next batch led, by the Python code that waits: PyTorch's DataLoader."""
    return led_by(scene, by_loader)

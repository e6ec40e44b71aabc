"""Memory that grows without end: held bytes that rise in every part of the time that is looked at.

What fills up at first and then stays, as a model, its optimizer and an allocator's caches do, rises in the
first parts only. A line leaks where in each of six parts, one after another, the least that it holds is more
than the least of the part before, and where it does not rise more and more slowly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gputop.explain.evidence.held import History, Origin

PARTS = 6
POINTS = 3  # of the history in each part
LEAST_BYTES = 1 << 20
LEAST_NS = 4_000_000_000  # what is shorter tells nothing
STEADY = 0.4  # of the growth of the first half: the second grows by at least so much

Ints = npt.NDArray[np.int64]


class Growth(NamedTuple):
    """By so many bytes, over so many ns, up to ``held``."""

    grown: int
    over_ns: int
    held: int


def growth_of(history: History, origins: Iterable[Origin]) -> Growth | None:
    """How some origins together grow without end; None where they do not, or that is not known yet."""
    wanted = tuple(origins)
    times = np.array([time for time, _ in history], np.int64)
    held = np.array([sum(at.get(origin, 0) for origin in wanted) for _, at in history], np.int64)
    for share in (1, 2, 4):  # all of it, or only the newest half or quarter
        count = len(times) // share
        if count >= PARTS * POINTS and times[-1] - times[-count] >= LEAST_NS:
            found = _growing(times[-count:], held[-count:])
            if found is not None:
                return found
    return None


def _growing(times: Ints, held: Ints) -> Growth | None:
    edges = np.linspace(times[0], times[-1], PARTS + 1)
    part = np.clip(np.searchsorted(edges, times, side="right") - 1, 0, PARTS - 1)
    if len(np.unique(part)) < PARTS:
        return None
    least = np.array([held[part == number].min() for number in range(PARTS)])
    steps = np.diff(least)
    grown = int(least[-1] - least[0])
    if (steps <= 0).any() or grown < LEAST_BYTES:
        return None
    half = PARTS // 2
    early, late = int(least[half - 1] - least[0]), int(least[-1] - least[half])
    if late < STEADY * early:
        return None
    first, last = (int(times[part == number][0]) for number in (0, PARTS - 1))
    return Growth(grown, last - first, int(held[-1]))

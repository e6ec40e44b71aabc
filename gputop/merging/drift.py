"""How fast two clocks drift apart, by moments that both saw."""

from __future__ import annotations

from typing import Final

import numpy as np

from gputop.explain.evidence.ranges import Floats

FASTEST: Final = 1e-3  # time servers change a clock by half of it at most


def slope_of(time: Floats, apart: Floats) -> float:
    """The share by which a difference grows: Theil and Sen's slope, of pairs that are far apart.

    Args:
        time: When the difference was seen, ascending, ns.
        apart: The difference then, ns; a few may be wrong.
    """
    half = len(time) // 2
    run = time[half : 2 * half] - time[:half]
    rise = apart[half : 2 * half] - apart[:half]
    pairs = run > 0
    return float(np.median(rise[pairs] / run[pairs])) if pairs.any() else 0.0

"""Joining intervals without loops: what the engine and the explanation share."""

from __future__ import annotations

import numpy as np

from gputop.engine.histogram import Ints


def expand(first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """(owner, item): every i with each of ``first[i] … last[i] - 1``; empty where last <= first."""
    counts = np.maximum(last - first, 0)
    owner = np.repeat(np.arange(len(first), dtype=np.int64), counts)
    start = np.repeat(first - (np.cumsum(counts) - counts), counts)
    return owner, start + np.arange(len(owner), dtype=np.int64)

"""Ranks of made-up jobs: who is late by how much is chosen, and the clocks that tell of it are wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gputop.fleet.ranks.alignment import UNKNOWN
from gputop.fleet.ranks.lateness import CollectiveTimes

MS = 1_000_000
STEP_MS, READY_MS = 20.0, 4.0  # what every rank does in a step, and for how long its GPU is idle for that
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Job:
    """One job as its hosts saw it; ``ahead`` is by how much each rank's clock truly is ahead of the first."""

    meetings: CollectiveTimes
    ahead: Ints


def job(
    seed: int,
    *,
    late: int = -1,
    late_ms: float = 0.0,
    ranks: int = 8,
    hosts: int = 8,
    meetings: int = 80,
    jitter_ms: float = 0.3,
    hidden: bool = False,
    waits: float = 1.0,
) -> Job:
    """Steps of ranks that meet at the end of each.

    Args:
        seed: Of all that is by chance.
        late: A rank that comes ``late_ms`` behind; -1: none.
        late_ms: Milliseconds.
        ranks: How many.
        hosts: Ranks are spread over so many, each with its own clock.
        meetings: Steps.
        jitter_ms: By how much steps of any rank differ.
        hidden: The late rank's host is behind, and its GPU has work meanwhile.
        waits: Share of the collectives that a host waits for.
    """
    chance = np.random.default_rng(seed)
    host = np.arange(ranks) * hosts // ranks
    offset = chance.integers(-(10**12), 10**12, hosts)[host]
    drift = chance.uniform(-80e-6, 80e-6, hosts)[host]
    wave = chance.uniform(0, 2 * np.pi, hosts)[host]  # a clock whose speed is being corrected
    start = int(chance.integers(10**14, 10**16))

    def told(true: Floats) -> Ints:
        bend = 50_000 * np.sin(true / 5e9 + wave)
        seen: Ints = (start + offset + np.rint(true * (1 + drift) + bend)).astype(np.int64)
        return seen

    begin, end, idle = (np.zeros((meetings, ranks), np.int64) for _ in range(3))
    ahead = np.zeros((meetings, ranks), np.int64)
    free = np.zeros(ranks)
    for row in range(meetings):
        own = np.abs(chance.normal(0, jitter_ms, ranks)) * MS
        own[late] += late_ms * MS * chance.normal(1, 0.02) if late >= 0 else 0
        arrived = free + STEP_MS * MS + own
        over = arrived.max() + 0.5 * MS
        seen = over + chance.exponential(0.03 * MS, ranks)  # the thread has to get a CPU first
        begin[row], end[row] = told(arrived), told(seen)
        idle[row] = READY_MS * MS + (0 if hidden else own)
        ahead[row] = told(arrived) - start - np.rint(arrived).astype(np.int64)
        free = seen
    end[chance.random(end.shape) >= waits] = UNKNOWN
    period = float(np.median(np.diff(begin[:, 0])))
    slack = np.full(begin.shape, 10_000)
    made = CollectiveTimes(begin, end, slack, idle, np.zeros(begin.shape, np.bool_), host, period)
    return Job(made, ahead - ahead[:, :1])

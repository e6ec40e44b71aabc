"""Copies that their calls make: large ones to pageable memory of the host, and those that wait for their end.

Their time lies at the end of the call, behind all that the stream had before, and is no kernel's; NVML counts
kernels only.
"""

from __future__ import annotations

import numpy as np

from gputop.explain.evidence.apiclass import D2H, H2D, Group, Role
from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.ranges import Ints
from gputop.explain.proofs.gaps import GpuTime
from gputop.explain.proofs.workqueue import BIG_COPY, Queue

READ_RATE = 12.0  # bytes per ns that a CPU takes out of the driver's buffers, where no copy says how many


def readbacks(evidence: Evidence, gpu: GpuTime, queue: Queue) -> tuple[Ints, Ints]:
    """(place in the queue, ns) of those copies; a call that is shorter has not made it, and is none."""
    calls, at = evidence.calls, np.flatnonzero((queue.row >= 0) & ~queue.kernel)
    rows = queue.row[at]
    chosen = (evidence.group_of(rows) == Group.COPY) & (calls["bytes"][rows] >= BIG_COPY)
    chosen &= np.isin(calls["direction"][rows], (D2H, H2D))
    at, rows = at[chosen], rows[chosen]
    reads = calls["direction"][rows] == D2H
    pinned = gpu.ranges.pinned(calls["pid"][rows], calls["aux"][rows], calls["begin"][rows])
    rates = queue.rates
    rate = rates.of(D2H, pinned=False)
    per_byte = rate.ns if rate is not rates.usual else max(rate.ns, 1 / READ_RATE)
    sure = max(1 - rate.error, 0.1)
    size, lasts = calls["bytes"][rows], calls["end"][rows] - calls["begin"][rows]
    took = (size * np.where(reads & ~pinned, per_byte, 0.0)).astype(np.int64)
    itself = pinned & (evidence.role_of(rows) == Role.COPY_SYNC)
    took = np.where(itself, np.minimum(queue.fixed[at], lasts).astype(np.int64), took)
    own = (itself | (reads & ~pinned)) & (lasts >= sure * took)
    return at[own], np.minimum(took, lasts)[own]

"""Large copies to pageable memory of the host: the call makes them, after all that its stream had before.

So their time lies at the end of the call, and is no kernel's; NVML counts kernels only.
"""

from __future__ import annotations

import numpy as np

from gputop.explain.evidence.apiclass import D2H, Group
from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.ranges import Ints
from gputop.explain.proofs.gaps import GpuTime
from gputop.explain.proofs.workqueue import BIG_COPY, Queue, link_rate

# bytes per ns that a CPU takes out of the driver's buffers at most, however fast the link is
READ_RATE = 12.0


def readbacks(evidence: Evidence, gpu: GpuTime, queue: Queue) -> tuple[Ints, Ints]:
    """(place in the queue, ns) of those copies; a call that is shorter has not made it, and is none."""
    calls, at = evidence.calls, np.flatnonzero((queue.row >= 0) & ~queue.kernel)
    rows = queue.row[at]
    chosen = (evidence.group_of(rows) == Group.COPY) & (calls["direction"][rows] == D2H)
    at, rows = at[chosen], rows[chosen]
    took = (calls["bytes"][rows] / min(link_rate(evidence), READ_RATE)).astype(np.int64)
    own = (calls["bytes"][rows] >= BIG_COPY) & (calls["end"][rows] - calls["begin"][rows] >= took)
    own &= ~gpu.ranges.pinned(calls["pid"][rows], calls["aux"][rows], calls["begin"][rows])
    return at[own], took[own]

"""The catalogue: what a gap can be blamed on, in the order in which the causes are asked."""

from __future__ import annotations

from gputop.explain.causes.allocations import DEVICE_MEMORY, GRAPHS, HOST_MEMORY
from gputop.explain.causes.cause import Cause
from gputop.explain.causes.inputs import PREPARED, TINY_COPIES
from gputop.explain.causes.kernel import DISK, MEMORY, NETWORK
from gputop.explain.causes.loaders import COMPUTING, FAULTS, ON_DISK, STARVED
from gputop.explain.causes.overhead import LAUNCHES, STAGED
from gputop.explain.causes.reads import BLOCKING, EXPLICIT, PRINTS, SCALAR, TENSOR
from gputop.explain.causes.scheduling import LATE_RETURN, LOCK, PREEMPTED, THROTTLE
from gputop.explain.causes.unasked import UNASKED

# What fills the gap decides first; only the enqueuer's own work goes by the call that opened it.
CATALOGUE: tuple[Cause, ...] = (
    THROTTLE,
    UNASKED,
    NETWORK,
    LATE_RETURN,
    PREEMPTED,
    DEVICE_MEMORY,
    HOST_MEMORY,
    GRAPHS,
    LOCK,
    ON_DISK,
    FAULTS,
    STARVED,
    COMPUTING,
    DISK,
    MEMORY,
    PRINTS,
    TINY_COPIES,
    STAGED,
    PREPARED,
    SCALAR,
    TENSOR,
    BLOCKING,
    EXPLICIT,
    LAUNCHES,
)

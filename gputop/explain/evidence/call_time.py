"""What a thread did during its calls: on a CPU, in a run queue, blocked; to the nanosecond."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gputop.engine.intervals import expand
from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.ranges import Ints, overlap


@dataclass(frozen=True, slots=True)
class CallTime:
    """The parts of each call; they sum up to its duration."""

    on_cpu: Ints
    queued: Ints
    blocked: Ints


def call_time(evidence: Evidence, rows: Ints) -> CallTime:
    """The parts of these calls."""
    calls = evidence.calls
    return time_within(evidence, calls["row"][rows], calls["begin"][rows], calls["end"][rows])


def time_within(evidence: Evidence, thread: Ints, begin: Ints, end: Ints) -> CallTime:
    """The parts of intervals of threads."""
    slices = evidence.slices
    first = np.searchsorted(evidence.slice_ends, evidence.key(thread, begin), side="right")
    last = np.searchsorted(evidence.slice_begins, evidence.key(thread, end), side="left")
    owner, item = expand(first, last)
    low, high = begin[owner], end[owner]
    asleep = overlap(slices["begin"][item], slices["queued"][item], low, high)
    waiting = overlap(slices["queued"][item], slices["end"][item], low, high)
    blocked = np.bincount(owner, weights=asleep, minlength=len(begin)).astype(np.int64)
    queued = np.bincount(owner, weights=waiting, minlength=len(begin)).astype(np.int64)
    return CallTime(end - begin - queued - blocked, queued, blocked)

"""How fast copies go by the time that is left of waits beside the kernels that NVML saw.

Between two proofs of emptiness a stream ran kernels and copies. Where the program waited until they had
ended, their times add up to that time; NVML says how long kernels ran. What is left went into copies. The GPU
may have stood still before the wait began, so this is an upper bound; the time in waits alone is a lower one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gputop.explain.evidence.apiclass import D2H, H2D, Group, Role
from gputop.explain.evidence.call_time import call_time
from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.ranges import FOREVER, covered, union
from gputop.explain.proofs.copyrates import LEAST_ERROR, OTHERS_ERROR, UNSTAGED, WORST, CopyRates, Rate
from gputop.explain.proofs.gaps import DeviceTime, GpuTime
from gputop.explain.proofs.witness import Witness
from gputop.explain.proofs.workqueue import Queue

SLOW_OUT = 0.1  # ns that the CPU may take to copy a byte to where it has not been, where no copy says it
HELD = 0.9  # of the kernels must lie in parts of the queue that say how long they took
FEWEST = 8  # such parts
VAGUE = 0.5  # a rate that may be off by more is no better than what NVML says of the lanes
LARGE = 64 << 10  # bytes of a part's copies


def copy_rates_of(
    evidence: Evidence, gpu: GpuTime, span: DeviceTime, queue: Queue, seen: Witness | None
) -> CopyRates:
    """The rates of a queue's copies; those that no copy told by itself by what its waits leave."""
    rates = queue.rates
    if seen is None or queue.streams != 1 or rates.known or not rates.doubt:
        return rates
    calls = evidence.calls
    known = np.maximum(queue.row, 0)
    copies = (queue.row >= 0) & ~queue.kernel & (evidence.group_of(known) == Group.COPY)
    copies &= np.isin(calls["direction"][known], (H2D, D2H))
    size = np.where(copies, calls["bytes"][known], 0).astype(np.float64)
    first = np.flatnonzero(np.append(True, queue.group[1:] != queue.group[:-1]))
    last = np.append(first[1:], len(queue)) - 1
    begin = np.maximum(queue.ready[first], np.append(0, queue.limit[last[:-1]]))
    end = queue.limit[last]
    moved = np.add.reduceat(size, first)
    kernels = np.add.reduceat(queue.kernel.astype(np.int64), first)
    read = copies & (calls["direction"][known] == D2H)
    at = known[copies]
    locked = np.zeros(len(queue), np.bool_)
    locked[copies] = gpu.ranges.pinned(calls["pid"][at], calls["aux"][at], calls["begin"][at])
    read_out = np.add.reduceat(np.where(read & ~locked, size, 0.0), first)
    # what the CPU staged inside calls is gone when these return, and no part of what is left
    staged = np.where(queue.staged, np.minimum(calls["end"][known] - calls["begin"][known], np.inf), 0.0)
    staging = rates.staging if rates.staging is not None else UNSTAGED
    staged = np.add.reduceat(np.minimum(staged, staging * size), first)
    # waits, for whatever, and copies that return with their data
    waits = read & (~locked | (evidence.role_of(known) == Role.COPY_SYNC))
    waiting = union(
        np.append(gpu.pending(span.device)[0], calls["begin"][known[waits]]),
        np.append(gpu.pending(span.device)[1], calls["end"][known[waits]]),
    )
    chosen = (end < FOREVER // 2) & (end > begin) & (moved >= LARGE)
    waited = np.zeros(len(first), np.int64)
    waited[chosen] = covered(waiting, begin[chosen], end[chosen])
    chosen &= waited > 0
    if np.count_nonzero(chosen) < FEWEST or kernels[chosen].sum() < HELD * kernels.sum():
        return rates
    ran, total = seen.busy * span.span_ns * kernels[chosen].sum() / max(kernels.sum(), 1), moved[chosen].sum()
    # the CPU takes a part of a copy to pageable memory, beside the link or after it, and may wait for a CPU
    slow = staging if rates.staging is not None else SLOW_OUT
    out = slow * read_out[chosen].sum() + call_time(evidence, known[waits]).queued.sum()
    more = staged[chosen].sum() - ran
    least = (waited[chosen].sum() - out + more) / total
    most = ((end - begin)[chosen].sum() + more) / total
    return _with(rates, least, most, seen.error * span.span_ns / total)


def _with(rates: CopyRates, least: float, most: float, error: float) -> CopyRates:
    """The rates with this one, where it says more than they do."""
    nominal = rates.usual.ns
    least, most = max(least - error, nominal), min(most + error, WORST * nominal)
    if most <= nominal or most < least:
        return rates
    middle = (least + most) / 2
    usual = Rate(middle, max((most - least) / 2 / middle, LEAST_ERROR + OTHERS_ERROR / 2))
    if usual.error > VAGUE:  # what the lanes say is as likely
        usual = Rate(nominal, min(most / nominal - 1, rates.usual.error))
    return replace(rates, usual=usual, doubt=usual.error)

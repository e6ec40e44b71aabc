"""Which call is the first to show that what a call gave its stream has ended."""

from __future__ import annotations

import numpy as np

from gputop.explain.evidence.ranges import Ints
from gputop.explain.proofs.gaps import GpuTime


def first_shown(gpu: GpuTime, rows: Ints) -> Ints:
    """The row of the first call to return by which what each call gave its stream had ended; -1: none.

    Args:
        gpu: The streams, and what is proved of them.
        rows: Calls that give work, rising.
    """
    found = np.full(len(rows), -1, np.int64)
    for stream in range(len(gpu.streams)) if len(rows) else ():
        operations = gpu.streams.operations(stream)
        place = np.searchsorted(rows, gpu.streams.enqueue_row[operations])
        mine = rows[np.minimum(place, len(rows) - 1)] == gpu.streams.enqueue_row[operations]
        place, given = place[mine], gpu.streams.enqueue_end[operations[mine]]
        cover, row = gpu.proved_by(stream)
        end = gpu.evidence.calls["end"][row]
        first = end == np.minimum.accumulate(end[::-1])[::-1]  # no later proof returns sooner
        whose = np.append(row[first], -1)
        found[place] = whose[np.searchsorted(cover[first], given, side="left")]
    return found

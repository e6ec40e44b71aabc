"""Equal values get equal numbers, unequal ones never: exact identity of handles, without sorting them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gputop.explain.evidence.ranges import Ints

_MULTIPLIERS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
_SLOTS_BITS = 16


def group_ids(values: npt.NDArray[np.uint64]) -> tuple[Ints, npt.NDArray[np.uint64]]:
    """The number of each value, and the value of each number.

    A table of slots finds one that may be equal, and equality decides; what met another value in its slot
    goes to the next table, and what is left after all of them is sorted.
    """
    ids = np.full(len(values), -1, np.int64)
    distinct: list[npt.NDArray[np.uint64]] = []
    known = 0
    rest: Ints | None = None  # rows without a number yet; None: all
    for multiplier in _MULTIPLIERS:
        left = values if rest is None else values[rest]
        if not len(left):
            break
        slot = (left * np.uint64(multiplier)) >> np.uint64(64 - _SLOTS_BITS)
        table = np.full(1 << _SLOTS_BITS, -1, np.int64)
        table[slot] = np.arange(len(left))
        used = np.flatnonzero(table >= 0)
        owner = left[table[used]]
        number = np.zeros(1 << _SLOTS_BITS, np.int64)
        number[used] = np.arange(len(used))
        mine = number[slot]
        same = owner[mine] == left
        if rest is None:
            ids = np.where(same, mine, -1)
            rest = np.flatnonzero(~same)
        else:
            ids[rest[same]] = known + mine[same]
            rest = rest[~same]
        distinct.append(owner)
        known += len(owner)
    if rest is not None and len(rest):
        unique, number = np.unique(values[rest], return_inverse=True)
        ids[rest] = known + number.reshape(-1)
        distinct.append(unique)
    return ids, np.concatenate([np.zeros(0, np.uint64), *distinct])

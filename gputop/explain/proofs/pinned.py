"""Which host memory is page-locked, as far as its allocation was seen."""

from __future__ import annotations

import numpy as np

from gputop.explain.evidence.apiclass import Role
from gputop.explain.evidence.evidence import Column, Columns, Evidence
from gputop.explain.evidence.ranges import FOREVER, Ints

_KNOWN_ADDRESSES = 4096  # a program that page-locks more ranges than this reuses few of them


class HostRanges:
    """Page-locked ranges per process, with the time in which they are."""

    def __init__(self, evidence: Evidence) -> None:
        calls = evidence.calls
        roles = evidence.role(calls)
        events = np.flatnonzero(
            ((roles == Role.HOST_RANGE) | (roles == Role.HOST_FREE)) & (calls["ret"] == 0)
        )
        events = events[np.argsort(calls["end"][events], kind="stable")]
        self._complete = evidence.complete
        self._ranges: dict[int, list[list[int]]] = {}
        for row in events.tolist():
            self._take(calls, row, bool(roles[row] == Role.HOST_RANGE))

    def _take(self, calls: Columns, row: int, begins: bool) -> None:
        ranges = self._ranges.setdefault(int(calls["pid"][row]), [])
        address = int(calls["aux"][row])
        if begins:
            end = min(address + max(int(calls["bytes"][row]), 0), (1 << 64) - 1)
            ranges.append([address, end, int(calls["end"][row]), FOREVER])
            return
        for known in reversed(ranges):
            if known[0] == address and known[3] == FOREVER:
                known[3] = int(calls["begin"][row])
                return

    def pinned(self, pid: Column, address: Column, time: Column) -> Column:
        """Whether each address was page-locked then, by an allocation that was seen."""
        result = np.zeros(len(pid), np.bool_)
        for number in np.unique(pid).tolist():
            ranges = np.array(self._ranges.get(int(number), ()), np.uint64).reshape(-1, 4)
            if not len(ranges):
                continue
            mine = np.flatnonzero(pid == number)
            places, where = np.unique(address[mine], return_inverse=True)
            if len(places) > _KNOWN_ADDRESSES:
                result[mine] = _inside(ranges, address[mine], time[mine])
                continue
            for place, at in enumerate(places.tolist()):
                held = ranges[(ranges[:, 0] <= at) & (ranges[:, 1] > at)]
                rows = mine[where.reshape(-1) == place] if len(held) else mine[:0]
                for begin, end in held[:, 2:].astype(np.int64).tolist():
                    result[rows] |= (time[rows] >= begin) & (time[rows] < end)
        return result

    def certain(self, pid: int) -> bool:
        """Whether memory that was not seen to be page-locked is pageable for certain."""
        return pid in self._complete


def _inside(ranges: Column, address: Column, time: Ints) -> Column:
    """For very many addresses: the ranges one after the other."""
    result = np.zeros(len(address), np.bool_)
    for low, high, begin, end in ranges.tolist():
        result |= (address >= low) & (address < high) & (time >= int(begin)) & (time < int(end))
    return result

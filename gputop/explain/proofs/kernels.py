"""When a GPU was idle by its own clock: where a file holds its kernels, nothing need be proved."""

from __future__ import annotations

import numpy as np

from gputop.explain.evidence.activity import ON_GPU
from gputop.explain.evidence.apiclass import D2H, Group, Role
from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.ranges import FOREVER, Ints, Mask, covered, intersect, length, subtract, union
from gputop.explain.proofs.gaps import FIRST_NS, DeviceTime, Gaps, GpuTime
from probes.activities import Table

Intervals = tuple[Ints, Ints]

_WAITS = (Role.PROVE_DEVICE, Role.PROVE_STREAM, Role.PROVE_EVENT, Role.COPY_SYNC)
_NO_LOADING = (Group.SYNC, Group.QUERY, Group.EVENT, Group.COPY)  # long for other reasons
_MOSTLY = 0.5  # of a gap in calls that load or allocate, for a first use
_SKEW_NS = 10_000  # by which the clocks of host and GPU may be apart in such a file
_AGAIN = 3  # a kernel that runs so often belongs to what repeats


def held_kernels(evidence: Evidence) -> bool:
    """Whether the file tells what the GPU itself did, for every process that gave it something.

    With ``--inside`` a program's CUPTI may refuse, or a profiler may take it over: its work is missing.
    """
    rows = evidence.activities.of(*ON_GPU)
    if not len(rows) or not evidence.header.get("inside"):
        return bool(len(rows))
    calls, processes = evidence.calls, evidence.facts.processes
    gives = (evidence.role(calls) == Role.ENQUEUE) & (calls["ret"] == 0)
    pids = np.unique(calls["pid"][gives]).tolist()
    return not any("inside_refused" in processes.get(pid, {}) for pid in pids)


class KernelTime(GpuTime):
    """As ``GpuTime``, but exact: the GPU was at work while a kernel, a copy or a fill ran, and only then.

    Attributes:
        rows: What the GPUs ran.
        unlinked: Of each GPU the idle time that work ended whose launch is not in the file.
        first_use: Of each GPU the idle time in which code was loaded and memory was taken for the first time.
    """

    def __init__(self, evidence: Evidence, stretch: tuple[int, int] = (0, FOREVER)) -> None:
        """As of ``GpuTime``."""
        self.rows = evidence.activities.of(*ON_GPU)
        self.unlinked: dict[int, Intervals] = {}
        self.first_use: dict[int, Intervals] = {}
        super().__init__(evidence, stretch)

    def _numbers(self) -> list[int]:
        """Every GPU that ran anything, whatever calls are in the file."""
        return [self.devices.number(index) for index in np.unique(self.rows["device"]).tolist() if index >= 0]

    def pending(self, device: int, without: int = -1) -> Intervals:
        """When a GPU was at work; the work of one process may be left out."""
        rows = self.of(device)
        rows = rows[rows["pid"] != without] if without >= 0 else rows
        return union(rows["begin"].astype(np.int64), rows["end"].astype(np.int64))

    def of(self, device: int) -> Table:
        """What one GPU ran, by begin."""
        chosen: Table = self.rows[self.rows["device"] == self.devices.index[device]]
        return chosen

    def _device(self, device: int) -> Gaps:
        if (self.streams.device == device).any():
            super()._device(device)  # when streams were empty, which causes ask for
            self.spans.pop()
        rows = self.of(device)
        low, high = self.stretch
        first = min(max(int(rows["begin"].min()), low), high)
        last = max(min(int(rows["end"].max()), high), first)
        span = np.array([first]), np.array([last])
        busy = intersect(self.pending(device), span)
        begin, end = subtract(span, busy)
        torn = covered(self.evidence.lost, begin, end) > 0  # what ran there may be missing
        self.unknown[device] = (begin[torn], end[torn])
        self.voided_ns += int((end - begin)[torn].sum())
        begin, end = begin[~torn], end[~torn]
        self.spans.append(DeviceTime(device, first, last, int((end - begin).sum()), length(*busy), 0))
        refilled = self._calls_of(rows, end, after=True)
        fresh = self._fresh(rows, begin, end, refilled)
        self.first_use[device] = (begin[fresh], end[fresh])
        none = refilled < 0  # without the call that gave it work nobody can be asked for the gap
        self.unlinked[device] = (begin[none], end[none])
        keep = ~none & ~fresh
        begin, end, refilled = begin[keep], end[keep], refilled[keep]
        drained = self._waits_at(begin, end, self._calls_of(rows, begin, after=False))
        return self._gaps_of(device, begin, end, drained, refilled)

    def _fresh(self, rows: Table, begin: Ints, end: Ints, refilled: Ints) -> Mask:
        """Gaps before what repeats has run once, mostly in long calls that load or allocate."""
        calls = self.evidence.calls
        fresh: Mask = np.zeros(len(begin), np.bool_)
        long = calls["end"] - calls["begin"] >= FIRST_NS
        long &= ~np.isin(self.evidence.group(calls), [int(group) for group in _NO_LOADING])
        if not long.any():
            return fresh
        _names, at, times = np.unique(rows["name"], return_index=True, return_counts=True)
        again = times >= _AGAIN
        warm = int(rows["begin"][at[again]].max()) if again.any() else int(rows["begin"].max())
        for pid in np.unique(calls["pid"][np.maximum(refilled, 0)]).tolist():
            mine = (refilled >= 0) & (calls["pid"][np.maximum(refilled, 0)] == pid)
            loads = np.flatnonzero(long & (calls["pid"] == pid))
            inside = covered(union(calls["begin"][loads], calls["end"][loads]), begin, end)
            fresh |= mine & (end <= warm) & (inside >= FIRST_NS) & (inside >= _MOSTLY * (end - begin))
        return fresh

    def _gaps_of(self, device: int, begin: Ints, end: Ints, drained: Ints, refilled: Ints) -> Gaps:
        count = len(begin)
        thread = self.evidence.calls["row"][refilled] if count else np.zeros(0, np.int64)
        return Gaps(
            begin,
            end,
            np.full(count, device, np.int64),
            drained,
            refilled,
            thread.astype(np.int64),
            np.ones(count, np.bool_),
            np.zeros(count, np.bool_),
        )

    def _calls_of(self, rows: Table, times: Ints, *, after: bool) -> Ints:
        """The call that gave the GPU what began (``after``) or ended at each time; -1: not known."""
        times_of = rows["begin" if after else "end"]
        order = np.argsort(times_of, kind="stable")
        place = np.minimum(np.searchsorted(times_of[order], times, side="left"), len(order) - 1)
        chosen = rows[order[place]]
        calls, threads = self.evidence.calls, self.evidence.threads
        if not len(calls):
            return np.full(len(times), -1, np.int64)
        keys = self.evidence.key(calls["row"], calls["begin"])
        row = threads.row(chosen["call_tid"])
        wanted = self.evidence.key(np.maximum(row, 0), chosen["call_begin"])
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        found = (row >= 0) & (keys[at] == wanted) & (chosen["call_begin"] > 0)
        return np.where(found, at, -1)

    def _waits_at(self, begin: Ints, end: Ints, otherwise: Ints) -> Ints:
        """The wait under way when the GPU ran dry that ended before it had work again; else the last launch.

        A copy to the host from which a call returns later is waited for by that call.
        """
        calls = self.evidence.calls
        copies = self.evidence.group(calls) == Group.COPY
        waits = np.isin(self.evidence.role(calls), _WAITS) | (copies & (calls["direction"] == D2H))
        waits = np.flatnonzero(waits)
        waits = waits[np.argsort(calls["end"][waits], kind="stable")]
        if not len(calls):
            return otherwise
        otherwise = np.where((otherwise >= 0) & copies[otherwise], -1, otherwise)
        if not len(waits):
            return otherwise
        place = np.minimum(np.searchsorted(calls["end"][waits], begin - _SKEW_NS), len(waits) - 1)
        row = waits[place]
        fits = (calls["begin"][row] <= begin) & (calls["end"][row] >= begin - _SKEW_NS)
        return np.where(fits & (calls["end"][row] <= end), row, otherwise)

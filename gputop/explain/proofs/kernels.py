"""When a GPU was idle by its own clock: where a file holds its kernels, nothing need be proved."""

from __future__ import annotations

import numpy as np

from gputop.explain.evidence.activity import ON_GPU
from gputop.explain.evidence.apiclass import Role
from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.ranges import FOREVER, Ints, intersect, length, subtract, union
from gputop.explain.proofs.gaps import DeviceTime, Gaps, GpuTime
from probes.activities import Table

_WAITS = (Role.PROVE_DEVICE, Role.PROVE_STREAM, Role.PROVE_EVENT, Role.COPY_SYNC)


def held_kernels(evidence: Evidence) -> bool:
    """Whether the file tells what the GPU itself did."""
    return bool(len(evidence.activities.of(*ON_GPU)))


class KernelTime(GpuTime):
    """As ``GpuTime``, but exact: the GPU was at work while a kernel, a copy or a fill ran, and only then."""

    def __init__(self, evidence: Evidence, stretch: tuple[int, int] = (0, FOREVER)) -> None:
        """As of ``GpuTime``."""
        self._rows = evidence.activities.of(*ON_GPU)
        super().__init__(evidence, stretch)

    def pending(self, device: int, without: int = -1) -> tuple[Ints, Ints]:
        """When a GPU was at work; the work of one process may be left out."""
        rows = self._of(device)
        rows = rows[rows["pid"] != without] if without >= 0 else rows
        return union(rows["begin"].astype(np.int64), rows["end"].astype(np.int64))

    def _of(self, device: int) -> Table:
        chosen: Table = self._rows[self._rows["device"] == self.devices.index[device]]
        return chosen

    def _device(self, device: int) -> Gaps:
        super()._device(device)  # when streams were empty, which causes ask for
        self.spans.pop()
        rows = self._of(device)
        if not len(rows):
            self.unknown[device] = (np.zeros(0, np.int64), np.zeros(0, np.int64))
            return self._gaps_of(device, *(np.zeros(0, np.int64),) * 4)
        low, high = self.stretch
        first = min(max(int(rows["begin"].min()), low), high)
        last = max(min(int(rows["end"].max()), high), first)
        span = np.array([first]), np.array([last])
        busy = intersect(self.pending(device), span)
        begin, end = subtract(span, busy)
        refilled = self._calls_of(rows, end, after=True)
        keep = refilled >= 0  # without the call that gave it work nobody can be asked for the gap
        self.unknown[device] = (begin[~keep], end[~keep])
        begin, end, refilled = begin[keep], end[keep], refilled[keep]
        drained = self._waits_at(begin, end, self._calls_of(rows, begin, after=False))
        self.spans.append(DeviceTime(device, first, last, int((end - begin).sum()), length(*busy), 0))
        return self._gaps_of(device, begin, end, drained, refilled)

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
        """The wait under way when the GPU ran dry that ended before it had work again; else the last call."""
        calls = self.evidence.calls
        waits = np.flatnonzero(np.isin(self.evidence.role(calls), _WAITS))
        waits = waits[np.argsort(calls["end"][waits], kind="stable")]
        if not len(waits):
            return otherwise
        place = np.minimum(np.searchsorted(calls["end"][waits], begin), len(waits) - 1)
        row = waits[place]
        fits = (calls["begin"][row] <= begin) & (calls["end"][row] >= begin) & (calls["end"][row] <= end)
        return np.where(fits, row, otherwise)

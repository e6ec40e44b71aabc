"""When a GPU certainly had work: what bounds its idle time from above.

A wait for a stream that had to wait says that the last thing given to the stream was not complete up to then,
so the stream had work from that enqueueing on. What looks like waiting and may be something else (a wait for
a CPU, a host function in the stream, another GPU's event) is left out.
"""

from __future__ import annotations

import numpy as np

from gputop.explain.evidence.apiclass import D2H, Group, Role
from gputop.explain.evidence.call_time import time_within
from gputop.explain.evidence.evidence import Columns, Evidence
from gputop.explain.evidence.ranges import Ints, Mask, union
from gputop.explain.proofs.pinned import HostRanges
from gputop.explain.proofs.proofs import Proofs
from gputop.explain.proofs.streams import Streams
from probes.schema import OffFlag

WAIT_NS = 20_000  # a synchronising call that took longer found work outstanding; a no-op takes under 5 us
# a call long after the last work may return late for another reason: cold caches, a page, the host of a guest
LONG_AFTER_NS, SURELY_NS = 1_000_000, 500_000
# on real GPUs a synchronisation with nothing to wait for took up to 31 us (CUDA) and 68 us (ROCm)
SOON_NS, NOTHING_NS = 100_000, 70_000
RETURN_NS = 50_000  # a spinner that returns within this after a preemption had not seen the completion before
# a sleeper that returns within this after its wakeup was woken by the completion; guests lose their CPU to
# the host for some hundred us, which nobody inside sees
WOKEN_NS = 500_000
_BACK = 3  # preemptions in a row between a wakeup and the return
END_NS = 10_000  # a wait returns at most this long after the completion, unless it lost its CPU
START_NS = 20_000  # work begins at most this long after its launch returned (2 to 10 us on real GPUs)
SLOW_COPY = 1.0  # bytes per ns; pageable copies reach 5 to 10, into fresh pages 2, so they take no longer


Given = tuple[Ints, Ints, Ints]  # as Streams.given has it


class Delays:
    """What the scheduler did to waits for the GPU.

    Attributes:
        completed: For each call: when the work that it waited for was complete at the latest. Earlier than
            its return only where it slept, was woken and returned at once, but had to wait for a CPU.
        surely_waiting: Up to when it certainly waited: its return, or the begin of a preemption after which
            it returned at once.
        intervals: Those preemptions and late returns, as disjoint intervals.
    """

    def __init__(self, evidence: Evidence) -> None:
        calls, slices = evidence.calls, evidence.slices
        self.completed: Ints = calls["end"].copy()
        self.surely_waiting: Ints = calls["end"].copy()
        self.intervals: tuple[Ints, Ints] = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        # queries never wait, however long they take
        waits = (evidence.group(calls) == Group.SYNC) | (evidence.role(calls) == Role.COPY_SYNC)
        rows = np.flatnonzero(waits & (calls["end"] - calls["begin"] > WAIT_NS))
        if not len(rows) or not len(slices):
            return
        last = (
            np.searchsorted(
                evidence.slice_ends, evidence.key(calls["row"][rows], calls["end"][rows]), side="right"
            )
            - 1
        )
        found = (last >= 0) & (slices["row"][last] == calls["row"][rows])
        found &= slices["begin"][last] >= calls["begin"][rows]
        rows, last = rows[found], last[found]
        returned = calls["end"][rows] - slices["end"][last]
        woken = _wakeup(slices, last)
        last = np.where(slices["begin"][woken] >= calls["begin"][rows], woken, last)
        slept = slices["queued"][last] > slices["begin"][last]
        # who was woken by a thread of its own process had waited for a lock of the driver, not for the GPU
        by_own = (slices["waker_tid"][last] != 0) & (slices["waker_pid"][last] == slices["pid"][last])
        slept &= ~by_own
        at_once = returned <= np.where(slept, WOKEN_NS, RETURN_NS)
        rows, last, slept = rows[at_once], last[at_once], slept[at_once]
        self.completed[rows[slept]] = np.minimum(slices["queued"][last[slept]], calls["end"][rows[slept]])
        self.surely_waiting[rows] = np.where(slept, slices["queued"][last], slices["begin"][last])
        self.intervals = union(slices["queued"][last], slices["end"][last])


def _wakeup(slices: Columns, last: Ints) -> Ints:
    """Goes back from a preemption to the sleep just before it: who is woken may lose its CPU at once again.

    That goes for a thread whose control group has used up its quota, too: it is stopped on its way back.
    """
    for _ in range(_BACK):
        before = np.maximum(last - 1, 0)
        forced = (slices["flags"][last] & OffFlag.QUEUED) != 0
        near = (last > 0) & (slices["row"][before] == slices["row"][last])
        near &= slices["begin"][last] - slices["end"][before] <= WOKEN_NS
        slept = (slices["flags"][before] & OffFlag.QUEUED) != 0
        slept |= slices["queued"][before] > slices["begin"][before]
        last = np.where(forced & near & slept, before, last)
    return last


class Pending:
    """Intervals with work, by (GPU, process)."""

    def __init__(
        self,
        evidence: Evidence,
        streams: Streams,
        ranges: HostRanges,
        delays: Delays,
        direct: list[Proofs],
    ) -> None:
        """``direct`` are the proofs on each stream that name it or its device."""
        self._evidence, self._streams = evidence, streams
        self._ranges, self._delays = ranges, delays
        self._parts: dict[tuple[int, int], list[tuple[Ints, Ints]]] = {}
        self._behind: dict[int, tuple[Ints, Ints]] = {}
        jointly: dict[tuple[int, int], tuple[Ints, Ints]] = {}
        held = streams.held()
        for stream in np.flatnonzero(~np.isin(streams.pid, sorted(held))).tolist():
            given = streams.given([stream])
            self._waits(stream, given, direct[stream], jointly)
            self._queries(stream, given)
            self._copies(stream, given)
        for owner, (row, start) in jointly.items():
            self._add_waits(owner, row, start)

    def of(self, device: int, without: int = -1) -> tuple[Ints, Ints]:
        """When a GPU is known to have work: disjoint, ordered; the work of one process may be left out."""
        parts = [
            part
            for (owner, pid), known in self._parts.items()
            if owner == device and pid != without
            for part in known
        ]
        empty = np.zeros(0, np.int64)
        return union(
            np.concatenate([empty, *(part[0] for part in parts)]),
            np.concatenate([empty, *(part[1] for part in parts)]),
        )

    def earliest(self, device: int) -> Ints:
        """Before when a GPU cannot have begun with each thing it was given, ns, stream by stream; 0: any.

        Who had to wait for an event waited for all that its stream was given before it. What the stream was
        given after it comes behind that.
        """
        found = [np.zeros(0, np.int64)]
        for stream in np.flatnonzero(self._streams.device == device).tolist():
            given = self._streams.enqueue_begin[self._streams.operations(stream)]
            since, at = self._behind.get(stream, (given[:0], given[:0]))
            place = np.searchsorted(since, given, side="right") - 1
            found.append(np.where(place >= 0, np.append(at, 0)[place], 0))
        return np.concatenate(found)

    def _owner(self, stream: int) -> tuple[int, int]:
        return int(self._streams.device[stream]), int(self._streams.pid[stream])

    def _add(self, owner: tuple[int, int], start: Ints, stop: Ints) -> None:
        valid = (stop > start) & (start > 0)
        self._parts.setdefault(owner, []).append((start[valid], stop[valid]))

    def _add_waits(self, owner: tuple[int, int], row: Ints, start: Ints) -> None:
        self._add(owner, start, self._stop(row))

    def _recorded(self, begin: Ints) -> Ints:
        """When the calls that recorded events, known by their begins, had returned."""
        rows, calls = self._streams.rows(Role.RECORD), self._evidence.calls
        order = np.lexsort((calls["end"][rows], calls["begin"][rows]))
        first, last = calls["begin"][rows][order], calls["end"][rows][order]
        return last[np.searchsorted(first, begin, side="right") - 1] if len(last) else begin

    def _stop(self, row: Ints) -> Ints:
        """Until when these calls certainly waited."""
        stop: Ints = np.minimum(self._evidence.calls["end"][row] - END_NS, self._delays.surely_waiting[row])
        return stop

    @staticmethod
    def _last(given: Given, before: Ints) -> Ints:
        """The end of the last operation that was begun before, so that with ``START_NS`` 0 means none."""
        _rows, begins, reach = given
        place = np.searchsorted(begins, before, side="left") - 1
        return np.where(place >= 0, reach[np.maximum(place, 0)], -START_NS)

    def _waits(
        self, stream: int, given: Given, known: Proofs, jointly: dict[tuple[int, int], tuple[Ints, Ints]]
    ) -> None:
        """A wait for the device is for some stream: then all that was enqueued last counts, on whichever."""
        evidence, calls = self._evidence, self._evidence.calls
        rows = np.flatnonzero(evidence.group_of(known.row) == Group.SYNC)
        cover, row = known.cover[rows], known.row[rows]
        begin, until = calls["begin"][row], self._delays.surely_waiting[row]
        queued = time_within(evidence, calls["row"][row], begin, until).queued
        took = until - begin - queued
        waited = took > WAIT_NS
        # what another thread enqueues just after it was called it may have waited for
        event = evidence.role_of(row) == Role.PROVE_EVENT
        before = np.where(event, cover, begin + queued)[waited] + WAIT_NS
        start = self._last(given, before) + START_NS
        # where it was drained before, the wait is for another stream, or returns late
        start[self._drained(given, known, begin[waited])] = 0
        start[_doubtful(begin[waited] - start, took[waited])] = 0
        row = row[waited]
        ended = event[waited] & (start > 0)
        since, stop = self._recorded(cover[waited][ended]), self._stop(row[ended])
        order = np.argsort(since, kind="stable")
        self._behind[stream] = since[order], np.maximum.accumulate(stop[order])
        whole = evidence.role_of(row) == Role.PROVE_DEVICE
        owner = self._owner(stream)
        self._add_waits(owner, row[~whole], start[~whole])
        order = np.argsort(row[whole], kind="stable")
        rows, start = row[whole][order], start[whole][order]
        jointly[owner] = rows, np.maximum(start, jointly.get(owner, (rows, start))[1])

    def _drained(self, given: Given, known: Proofs, moment: Ints) -> Mask:
        """Whether all that was given to a stream before each moment was proved complete before it, too.

        A wait that begins then may return late, but not because of work.
        """
        order = np.argsort(known.at, kind="stable")
        best = np.maximum.accumulate(known.cover[order]) if len(order) else order
        place = np.searchsorted(known.at[order], moment, side="right") - 1
        proved = best[np.maximum(place, 0)] if len(best) else np.zeros(len(moment), np.int64)
        drained: Mask = (place >= 0) & (self._last(given, moment) <= proved)
        return drained

    def _queries(self, stream: int, given: Given) -> None:
        """A query that finds work: it was there since the last enqueueing."""
        calls = self._evidence.calls
        rows = self._streams.not_ready(stream)
        self._add(
            self._owner(stream),
            self._last(given, calls["end"][rows]) + START_NS,
            calls["begin"][rows],
        )

    def _copies(self, stream: int, given: Given) -> None:
        """A copy to the host that took longer than its bytes waited for the work before it.

        One to page-locked memory that does not wait has no reason to: what takes it long is something else.
        """
        evidence, calls = self._evidence, self._evidence.calls
        row = given[0][given[0] >= 0]
        row = row[(calls["direction"][row] == D2H) & (evidence.group_of(row) == Group.COPY)]
        pinned = self._ranges.pinned(calls["pid"][row], calls["aux"][row], calls["begin"][row])
        row = row[~pinned | (evidence.role_of(row) == Role.COPY_SYNC)]
        begin, end = calls["begin"][row], calls["end"][row]
        queued = time_within(evidence, calls["row"][row], begin, end).queued
        stop = end - queued - (calls["bytes"][row] / SLOW_COPY).astype(np.int64) - END_NS
        if not len(row):
            return
        streams = [stream, *self._streams.peers(stream)]
        given = self._streams.given(streams) if len(streams) > 1 else given
        begins = given[1]
        beside = np.searchsorted(begins, begin + WAIT_NS + queued) > np.searchsorted(
            begins, begin, side="right"
        )
        waited = (stop - begin > WAIT_NS) & ~beside
        start = self._last(given, begin[waited]) + START_NS
        start[_doubtful(begin[waited] - start, (stop - begin)[waited])] = 0
        self._add(self._owner(stream), start, stop[waited])


def _doubtful(before: Ints, took: Ints) -> Mask:
    """Whether a short wait is to say that the GPU was at work for long before it."""
    doubtful: Mask = (before > LONG_AFTER_NS) & (took < SURELY_NS)
    return doubtful | ((before > SOON_NS) & (took < NOTHING_NS))

"""Proofs by calls that streams are empty, and that a GPU had work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gputop.analysis.evidence.api_classes import D2D, D2H, H2D, Group, Role, Trait
from gputop.analysis.evidence.call_context import time_within
from gputop.analysis.evidence.columns import Identities, Ints, Mask, Tabular, union
from gputop.analysis.evidence.evidence import TIME_BITS, Column, Columns, Evidence
from gputop.analysis.proofs.streams import LEGACY, Devices, HostRanges, Streams
from probes.schema import OffFlag

COPY_BEFORE = 4  # calls before a wait among which its copy is searched
_ROUNDS = 2  # number of edges that are followed from stream to stream; fewer only lose proofs


@dataclass(frozen=True, slots=True)
class Proofs(Tabular):
    """Proofs on one stream, in no order; ``row`` is the call's."""

    cover: Ints
    at: Ints
    row: Ints


_NO_PROOFS = Proofs(*(np.zeros(0, np.int64),) * 3)


@dataclass(frozen=True, slots=True)
class Edge:
    """Order between streams: a proof on ``one`` that covers ``when`` proves ``other`` up to ``cover``."""

    one: int
    other: int
    when: Ints
    cover: Ints
    rows: tuple[Ints, ...]  # the calls that each is made of

    def best(self, moments: Ints) -> Ints:
        """Return the row that proves most for a proof up to each moment, -1 for none."""
        order = np.argsort(self.when, kind="stable")
        reach = np.maximum.accumulate(self.cover[order])
        leader = np.maximum.accumulate(np.where(self.cover[order] == reach, np.arange(len(order)), 0))
        place = np.searchsorted(self.when[order], moments, side="right") - 1
        return np.where(place >= 0, order[leader[np.maximum(place, 0)]], -1)


@dataclass(frozen=True, slots=True)
class Edges:
    """All edges from one stream to another, by ascending ``when``, with the greatest ``cover`` so far."""

    when: Ints
    cover: Ints


def proofs(
    evidence: Evidence, streams: Streams, devices: Devices, ranges: HostRanges
) -> list[tuple[Proofs, Proofs]]:
    """Return (direct, all) proofs on each stream; all: also those over edges between streams."""
    found: list[list[Proofs]] = [[] for _ in range(len(streams))]
    calls = evidence.calls
    for row, number in _named(streams.rows(Role.PROVE_STREAM), streams):
        found[number].append(Proofs(calls["begin"][row], calls["end"][row], row))
    device_rows = streams.rows(Role.PROVE_DEVICE)
    for number in range(len(streams)):
        own = (calls["pid"][device_rows] == streams.pid[number]) & (
            devices.of_calls[device_rows] == streams.device[number]
        )
        rows = device_rows[own & streams.is_of_one_gpu(number)]
        found[number].append(Proofs(calls["begin"][rows], calls["end"][rows], rows))
    events = Events(evidence, streams)
    rows = streams.rows(Role.PROVE_EVENT)
    records = events.record_before(rows, calls["begin"][rows], calls["end"][rows])
    recorded, cover = events.stream[records], calls["begin"][events.row[records]]
    for stream in np.unique(recorded[(records >= 0) & (recorded >= 0)]).tolist():
        here = (records >= 0) & (recorded == stream)
        found[stream].append(Proofs(cover[here], calls["end"][rows[here]], rows[here]))
    for row, number in _named(_waiting_copies(evidence, streams, ranges), streams):
        # a copy waits for its stream and for those that synchronise with it; its end is a proof for itself
        for peer in [number, *streams.peers(number)]:
            found[peer].append(Proofs(calls["begin"][row], calls["end"][row], row))
    direct = [merge(parts) for parts in found]
    return list(zip(direct, _follow(direct, _by_pair(edges(evidence, streams, events))), strict=True))


def _named(rows: Ints, streams: Streams) -> list[tuple[Ints, int]]:
    """Calls by the stream that they name."""
    if not len(rows):
        return []
    number = streams.number(rows)
    order = np.argsort(number, kind="stable")
    number, rows = number[order], rows[order]
    heads = np.flatnonzero(np.diff(number, prepend=-2))
    return [
        (part, int(number[head]))
        for head, part in zip(heads, np.split(rows, heads[1:]), strict=True)
        if number[head] >= 0
    ]


def merge(parts: list[Proofs]) -> Proofs:
    """Join proofs, of no part at all to none."""
    return Proofs.join([_NO_PROOFS, *parts])


def _waiting_copies(evidence: Evidence, streams: Streams, ranges: HostRanges) -> Ints:
    """Synchronous copies that have completed when they return: D2H, and H2D from page-locked memory.

    A copy of no bytes may not wait.
    """
    calls = evidence.calls
    rows = streams.rows(Role.COPY_SYNC)
    rows = rows[(calls["bytes"][rows] > 0) & ~streams.captured(rows)]
    direction = calls["direction"][rows]
    pinned = ranges.pinned(calls["pid"][rows], calls["aux"][rows], calls["begin"][rows])
    waits: Ints = rows[(direction == D2H) | ((direction == H2D) & pinned)]
    return waits


class Events:
    """The records of events: ``row`` of the call, ``stream``, ``number`` of the event.

    A call that makes an event's state uncertain (its creation at a reused address, a record during a capture,
    one that never returned) counts as a record in no stream.
    """

    def __init__(self, evidence: Evidence, streams: Streams) -> None:
        calls = evidence.calls
        self._calls = calls
        self._base = evidence.start_ns
        roles = evidence.role(calls)
        certain = streams.rows(Role.RECORD)
        certain = certain[~streams.captured(certain)]
        tried = (roles == Role.RECORD) & ((calls["ret"] == 0) | calls["abandoned"])
        made = (roles == Role.CREATE_EVENT) & (calls["ret"] == 0)
        rows = np.flatnonzero(tried | made)
        handle = np.where(made[rows], calls["stream"][rows], calls["aux"][rows])
        self._events = Identities(calls["pid"][rows], handle)
        event = self._events.number
        order = np.argsort(self._key(event, calls["end"][rows]), kind="stable")
        rows, event = rows[order], event[order]
        stream = np.where(np.isin(rows, certain), streams.number(rows), -1)
        # two threads that record it at once: the last may be either
        overlaps = np.zeros(len(rows), np.bool_)
        overlaps[1:] = (event[1:] == event[:-1]) & (calls["end"][rows[:-1]] > calls["begin"][rows[1:]])
        self.row: Ints = np.append(rows, 0)  # one more, for "none"
        self.stream: Ints = np.append(np.where(overlaps, -1, stream), -1)
        self._order = self._key(event, calls["end"][rows])
        self.number = event
        self._next_begin = self._earliest_after(event, calls["begin"][rows])

    def _key(self, event: Ints, time: Ints) -> Ints:
        return (event.astype(np.int64) << TIME_BITS) | np.maximum(time - self._base, 0)

    def _earliest_after(self, event: Ints, begin: Ints) -> Ints:
        """The first begin among the later records of the same event; as key, so that others come later."""
        key = self._key(event, begin)
        least = np.minimum.accumulate(key[::-1])[::-1]
        return np.append(least[1:], 1 << 62) if len(key) else key

    def record_before(self, rows: Ints, begin: Ints, end: Ints) -> Ints:
        """Return the last record of each call's event that had returned before ``begin``.

        -1 where there is none, or where another thread may have recorded the event again before ``end``.
        """
        if not len(self._events) or not len(rows):
            return np.full(len(rows), -1, np.int64)
        event = self._events.find(self._calls["pid"][rows], self._calls["aux"][rows])
        place = np.searchsorted(self._order, self._key(event, begin), side="right") - 1
        known = (event >= 0) & (place >= 0)
        known &= self.number[np.maximum(place, 0)] == event
        again = self._next_begin[np.maximum(place, 0)] < self._key(event, end)
        return np.where(known & ~again, place, -1)


def edges(evidence: Evidence, streams: Streams, events: Events, since_ns: int = 0) -> list[Edge]:
    """Return waits for events since a moment, and the order between the default stream and others."""
    calls = evidence.calls
    waits = streams.rows(Role.WAIT)
    waits = waits[(calls["end"][waits] >= since_ns) & ~streams.captured(waits)]
    place = events.record_before(waits, calls["begin"][waits], calls["end"][waits])
    source, target = streams.number(waits), events.stream[place]
    valid = np.flatnonzero((place >= 0) & (source >= 0) & (target >= 0) & (source != target))
    found = []
    for one, other in np.unique(np.stack([source[valid], target[valid]]), axis=1).T.tolist():
        here = valid[(source[valid] == one) & (target[valid] == other)]
        rows = waits[here], events.row[place[here]]
        found.append(Edge(one, other, calls["end"][rows[0]], calls["begin"][rows[1]], rows))
    legacy = np.flatnonzero(streams.handle == LEGACY).tolist()
    pairs = [pair for one in legacy for peer in streams.peers(one) for pair in ((one, peer), (peer, one))]
    ordered = in_order(evidence, streams) if pairs else None
    for one, other in pairs:
        own = np.flatnonzero((streams.enqueue_stream == one) & ordered)
        row = streams.enqueue_row[own]
        found.append(Edge(one, other, streams.enqueue_end[own], streams.enqueue_begin[own], (row,)))
    return [edge for edge in found if len(edge.when)]


def _by_pair(found: list[Edge]) -> dict[tuple[int, int], Edges]:
    """(from, to) -> the edges between two streams."""
    pairs: dict[tuple[int, int], list[Edge]] = {}
    for edge in found:
        pairs.setdefault((edge.one, edge.other), []).append(edge)
    made = {}
    for pair, some in pairs.items():
        when, cover = (np.concatenate([getattr(one, name) for one in some]) for name in ("when", "cover"))
        order = np.argsort(when, kind="stable")
        made[pair] = Edges(when[order], np.maximum.accumulate(cover[order]))
    return made


def in_order(evidence: Evidence, streams: Streams) -> Column:
    """True for operations that certainly wait for the legacy default stream, or it for them.

    Kernels, graphs, copies and fills of at least a byte; host functions, memory operations and captured calls
    may not wait.
    """
    calls = evidence.calls
    row = np.maximum(streams.enqueue_row, 0)
    group = evidence.group_of(row)
    moves = (group == Group.SET) | (
        (group == Group.COPY) & (calls["direction"][row] >= H2D) & (calls["direction"][row] <= D2D)
    )
    runs = evidence.apis.has(calls["op"][row], Trait.RUNS)
    sure = runs | (moves & (calls["bytes"][row] > 0))
    result: Column = sure & (streams.enqueue_row >= 0) & ~calls["abandoned"][row] & ~streams.captured(row)
    return result


def _follow(direct: list[Proofs], edges: dict[tuple[int, int], Edges]) -> list[Proofs]:
    """Add proofs over the edges between streams."""
    result, fresh = [[known] for known in direct], list(direct)
    for _ in range(_ROUNDS if edges else 0):
        derived: list[list[Proofs]] = [[] for _ in result]
        for (source, target), edge in edges.items():
            known = fresh[source]
            place = np.searchsorted(edge.when, known.cover, side="right") - 1
            valid = place >= 0
            derived[target].append(Proofs(edge.cover[place[valid]], known.at[valid], known.row[valid]))
        fresh = [merge(parts) for parts in derived]
        for parts, more in zip(result, fresh, strict=True):
            parts.append(more)
    return [merge(parts) for parts in result]


# When a GPU certainly had work: the upper bound of its idle time.

WAIT_NS = 20_000  # a longer synchronising call found work outstanding; a no-op lasts under 5 us
# a call long after the last work may return late for another reason: cold caches, a page fault, the
# hypervisor
LONG_AFTER_NS, SURELY_NS = 1_000_000, 500_000
# on real GPUs a synchronisation with nothing to wait for lasted up to 31 us (CUDA) and 68 us (ROCm)
SOON_NS, NOTHING_NS = 100_000, 70_000
RETURN_NS = 50_000  # a spinner that returns this soon after a preemption had not seen the completion before
# a sleeper that returns this soon after its wakeup was woken by the completion; a guest loses its CPU to the
# host for some hundred us, invisible from inside
WOKEN_NS = 500_000
_BACK = 3  # preemptions in a row between a wakeup and the return
END_NS = 10_000  # a wait returns at most this long after the completion, unless it lost its CPU
START_NS = 20_000  # work begins at most this long after its launch returned (2 to 10 us on real GPUs)
SLOW_COPY = 1.0  # bytes per ns at least; pageable copies reach 5 to 10, into fresh pages 2


StreamWork = tuple[Ints, Ints, Ints]  # as ``Streams.work_of`` returns it


class Delays:
    """Delays of waits for the GPU by the scheduler."""

    def __init__(self, evidence: Evidence) -> None:
        calls, slices = evidence.calls, evidence.slices
        # for each call the latest time at which its work was complete. Earlier than its return only where it
        # slept, was woken and returned at once, but had to wait for a CPU
        self.completed: Ints = calls["end"].copy()
        # for each call up to when it certainly waited: its return, or the begin of a preemption after which
        # it returned at once
        self.surely_waiting: Ints = calls["end"].copy()
        # those preemptions and late returns, as disjoint intervals
        self.intervals: tuple[Ints, Ints] = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        # queries never wait, however long they last
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
        # a thread woken by one of its own process had waited for a lock of the driver, not for the GPU
        by_own = (slices["waker_tid"][last] != 0) & (slices["waker_pid"][last] == slices["pid"][last])
        slept &= ~by_own
        at_once = returned <= np.where(slept, WOKEN_NS, RETURN_NS)
        rows, last, slept = rows[at_once], last[at_once], slept[at_once]
        self.completed[rows[slept]] = np.minimum(slices["queued"][last[slept]], calls["end"][rows[slept]])
        self.surely_waiting[rows] = np.where(slept, slices["queued"][last], slices["begin"][last])
        self.intervals = union(slices["queued"][last], slices["end"][last])


def _wakeup(slices: Columns, last: Ints) -> Ints:
    """The sleep just before each preemption: a woken thread may lose its CPU at once, also to a CPU quota."""
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
        """``direct``: the proofs on each stream that name it or its device."""
        self._evidence, self._streams = evidence, streams
        self._ranges, self._delays = ranges, delays
        self._parts: dict[int, dict[int, list[tuple[Ints, Ints]]]] = {}  # by device and process
        self._behind: dict[int, tuple[Ints, Ints]] = {}
        jointly: dict[tuple[int, int], tuple[Ints, Ints]] = {}
        held = streams.held()
        for stream in np.flatnonzero(~np.isin(streams.pid, sorted(held))).tolist():
            work = streams.work_of([stream])
            self._waits(stream, work, direct[stream], jointly)
            self._queries(stream, work)
            self._copies(stream, work)
        for owner, (row, start) in jointly.items():
            self._add_waits(owner, row, start)

    def of(self, device: int, without: int = -1) -> tuple[Ints, Ints]:
        """Return when a GPU is known to have work, disjoint and in order; without the work of one process."""
        parts = [
            part for pid, known in self._parts.get(device, {}).items() if pid != without for part in known
        ]
        empty = np.zeros(0, np.int64)
        return union(
            np.concatenate([empty, *(part[0] for part in parts)]),
            np.concatenate([empty, *(part[1] for part in parts)]),
        )

    def earliest(self, device: int) -> Ints:
        """Return the earliest begin of each operation of a GPU, ns, stream by stream; 0: any.

        A wait for an event covers all that was enqueued in its stream before the event; operations enqueued
        after the event begin later than that.
        """
        found = [np.zeros(0, np.int64)]
        for stream in np.flatnonzero(self._streams.device == device).tolist():
            enqueued = self._streams.enqueue_begin[self._streams.operations(stream)]
            since, at = self._behind.get(stream, (enqueued[:0], enqueued[:0]))
            place = np.searchsorted(since, enqueued, side="right") - 1
            found.append(np.where(place >= 0, np.append(at, 0)[place], 0))
        return np.concatenate(found)

    def _owner(self, stream: int) -> tuple[int, int]:
        return int(self._streams.device[stream]), int(self._streams.pid[stream])

    def _add(self, owner: tuple[int, int], start: Ints, stop: Ints) -> None:
        valid = (stop > start) & (start > 0)
        device, pid = owner
        self._parts.setdefault(device, {}).setdefault(pid, []).append((start[valid], stop[valid]))

    def _add_waits(self, owner: tuple[int, int], row: Ints, start: Ints) -> None:
        self._add(owner, start, self._stop(row))

    def _recorded(self, begin: Ints) -> Ints:
        """Ends of the calls that recorded events, by their begins."""
        rows, calls = self._streams.rows(Role.RECORD), self._evidence.calls
        order = np.lexsort((calls["end"][rows], calls["begin"][rows]))
        first, last = calls["begin"][rows][order], calls["end"][rows][order]
        return last[np.searchsorted(first, begin, side="right") - 1] if len(last) else begin

    def _stop(self, row: Ints) -> Ints:
        """Up to when these calls certainly waited."""
        stop: Ints = np.minimum(self._evidence.calls["end"][row] - END_NS, self._delays.surely_waiting[row])
        return stop

    @staticmethod
    def _last(work: StreamWork, before: Ints) -> Ints:
        """The latest end of the operations begun before each moment; ``-START_NS`` for none."""
        _rows, begins, reach = work
        place = np.searchsorted(begins, before, side="left") - 1
        return np.where(place >= 0, reach[np.maximum(place, 0)], -START_NS)

    def _waits(
        self, stream: int, work: StreamWork, known: Proofs, jointly: dict[tuple[int, int], tuple[Ints, Ints]]
    ) -> None:
        """Add waits. One for the device is for some stream: the latest enqueue of all its streams counts."""
        evidence, calls = self._evidence, self._evidence.calls
        rows = np.flatnonzero(evidence.group_of(known.row) == Group.SYNC)
        cover, row = known.cover[rows], known.row[rows]
        begin, until = calls["begin"][row], self._delays.surely_waiting[row]
        queued = time_within(evidence, calls["row"][row], begin, until).queued
        waited_ns = until - begin - queued
        waited = waited_ns > WAIT_NS
        # it may have waited for work that another thread enqueued just after it was called
        event = evidence.role_of(row) == Role.PROVE_EVENT
        before = np.where(event, cover, begin + queued)[waited] + WAIT_NS
        start = self._last(work, before) + START_NS
        # where it was drained before, the wait is for another stream, or returns late
        start[self._drained(work, known, begin[waited])] = 0
        start[_doubtful(begin[waited] - start, waited_ns[waited])] = 0
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

    def _drained(self, work: StreamWork, known: Proofs, moment: Ints) -> Mask:
        """True where all work enqueued in a stream before a moment was proved complete before it.

        A wait that begins then returns late for another reason.
        """
        order = np.argsort(known.at, kind="stable")
        best = np.maximum.accumulate(known.cover[order]) if len(order) else order
        place = np.searchsorted(known.at[order], moment, side="right") - 1
        proved = best[np.maximum(place, 0)] if len(best) else np.zeros(len(moment), np.int64)
        drained: Mask = (place >= 0) & (self._last(work, moment) <= proved)
        return drained

    def _queries(self, stream: int, work: StreamWork) -> None:
        """Add queries that found work: it was there since the last enqueue."""
        calls = self._evidence.calls
        rows = self._streams.not_ready(stream)
        self._add(self._owner(stream), self._last(work, calls["end"][rows]) + START_NS, calls["begin"][rows])

    def _copies(self, stream: int, work: StreamWork) -> None:
        """Add copies to the host that lasted longer than their bytes: they waited for the work before.

        Not asynchronous ones to page-locked memory: these do not wait.
        """
        evidence, calls = self._evidence, self._evidence.calls
        row = work[0][work[0] >= 0]
        row = row[(calls["direction"][row] == D2H) & (evidence.group_of(row) == Group.COPY)]
        pinned = self._ranges.pinned(calls["pid"][row], calls["aux"][row], calls["begin"][row])
        row = row[~pinned | (evidence.role_of(row) == Role.COPY_SYNC)]
        begin, end = calls["begin"][row], calls["end"][row]
        queued = time_within(evidence, calls["row"][row], begin, end).queued
        stop = end - queued - (calls["bytes"][row] / SLOW_COPY).astype(np.int64) - END_NS
        if not len(row):
            return
        streams = [stream, *self._streams.peers(stream)]
        work = self._streams.work_of(streams) if len(streams) > 1 else work
        begins = work[1]
        beside = np.searchsorted(begins, begin + WAIT_NS + queued) > np.searchsorted(
            begins, begin, side="right"
        )
        waited = (stop - begin > WAIT_NS) & ~beside
        start = self._last(work, begin[waited]) + START_NS
        start[_doubtful(begin[waited] - start, (stop - begin)[waited])] = 0
        self._add(self._owner(stream), start, stop[waited])


def _doubtful(before: Ints, duration: Ints) -> Mask:
    """True where a short wait would prove a long time of work before it."""
    doubtful: Mask = (before > LONG_AFTER_NS) & (duration < SURELY_NS)
    return doubtful | ((before > SOON_NS) & (duration < NOTHING_NS))

"""Which stream a call gives work to, which streams a call proves empty, and up to which moment.

A *proof* on a stream is (cover, at): the stream's work whose enqueueing had returned by ``cover`` is known to
be complete at ``at``. The rules for the default streams, events and waits are those of the runtime API's
pages on stream synchronization behavior; docs/explain.md has them in words.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gputop.explain.apiclass import Role
from gputop.explain.devices import Devices
from gputop.explain.evidence import TIME_BITS, Column, Columns, Evidence
from gputop.explain.pinned import HostRanges
from gputop.explain.ranges import Ints

LEGACY, PER_THREAD = 0, 2  # handles of the default streams; 1 is another name of the legacy one
NON_BLOCKING = 1  # cudaStreamNonBlocking
D2H, H2D = 2, 1
_ROUNDS = 2  # edges from stream to stream are followed this far; stopping early only loses proofs


@dataclass(frozen=True, slots=True)
class Proofs:
    """Proofs on one stream, in no order; ``row`` is the call's."""

    cover: Ints
    at: Ints
    row: Ints


@dataclass(frozen=True, slots=True)
class Edges:
    """Proofs on one stream with ``cover >= when`` prove another up to ``cover``; by ascending ``when``."""

    when: Ints
    cover: Ints


class Streams:
    """All streams that received work, and the calls that concern them.

    Attributes:
        device, pid, handle: Of each stream.
        blocking: Whether it is known to synchronise with the legacy default stream.
        enqueue_stream, enqueue_begin, enqueue_end, enqueue_row, enqueue_thread: One entry per operation;
            ``row`` is -1 for what a group of collectives started and for calls still under way.
    """

    def __init__(self, evidence: Evidence, devices: Devices) -> None:
        self._evidence = evidence
        self._devices = devices
        calls = evidence.calls
        roles = evidence.role(calls)
        self._roles = roles
        gives = ((roles == Role.ENQUEUE) | (roles == Role.COPY_SYNC)) & (
            (calls["ret"] == 0) | calls["abandoned"]
        )
        rows = np.flatnonzero(gives)
        inner = evidence.inner
        ids = np.concatenate(
            [
                self._identity(calls, rows, devices.of_calls[rows]),
                self._identity(inner, np.arange(len(inner)), devices.of(inner)),
            ]
        )
        unique, first, number = np.unique(ids, return_index=True, return_inverse=True)
        self._ids = unique
        every_pid = np.concatenate([calls["pid"][rows], inner["pid"]]).astype(np.int64)
        every_handle = np.concatenate([calls["stream"][rows], inner["stream"]])
        every_device = np.concatenate([devices.of_calls[rows], devices.of(inner)])
        self.pid, self.device = every_pid[first], every_device[first]
        self.handle = np.where(every_handle[first] == 1, LEGACY, every_handle[first])
        self.enqueue_stream: Ints = number.reshape(-1).astype(np.int64)
        self.enqueue_begin: Ints = np.concatenate([calls["begin"][rows], inner["begin"]])
        self.enqueue_end: Ints = np.concatenate([calls["end"][rows], inner["end"]])
        self.enqueue_row: Ints = np.concatenate([rows, np.full(len(inner), -1)])
        self.enqueue_thread: Ints = np.concatenate([calls["row"][rows], evidence.threads.row(inner["tid"])])
        self._add_open_calls()
        self.blocking = self._blocking()

    def __len__(self) -> int:
        return len(self.pid)

    def _identity(self, calls: Columns, rows: Ints, device: Ints) -> Column:
        """A number for (process, device, stream); the per-thread default stream is one per thread."""
        handle = calls["stream"][rows]
        pid, tid = calls["pid"][rows].astype(np.uint64), calls["tid"][rows].astype(np.uint64)
        handle = np.where(handle == 1, np.uint64(LEGACY), handle)
        thread = np.where(handle == PER_THREAD, tid, np.uint64(0))
        mixed = handle * np.uint64(0x9E3779B97F4A7C15) + (pid << np.uint64(32))
        mixed ^= (thread << np.uint64(8)) * np.uint64(0xC2B2AE3D27D4EB4F)
        mixed ^= device.astype(np.uint64) * np.uint64(0x165667B19E3779F9)
        return mixed

    def _add_open_calls(self) -> None:
        """A call that had not returned at the end may give any stream of its process work."""
        table = self._evidence.open_calls
        roles = self._evidence.apis.role.take(table["op"], mode="clip")
        for call in table[(roles == Role.ENQUEUE) | (roles == Role.COPY_SYNC)]:
            own = np.flatnonzero(self.pid == int(call["pid"]))
            thread = int(self._evidence.threads.row(np.array([call["tid"]]))[0])
            self.enqueue_stream = np.append(self.enqueue_stream, own)
            self.enqueue_begin = np.append(self.enqueue_begin, np.full(len(own), int(call["begin"])))
            self.enqueue_end = np.append(self.enqueue_end, np.full(len(own), 1 << 62))
            self.enqueue_row = np.append(self.enqueue_row, np.full(len(own), -1))
            self.enqueue_thread = np.append(self.enqueue_thread, np.full(len(own), thread))

    def _blocking(self) -> Column:
        """Streams whose creation without the non-blocking flag was seen, and per-thread default streams."""
        calls = self._evidence.calls
        made = np.flatnonzero((self._roles == Role.CREATE_STREAM) & (calls["ret"] == 0))
        plain = made[(calls["aux"][made] & NON_BLOCKING) == 0]
        known = {
            (int(pid), int(handle))
            for pid, handle in zip(calls["pid"][plain], calls["stream"][plain], strict=True)
            if handle > PER_THREAD
        }
        pairs = zip(self.pid.tolist(), self.handle.tolist(), strict=True)
        return np.array([handle == PER_THREAD or (pid, handle) in known for pid, handle in pairs], np.bool_)

    def number(self, rows: Ints) -> Ints:
        """The stream that each of these calls names; -1 when it never received work."""
        calls = self._evidence.calls
        ids = self._identity(calls, rows, self._devices.of_calls[rows])
        if not len(self._ids):
            return np.full(len(rows), -1, np.int64)
        place = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        return np.where(self._ids[place] == ids, place, -1)

    def rows(self, role: Role) -> Ints:
        """Calls of a role that succeeded and returned."""
        calls = self._evidence.calls
        return np.flatnonzero((self._roles == role) & (calls["ret"] == 0) & ~calls["abandoned"])


def proofs(evidence: Evidence, streams: Streams, devices: Devices, ranges: HostRanges) -> list[list[Proofs]]:
    """The proofs on each stream, edges between streams followed: the direct ones, then the others."""
    found: list[list[Proofs]] = [[] for _ in range(len(streams))]
    calls = evidence.calls
    for row, number in _named(streams.rows(Role.PROVE_STREAM), streams):
        found[number].append(Proofs(calls["begin"][row], calls["end"][row], row))
    device_rows = streams.rows(Role.PROVE_DEVICE)
    for number in range(len(streams)):
        own = (calls["pid"][device_rows] == streams.pid[number]) & (
            devices.of_calls[device_rows] == streams.device[number]
        )
        rows = device_rows[own]
        found[number].append(Proofs(calls["begin"][rows], calls["end"][rows], rows))
    events = Events(evidence, streams)
    rows = streams.rows(Role.PROVE_EVENT)
    records = events.record_before(rows, calls["begin"][rows], calls["end"][rows])
    _scatter(
        found, events.stream[records], calls["begin"][events.row[records]], calls["end"][rows], rows, records
    )
    for row, number in _named(_waiting_copies(evidence, streams, ranges), streams):
        # the copy itself is the last thing that its stream is known to have done
        found[number].append(Proofs(calls["begin"][row], calls["end"][row], row))
    return _follow([merge(parts) for parts in found], _edges(evidence, streams, events))


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


def _scatter(found: list[list[Proofs]], number: Ints, cover: Ints, at: Ints, rows: Ints, valid: Ints) -> None:
    chosen = (valid >= 0) & (number >= 0)
    for stream in np.unique(number[chosen]).tolist():
        here = chosen & (number == stream)
        found[stream].append(Proofs(cover[here], at[here], rows[here]))


def merge(parts: list[Proofs]) -> Proofs:
    """All of them."""
    empty = np.zeros(0, np.int64)
    return Proofs(
        np.concatenate([empty, *(part.cover for part in parts)]),
        np.concatenate([empty, *(part.at for part in parts)]),
        np.concatenate([empty, *(part.row for part in parts)]),
    )


def _waiting_copies(evidence: Evidence, streams: Streams, ranges: HostRanges) -> Ints:
    """Synchronous copies that have completed when they return: D2H, and H2D from page-locked memory."""
    calls = evidence.calls
    rows = streams.rows(Role.COPY_SYNC)
    direction = calls["direction"][rows]
    pinned = ranges.pinned(calls["pid"][rows], calls["aux"][rows], calls["begin"][rows])
    waiting: Ints = rows[(direction == D2H) | ((direction == H2D) & pinned)]
    return waiting


class Events:
    """When each event was recorded last, and in which stream."""

    def __init__(self, evidence: Evidence, streams: Streams) -> None:
        calls = evidence.calls
        self._calls = calls
        self._base = evidence.start_ns
        rows = streams.rows(Role.RECORD)
        keys = self._event(rows)
        self._events = np.unique(keys)
        event = np.searchsorted(self._events, keys)
        order = np.argsort(self._key(event, calls["end"][rows]), kind="stable")
        self.row: Ints = np.append(rows[order], 0)  # one more, for "none"
        self._order = self._key(event[order], calls["end"][rows][order])
        self._number = event[order]
        # an event in a stream without work is behind nothing
        self.stream: Ints = np.append(streams.number(rows[order]), -1)

    def _event(self, rows: Ints) -> Column:
        pid = self._calls["pid"][rows].astype(np.uint64)
        return self._calls["aux"][rows] * np.uint64(0x9E3779B97F4A7C15) ^ (pid << np.uint64(20))

    def _key(self, event: Ints, time: Ints) -> Ints:
        return (event.astype(np.int64) << TIME_BITS) | np.maximum(time - self._base, 0)

    def record_before(self, rows: Ints, begin: Ints, end: Ints) -> Ints:
        """The last record of the event that each call names, finished before ``begin``.

        -1 where there is none, or where another thread may have recorded it anew before ``end``.
        """
        if not len(self._events) or not len(rows):
            return np.full(len(rows), -1, np.int64)
        keys = self._event(rows)
        event = np.minimum(np.searchsorted(self._events, keys), len(self._events) - 1)
        place = np.searchsorted(self._order, self._key(event, begin), side="right") - 1
        known = (self._events[event] == keys) & (place >= 0)
        known &= self._number[np.maximum(place, 0)] == event
        following = np.minimum(place + 1, len(self._number) - 1)
        again = (place + 1 < len(self._number)) & (self._number[following] == event)
        again &= self._calls["begin"][self.row[following]] < end
        return np.where(known & ~again, place, -1)


def _edges(evidence: Evidence, streams: Streams, events: Events) -> dict[tuple[int, int], Edges]:
    """(from, to) -> what a proof on one stream says about another."""
    calls = evidence.calls
    collected: dict[tuple[int, int], tuple[list[Ints], list[Ints]]] = {}

    def add(source: int, target: int, when: Ints, cover: Ints) -> None:
        parts = collected.setdefault((source, target), ([], []))
        parts[0].append(when)
        parts[1].append(cover)

    waits = streams.rows(Role.WAIT)
    place = events.record_before(waits, calls["begin"][waits], calls["end"][waits])
    source, target = streams.number(waits), events.stream[place]
    valid = (place >= 0) & (source >= 0) & (target >= 0) & (source != target)
    pairs = np.stack([source[valid], target[valid]])
    for one, other in np.unique(pairs, axis=1).T.tolist():
        here = valid & (source == one) & (target == other)
        add(one, other, calls["end"][waits[here]], calls["begin"][events.row[place[here]]])
    for legacy in np.flatnonzero(streams.handle == LEGACY).tolist():
        peers = (streams.pid == streams.pid[legacy]) & (streams.device == streams.device[legacy])
        for peer in np.flatnonzero(peers & streams.blocking).tolist():
            for one, other in ((legacy, peer), (peer, legacy)):
                mine = streams.enqueue_stream == one
                add(one, other, streams.enqueue_end[mine], streams.enqueue_begin[mine])
    return {pair: _sorted_edges(*parts) for pair, parts in collected.items()}


def _sorted_edges(when: list[Ints], cover: list[Ints]) -> Edges:
    times, covers = np.concatenate(when), np.concatenate(cover)
    order = np.argsort(times, kind="stable")
    return Edges(times[order], np.maximum.accumulate(covers[order]))


def _follow(direct: list[Proofs], edges: dict[tuple[int, int], Edges]) -> list[list[Proofs]]:
    """Adds what proofs on one stream say about others."""
    result, fresh = [[known] for known in direct], list(direct)
    for _ in range(_ROUNDS if edges else 0):
        derived: list[list[Proofs]] = [[] for _ in result]
        for (source, target), edge in edges.items():
            known = fresh[source]
            place = np.searchsorted(edge.when, known.cover, side="right") - 1
            valid = place >= 0
            derived[target].append(Proofs(edge.cover[place[valid]], known.at[valid], known.row[valid]))
        fresh = [merge(parts) for parts in derived]
        for every, more in zip(result, fresh, strict=True):
            every.append(more)
    return result

"""Which streams a call proves empty, and up to which moment.

A *proof* on a stream is (cover, at): the stream's work whose enqueueing had returned by ``cover`` is known to
be complete at ``at``. The rules for the default streams, events and waits are those of the runtime API's
pages on stream synchronization behavior; docs/explain.md has them in words.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gputop.explain.evidence.apiclass import D2D, D2H, H2D, Group, Role, Trait
from gputop.explain.evidence.evidence import TIME_BITS, Column, Evidence
from gputop.explain.evidence.identity import Identities
from gputop.explain.evidence.ranges import Ints
from gputop.explain.proofs.devices import Devices
from gputop.explain.proofs.pinned import HostRanges
from gputop.explain.proofs.streams import LEGACY, Streams

COPY_BEFORE = 4  # calls before a wait among which its copy is looked for
_ROUNDS = 2  # edges from stream to stream are followed this far; stopping early only loses proofs


@dataclass(frozen=True, slots=True)
class Proofs:
    """Proofs on one stream, in no order; ``row`` is the call's."""

    cover: Ints
    at: Ints
    row: Ints


@dataclass(frozen=True, slots=True)
class Edge:
    """What a proof on stream ``one`` says about ``other``: with ``when`` covered, ``cover`` is proved.

    Work on ``one`` comes after all that ``other`` had before it.
    """

    one: int
    other: int
    when: Ints
    cover: Ints
    rows: tuple[Ints, ...]  # the calls that each is made of

    def best(self, moments: Ints) -> Ints:
        """For a proof up to each moment the row that says most, -1 where none says anything."""
        order = np.argsort(self.when, kind="stable")
        reach = np.maximum.accumulate(self.cover[order])
        leader = np.maximum.accumulate(np.where(self.cover[order] == reach, np.arange(len(order)), 0))
        place = np.searchsorted(self.when[order], moments, side="right") - 1
        return np.where(place >= 0, order[leader[np.maximum(place, 0)]], -1)


@dataclass(frozen=True, slots=True)
class Edges:
    """Proofs on one stream with ``cover >= when`` prove another up to ``cover``; by ascending ``when``."""

    when: Ints
    cover: Ints


def proofs(
    evidence: Evidence, streams: Streams, devices: Devices, ranges: HostRanges
) -> list[tuple[Proofs, Proofs]]:
    """(direct, all) proofs on each stream; all: edges between streams followed."""
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
    _scatter(
        found, events.stream[records], calls["begin"][events.row[records]], calls["end"][rows], rows, records
    )
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
    """Synchronous copies that have completed when they return: D2H, and H2D from page-locked memory.

    Without bytes there is nothing to copy, and nothing says that the call waits.
    """
    calls = evidence.calls
    rows = streams.rows(Role.COPY_SYNC)
    rows = rows[(calls["bytes"][rows] > 0) & ~streams.captured(rows)]
    direction = calls["direction"][rows]
    pinned = ranges.pinned(calls["pid"][rows], calls["aux"][rows], calls["begin"][rows])
    waits: Ints = rows[(direction == D2H) | ((direction == H2D) & pinned)]
    return waits


class Events:
    """When each event was recorded last, and in which stream: ``row``, ``stream``, ``number`` of the event.

    What makes an event's state uncertain (its creation at an address that was used before, a record during a
    capture, one that never returned) counts as a record in no stream.
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
        """The last record of the event that each call names, finished before ``begin``.

        -1 where there is none, or where another thread may have recorded it anew before ``end``.
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
    """Waits for events that returned since then, and the order between the default stream and others."""
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
    """(from, to) -> what a proof on one stream says about another."""
    collected: dict[tuple[int, int], tuple[list[Ints], list[Ints]]] = {}
    for edge in found:
        when, cover = collected.setdefault((edge.one, edge.other), ([], []))
        when.append(edge.when)
        cover.append(edge.cover)
    return {pair: _sorted_edges(*parts) for pair, parts in collected.items()}


def in_order(evidence: Evidence, streams: Streams) -> Column:
    """Operations that certainly wait for the legacy default stream, or it for them: kernels, graphs, copies
    and fills that really move something; host functions, memory operations and what is captured may not."""
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


def _sorted_edges(when: list[Ints], cover: list[Ints]) -> Edges:
    times, covers = np.concatenate(when), np.concatenate(cover)
    order = np.argsort(times, kind="stable")
    return Edges(times[order], np.maximum.accumulate(covers[order]))


def _follow(direct: list[Proofs], edges: dict[tuple[int, int], Edges]) -> list[Proofs]:
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
        for parts, more in zip(result, fresh, strict=True):
            parts.append(more)
    return [merge(parts) for parts in result]

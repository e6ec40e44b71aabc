"""The old call records that a proof about the present may need.

A live explanation keeps the last seconds only. Older records may still matter: a stream with old work that
was never waited for blocks its GPU until now, one that was drained does not. So these rows are carried over,
as they were recorded:

- of each stream the enqueues that returned last, and the call that first proved it empty after them;
- of each event its last record, since a later wait may name it;
- of the edges between streams (waits for events, the default stream) those that a later proof may follow;
- creations of streams, page-locked memory, chosen devices, the first launch of each kernel, the first wait
  for a device: facts that hold until they are replaced.

Every row carried is true, and the enqueue that returned last is among them, so no stream looks emptier than
it is. Nothing is carried of ended processes.
"""

from __future__ import annotations

import numpy as np

from gputop.analysis.evidence.api_classes import H2D, Group, Role, Trait
from gputop.analysis.evidence.columns import FOREVER, Ints, Mask, first_seen, group_ids
from gputop.analysis.evidence.evidence import CALL_COLUMNS, SLICE_COLUMNS, Column, Columns, Evidence
from gputop.analysis.proofs.proofs import COPY_BEFORE, Edge, Events, edges, proofs
from gputop.analysis.proofs.streams import NON_BLOCKING, Devices, HostRanges, Streams


def carried(evidence: Evidence) -> tuple[Columns, Columns, Columns]:
    """Return the (calls, inner calls, stays off the CPU) that later evidence needs."""
    calls = evidence.calls.take(_Carry(evidence).keep & _alive(evidence, evidence.calls))
    inner, slices = evidence.inner, evidence.slices
    inner = inner.take(_last(group_ids(inner["pid"], inner["stream"], inner["tid"]), inner["end"]))
    # a thread without a recorded birth is known from its first stay off the CPU on
    slices = slices.take(np.flatnonzero(np.diff(slices["row"], prepend=-1)))
    return (
        _plain(calls, CALL_COLUMNS),
        _plain(inner.take(_alive(evidence, inner)), CALL_COLUMNS),
        _plain(slices.take(_alive(evidence, slices)), SLICE_COLUMNS),
    )


def _plain(columns: Columns, dtype: np.dtype[np.void]) -> Columns:
    return Columns({name: columns[name] for name in dtype.names or ()})


def _alive(evidence: Evidence, columns: Columns) -> Mask:
    """True for rows of processes that have not ended since."""
    alive = np.ones(len(columns), np.bool_)
    for pid, at in evidence.ended.items():
        alive &= (columns["pid"] != pid) | (columns["end"] > at)
    return alive


def _last(key: Ints, time: Ints) -> Ints:
    """The row with the greatest time of each key, a small number; the last of several."""
    size = int(key.max(initial=-1)) + 1
    latest = np.full(size, np.iinfo(np.int64).min)
    np.maximum.at(latest, key, time)
    rows = np.flatnonzero(time == latest[key])
    chosen = np.full(size, -1, np.int64)
    chosen[key[rows]] = rows  # the last one stays
    return chosen[chosen >= 0]


def _first(key: Ints, time: Ints) -> Ints:
    """The row with the least time of each key."""
    return _last(key, -time)


class _Runs:
    """``group_ids`` of columns that mostly stay the same from row to row."""

    def __init__(self, *columns: Column) -> None:
        fresh = np.zeros(len(columns[0]), np.bool_)
        fresh[:1] = True
        for column in columns:
            fresh[1:] |= column[1:] != column[:-1]
        self._heads = np.flatnonzero(fresh)
        self._lengths = np.diff(np.append(self._heads, len(fresh)))
        self._number = group_ids(*(column[self._heads] for column in columns))

    def number_of(self, rows: Ints) -> Ints:
        """Return the number of each of some rows."""
        return self._number[np.searchsorted(self._heads, rows, side="right") - 1]

    def last(self, time: Ints) -> Ints:
        """Return ``_last`` by these numbers."""
        if not len(self._heads):
            return self._heads
        latest = np.full(int(self._number.max()) + 1, np.iinfo(np.int64).min)
        np.maximum.at(latest, self._number, np.maximum.reduceat(time, self._heads))
        rows = np.flatnonzero(time == np.repeat(latest[self._number], self._lengths))
        chosen = np.zeros(len(latest), np.int64)
        chosen[self.number_of(rows)] = rows  # the last one stays
        return chosen


class _Carry:
    """The choice of calls; ``keep`` marks them."""

    def __init__(self, evidence: Evidence) -> None:
        calls = evidence.calls
        self._evidence, self._calls = evidence, calls
        self._roles, self._groups = evidence.role(calls), evidence.group(calls)
        self._devices = Devices(evidence)
        self._ranges = HostRanges(evidence)
        self._streams = Streams(evidence, self._devices)
        self._events = Events(evidence, self._streams)
        self.keep: Mask = np.zeros(len(calls), np.bool_)
        # moments up to which a later proof may reach on each stream; FOREVER: all of it
        self._moments: list[list[int]] = [[FOREVER] for _ in range(len(self._streams))]
        self._last_end: Ints = np.zeros(len(self._streams), np.int64)  # of each stream's enqueues
        self._facts()
        self._records()
        self._keep_drains(self._drains())
        self._follow(edges(evidence, self._streams, self._events, evidence.start_ns))
        self._host_ranges()
        self._captures()
        self._chosen_devices()

    def _done(self, role: Role) -> Ints:
        return np.flatnonzero((self._roles == role) & (self._calls["ret"] == 0))

    def _facts(self) -> None:
        calls, complete = self._calls, np.array(sorted(self._evidence.complete), np.int64)
        made = self._done(Role.CREATE_STREAM)
        flag = calls["aux"][made] & NON_BLOCKING
        stream = group_ids(calls["pid"][made], calls["stream"][made])
        self.keep[made[_last(group_ids(stream, flag), calls["end"][made])]] = True
        self.keep[made[_last(stream, np.arange(len(made)))]] = True  # which decides the stream's GPU
        holds = np.flatnonzero(self._evidence.apis.has(calls["op"], Trait.HOLDS))
        self.keep[holds[_last(group_ids(calls["pid"][holds]), calls["end"][holds])]] = True
        launches = np.flatnonzero((self._groups == Group.LAUNCH) & (calls["ret"] == 0))
        launches = launches[first_seen(calls["row"][launches], calls["aux"][launches])]
        kernel = group_ids(calls["pid"][launches], calls["aux"][launches])
        self.keep[launches[_first(kernel, calls["begin"][launches])]] = True
        where = _Runs(calls["pid"], self._devices.of_calls)
        self.keep[where.last(calls["end"])] = True  # threads that may have enqueued work unseen
        every = self._streams.rows(Role.PROVE_DEVICE)
        lost_until = max(self._evidence.lost[1].tolist(), default=FOREVER)
        for waits in (
            every[~np.isin(calls["pid"][every], complete)],
            every[calls["begin"][every] >= lost_until],
        ):
            self.keep[waits[_first(where.number_of(waits), calls["end"][waits])]] = True

    def _records(self) -> None:
        """Keep two records of each event: a last one that overlaps another is uncertain."""
        calls, events = self._calls, self._events
        rows, number = events.row[:-1], events.number
        later = np.append(number[2:] != number[:-2], [True, True])[: len(number)]
        later &= calls["end"][rows] >= self._evidence.start_ns
        self.keep[rows[later]] = True
        self._reach(events.stream[:-1][later], calls["begin"][rows[later]])

    def _reach(self, stream: Ints, moment: Ints) -> None:
        for number, at in zip(stream.tolist(), moment.tolist(), strict=True):
            if number >= 0:
                self._moments[number].append(at)

    def _drains(self) -> Ints:
        """Keep the last enqueues of each stream; return the calls that proved it empty after them."""
        streams = self._streams
        known = proofs(self._evidence, streams, self._devices, self._ranges)
        count = int(np.count_nonzero(streams.enqueue_row >= 0))
        found: set[int] = set()
        for stream in range(len(streams)):
            own = np.flatnonzero(streams.enqueue_stream == stream)
            # two, to show whether a waiting copy was alone meanwhile
            own = own[np.argsort(streams.enqueue_end[own], kind="stable")][-2:]
            self._last_end[stream] = streams.enqueue_end[own[-1]]
            self.keep[streams.enqueue_row[own[own < count]]] = True
            every = known[stream][1]
            drained = every.cover >= self._last_end[stream]
            if drained.any():
                found.add(int(every.row[drained][np.argmin(every.at[drained])]))
        rows = np.array(sorted(found), np.int64)
        for stream, (direct, _all) in enumerate(known):
            self._moments[stream] += direct.cover[np.isin(direct.row, rows)].tolist()
        return rows

    def _keep_drains(self, rows: Ints) -> None:
        """Keep the proofs, the records that they name, and the copies just before them."""
        calls = self._calls
        self.keep[rows] = True
        named = rows[self._roles[rows] == Role.PROVE_EVENT]
        place = self._events.record_before(named, calls["begin"][named], calls["end"][named])
        self.keep[self._events.row[place]] = True
        for back in range(1, COPY_BEFORE + 1):
            before = rows[rows >= back] - back
            near = (calls["row"][before] == calls["row"][before + back]) & (
                self._groups[before] == Group.COPY
            )
            self.keep[before[near]] = True

    def _follow(self, edges: list[Edge]) -> None:
        """Keep the edges over which a later proof can reach a stream's last work, two at most in a row."""
        for edge in edges:
            best = edge.best(np.array(self._moments[edge.one], np.int64))
            best = np.unique(best[best >= 0])
            useful = edge.cover[best] >= self._last_end[edge.other]
            for onward in edges:
                if onward.one == edge.other and len(best):
                    further = onward.best(edge.cover[best])
                    reaches = (further >= 0) & (onward.cover[further] >= self._last_end[onward.other])
                    useful |= reaches
                    self._keep_edge(onward, further[reaches])
            self._keep_edge(edge, best[useful])

    def _keep_edge(self, edge: Edge, places: Ints) -> None:
        for rows in edge.rows:
            self.keep[rows[places]] = True

    def _host_ranges(self) -> None:
        """Keep ranges that are page-locked now, or were during a carried copy."""
        calls = self._calls
        rows = np.concatenate([self._done(Role.HOST_RANGE), self._done(Role.HOST_FREE)])
        rows = rows[np.argsort(calls["end"][rows], kind="stable")]
        copies = self.keep & (self._roles == Role.COPY_SYNC) & (calls["direction"] == H2D)
        held: dict[tuple[int, int], list[int]] = {}
        for row in rows.tolist():
            still = held.setdefault((int(calls["pid"][row]), int(calls["aux"][row])), [])
            if self._roles[row] == Role.HOST_RANGE:
                still.append(row)
            elif still:
                begun = still.pop()
                if self._copied(copies, begun, row):
                    self.keep[[begun, row]] = True
        self.keep[np.array([row for still in held.values() for row in still], np.int64)] = True

    def _copied(self, copies: Mask, begun: int, ended: int) -> bool:
        calls = self._calls
        low, high = int(calls["aux"][begun]), int(calls["aux"][begun]) + int(calls["bytes"][begun])
        inside = (
            copies & (calls["pid"] == calls["pid"][begun]) & (calls["aux"] >= low) & (calls["aux"] < high)
        )
        inside &= (calls["begin"] >= calls["end"][begun]) & (calls["begin"] < calls["begin"][ended])
        return bool(inside.any())

    def _captures(self) -> None:
        """Keep captures under way, and those during which a carried call was made."""
        calls = self._calls
        rows = np.concatenate([self._streams.rows(Role.CAPTURE_BEGIN), self._streams.rows(Role.CAPTURE_END)])
        opened: dict[tuple[int, int], int] = {}
        for row in rows[np.argsort(calls["begin"][rows], kind="stable")].tolist():
            stream = int(calls["pid"][row]), int(calls["stream"][row])
            if self._roles[row] == Role.CAPTURE_BEGIN:
                opened[stream] = row
                continue
            begun = opened.pop(stream, row)
            since = int(calls["begin"][begun]) if begun != row else 0
            during = self.keep & (calls["pid"] == stream[0]) & (calls["end"] >= since)
            if (during & (calls["begin"] <= calls["end"][row])).any():
                self.keep[[begun, row]] = True
        self.keep[np.array(list(opened.values()), np.int64)] = True

    def _chosen_devices(self) -> None:
        """Keep the choice of device before each carried call, and the last one of each thread."""
        calls, size = self._calls, len(self._calls)
        sets = (self._roles == Role.SET_DEVICE) & (calls["ret"] == 0)
        if not sets.any():
            return
        last = np.maximum.accumulate(np.where(sets, np.arange(size), -1))
        wanted = self.keep.copy()
        wanted[np.flatnonzero(np.append(calls["row"][1:] != calls["row"][:-1], True))] = True
        rows = np.flatnonzero(wanted)
        chosen = last[rows]
        same = (chosen >= 0) & (calls["row"][np.maximum(chosen, 0)] == calls["row"][rows])
        self.keep[chosen[same]] = True

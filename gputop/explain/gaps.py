"""When a GPU provably had nothing to do, who let it run dry and who gave it work again.

The lemma (docs/explain.md): if a call that returned at r proves that all work of a stream whose enqueueing
had returned by c is complete, and the first enqueue call that returned after c began at M > r, then the
stream is empty on [r, M). With enqueues sorted by their return, M(c) is a suffix minimum of their begins,
which holds for any number of threads. A GPU is empty where all streams of all its processes are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gputop.explain.apiclass import Group, Role
from gputop.explain.devices import Devices
from gputop.explain.evidence import Column, Evidence
from gputop.explain.pinned import HostRanges
from gputop.explain.ranges import Ints, intersect, length, subtract, union
from gputop.explain.streams import D2H, Proofs, Streams, merge, proofs

FOREVER = 1 << 62
WAIT_NS = 20_000  # a synchronising call that took longer found work outstanding; a no-op takes under 5 us
RETURN_NS = 50_000  # a waiter that returns within this after its wakeup was woken by the completion
START_NS = 20_000  # work begins at most this long after its launch returned (2 to 10 us on real GPUs)
SLOW_COPY = (
    5.0  # bytes per ns; pageable copies reach 5 to 10 GB/s (causes: PCIe 3 to 5), so they take no longer
)
FIRST_NS = 1_000_000  # the first launch of a kernel loads it: 1 ms and more


@dataclass(frozen=True, slots=True)
class Gaps:
    """Intervals in which a GPU had nothing to do, by begin.

    Attributes:
        begin, end, device: Of each gap.
        opener: Row of the call that proves the GPU empty from ``begin`` on, -1 if a process ended.
        closer: Row of the call that gives it work at ``end``, -1 for a group of collectives.
        thread: Row of the thread that makes it.
        proved: Whether every assumption is known to hold (else it is strong).
    """

    begin: Ints
    end: Ints
    device: Ints
    opener: Ints
    closer: Ints
    thread: Ints
    proved: Column

    def __len__(self) -> int:
        return len(self.begin)


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """One GPU's time.

    ``begin`` to ``end`` is the span: from the first enqueue to the last moment at which it was proved empty
    before the end. ``pending_ns`` of it work was proved outstanding, ``outside_ns`` went into first-use
    initialisation and the start of further processes.
    """

    device: int
    begin: int
    end: int
    empty_ns: int
    pending_ns: int
    outside_ns: int
    delayed: tuple[Ints, Ints]  # waits inside a sync that a preemption may have prolonged

    @property
    def span_ns(self) -> int:
        """Length of the span."""
        return self.end - self.begin

    @property
    def unknown_ns(self) -> int:
        """Time of the span in which it may or may not have been idle."""
        return max(self.span_ns - self.empty_ns - self.pending_ns - self.outside_ns, 0)


class GpuTime:
    """Gaps and spans of all GPUs.

    Attributes:
        voided_ns: Time of gaps that are unknown because a record is missing in them.
        outside_ns: Start-up, wind-down and first-use initialisation, all GPUs together.
    """

    def __init__(self, evidence: Evidence, stretch: tuple[int, int] = (0, FOREVER)) -> None:
        """Only what lies in ``stretch`` counts; the proofs may rest on what came before."""
        self.evidence = evidence
        self.stretch = stretch
        self.devices = Devices(evidence)
        self.ranges = HostRanges(evidence)
        self.streams = Streams(evidence, self.devices)
        self.delays = Delays(evidence)
        self.voided_ns = 0
        self.spans: list[DeviceTime] = []
        self._pending: dict[tuple[int, int], list[tuple[Ints, Ints]]] = {}
        self._jointly: dict[tuple[int, int], tuple[Ints, Ints]] = {}
        self._every = proofs(evidence, self.streams, self.devices, self.ranges)
        parts = [self._device(device) for device in np.unique(self.streams.device).tolist()]
        self.gaps = _join(parts)

    def _device(self, device: int) -> Gaps:
        streams = self.streams
        mine = np.flatnonzero(streams.device == device)
        begins, ends = [], []
        for stream in mine.tolist():
            begin, end = self._empty(stream, *self._every[stream])
            begins.append(begin)
            ends.append(end)
        at, opener, until, closer = _all_empty(begins, ends)
        for owner, (row, start) in self._jointly.items():
            if owner[0] == device:
                self._add_pending(owner, row, start)
        return self._bounded(device, at, opener, until, closer)

    def _empty(
        self, stream: int, direct: Proofs, *derived: Proofs
    ) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
        """((begin, opener), (end, enqueue)) of the intervals in which a stream is provably empty."""
        streams = self.streams
        own = np.flatnonzero(streams.enqueue_stream == stream)
        order = own[np.argsort(streams.enqueue_end[own], kind="stable")]
        begin, end = streams.enqueue_begin[order], streams.enqueue_end[order]
        least, whose = _least_of_rest(begin)
        known = merge([direct, *derived])
        cover, at, row = self._self_covering(known, streams.enqueue_row[order], end)
        place = np.searchsorted(end, cover, side="right")
        self._note_pending(stream, direct, end)
        self._note_copies(stream, streams.enqueue_row[order], end)
        at = np.minimum(at, self.delays.completed[row])
        valid = least[place] > np.maximum(at, self.evidence.calls["end"][row])
        place, at, row = place[valid], at[valid], row[valid]
        first = np.lexsort((at, place))
        place, at, row = place[first], at[first], row[first]
        head = np.flatnonzero(np.diff(place, prepend=-1))
        place, at, row = place[head], at[head], row[head]
        at, row = np.append(-FOREVER, at), np.append(-1, row)
        until = np.append(least[0], least[place])
        closing = np.append(whose[0], np.append(whose, -1)[place])
        closing = np.where(closing >= 0, order[np.maximum(closing, 0)], -1)
        gone = self.evidence.ended.get(int(streams.pid[stream]), FOREVER)
        if until[-1] > gone or gone == FOREVER:
            return (at, row), (until, closing)
        # its contexts went with it
        return (np.append(at, gone), np.append(row, -1)), (np.append(until, FOREVER), np.append(closing, -1))

    def _self_covering(self, known: Proofs, rows: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
        """Copies that wait are their own proof: they cover themselves if nothing came in between."""
        copies = self.evidence.role(self.evidence.calls.take(known.row)) == Role.COPY_SYNC
        if not copies.any():
            return known.cover, known.at, known.row
        calls = self.evidence.calls
        place = np.searchsorted(end, known.cover, side="right")
        own = np.searchsorted(end, calls["end"][known.row], side="left")
        own = np.minimum(own, len(rows) - 1)
        alone = copies & (place == own) & (rows[own] == known.row)
        keep = ~copies | alone
        cover = np.where(alone, calls["end"][known.row], known.cover)
        return cover[keep], known.at[keep], known.row[keep]

    def _note_pending(self, stream: int, known: Proofs, end: Ints) -> None:
        """Work is outstanding from its enqueueing to the end of a wait for it.

        A wait for the device is for some stream: then all that was enqueued last counts, on whichever.
        """
        calls = self.evidence.calls
        waited = calls["end"][known.row] - calls["begin"][known.row] > WAIT_NS
        cover, row = known.cover[waited], known.row[waited]
        place = np.searchsorted(end, cover, side="right") - 1
        start = np.where(place >= 0, end[np.maximum(place, 0)] + START_NS, 0)
        role = self.evidence.role(calls.take(row))
        named = ((role == Role.PROVE_STREAM) | (role == Role.PROVE_EVENT)) & (place >= 0)
        owner = int(self.streams.device[stream]), int(self.streams.pid[stream])
        self._add_pending(owner, row[named], start[named])
        whole = role == Role.PROVE_DEVICE
        order = np.argsort(row[whole], kind="stable")
        rows, start = row[whole][order], start[whole][order]
        known_start = self._jointly.get(owner, (rows, start))[1]
        self._jointly[owner] = rows, np.maximum(start, known_start)

    def _note_copies(self, stream: int, rows: Ints, end: Ints) -> None:
        """A copy to the host that took longer than its bytes waited for the work before it."""
        calls = self.evidence.calls
        place = np.flatnonzero((rows >= 0) & (calls["direction"][np.maximum(rows, 0)] == D2H))
        place = place[place > 0]
        row = rows[place]
        moving = (calls["bytes"][row] / SLOW_COPY).astype(np.int64)
        waited = calls["end"][row] - calls["begin"][row] - moving > WAIT_NS
        start, stop = end[place - 1] + START_NS, calls["end"][row] - moving
        chosen = waited & (stop > start)
        owner = int(self.streams.device[stream]), int(self.streams.pid[stream])
        self._pending.setdefault(owner, []).append((start[chosen], stop[chosen]))

    def _add_pending(self, owner: tuple[int, int], row: Ints, start: Ints) -> None:
        stop = np.minimum(self.evidence.calls["end"][row], self.delays.surely_waiting[row])
        valid = (stop > start) & (start > 0)
        self._pending.setdefault(owner, []).append((start[valid], stop[valid]))

    def pending(self, device: int, without: int = -1) -> tuple[Ints, Ints]:
        """When a GPU is known to have work: disjoint, ordered; the work of one process may be left out."""
        parts = [
            part
            for (owner, pid), known in self._pending.items()
            if owner == device and pid != without
            for part in known
        ]
        empty = np.zeros(0, np.int64)
        return union(
            np.concatenate([empty, *(part[0] for part in parts)]),
            np.concatenate([empty, *(part[1] for part in parts)]),
        )

    def _bounded(self, device: int, at: Ints, opener: Ints, until: Ints, closer: Ints) -> Gaps:
        """Cuts the gaps to the device's span and takes out what is not certain."""
        streams = self.streams
        mine = streams.enqueue_begin[streams.device[streams.enqueue_stream] == device]
        first = int(mine.min())
        inside = (until < FOREVER) & (at >= first) & (closer >= 0)
        drained = at[(at >= first) & (at < FOREVER)]
        last = int(drained.max()) if len(drained) else first
        low, high = self.stretch
        inside &= (until > low) & (at < high)
        at, opener, until, closer = at[inside], opener[inside], until[inside], closer[inside]
        at, until = np.maximum(at, low), np.minimum(until, high)
        first, last = min(max(first, low), high), max(min(last, high), low)
        starts_up = self._first_of_process(closer)
        lost = self.evidence.lost
        torn = np.searchsorted(lost[1], at, side="right") < np.searchsorted(lost[0], until, side="left")
        outside = (at[starts_up], until[starts_up])
        first_use = self._first_use(device)
        keep = ~starts_up & ~torn
        self.voided_ns += int((until - at)[torn & ~starts_up].sum())
        gaps = self._gaps(device, at[keep], opener[keep], until[keep], closer[keep])
        span = (np.array([first]), np.array([max(last, first)]))
        empty = (gaps.begin, gaps.end)
        pending = subtract(intersect(self.pending(device), span), empty)
        aside = union(np.append(outside[0], first_use[0]), np.append(outside[1], first_use[1]))
        aside = subtract(subtract(intersect(aside, span), empty), pending)
        self.spans.append(
            DeviceTime(
                device,
                first,
                max(last, first),
                length(*empty),
                length(*pending),
                length(*aside),
                self.delays.intervals,
            )
        )
        return gaps

    def _first_of_process(self, closer: Ints) -> Column:
        """Gaps that end with the first work of a further process: its start-up, not a loss."""
        streams = self.streams
        firsts = set()
        for pid in np.unique(streams.pid).tolist():
            of_pid = np.flatnonzero(streams.pid[streams.enqueue_stream] == pid)
            firsts.add(int(of_pid[np.argmin(streams.enqueue_begin[of_pid])]))
        return np.isin(closer, np.array(sorted(firsts), np.int64))

    def _first_use(self, device: int) -> tuple[Ints, Ints]:
        """The first launch of each kernel, where it took long, and the loading of modules."""
        calls = self.evidence.calls
        groups = self.evidence.group(calls)
        long = (calls["end"] - calls["begin"] >= FIRST_NS) & (self.devices.of_calls == device)
        launches = np.flatnonzero((groups == Group.LAUNCH) & (calls["ret"] == 0))
        if not (long[launches]).any():
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        kernel = calls["aux"][launches] ^ (calls["pid"][launches].astype(np.uint64) << np.uint64(40))
        order = np.lexsort((calls["begin"][launches], kernel))
        fresh = np.append(True, kernel[order][1:] != kernel[order][:-1])
        firsts = launches[order[fresh]]
        firsts = firsts[long[firsts]]
        return union(calls["begin"][firsts], calls["end"][firsts])

    def _gaps(self, device: int, at: Ints, opener: Ints, until: Ints, closer: Ints) -> Gaps:
        streams = self.streams
        return Gaps(
            begin=at,
            end=until,
            device=np.full(len(at), device, np.int64),
            opener=opener,
            closer=streams.enqueue_row[closer],
            thread=streams.enqueue_thread[closer],
            proved=at >= self._proved_since(device),
        )

    def _proved_since(self, device: int) -> int:
        """From when on no stream from before the attach can still hold work."""
        streams, calls = self.streams, self.evidence.calls
        since = 0
        rows = streams.rows(Role.PROVE_DEVICE)
        for pid in np.unique(streams.pid[streams.device == device]).tolist():
            if pid in self.evidence.complete:
                continue
            own = rows[(calls["pid"][rows] == pid) & (self.devices.of_calls[rows] == device)]
            since = max(since, int(calls["end"][own].min()) if len(own) else FOREVER)
        return since


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
        roles = evidence.role(calls)
        waits = np.flatnonzero(
            ((roles >= Role.PROVE_DEVICE) & (roles <= Role.PROVE_EVENT) | (roles == Role.COPY_SYNC))
            & (calls["end"] - calls["begin"] > WAIT_NS)
        )
        if not len(waits) or not len(slices):
            return
        order = evidence.key(slices["row"], slices["end"])
        last = (
            np.searchsorted(order, evidence.key(calls["row"][waits], calls["end"][waits]), side="right") - 1
        )
        found = (last >= 0) & (slices["row"][last] == calls["row"][waits])
        found &= (slices["begin"][last] >= calls["begin"][waits]) & (
            calls["end"][waits] - slices["end"][last] <= RETURN_NS
        )
        rows, last = waits[found], last[found]
        slept = slices["queued"][last] > slices["begin"][last]
        self.completed[rows[slept]] = np.minimum(slices["queued"][last[slept]], calls["end"][rows[slept]])
        self.surely_waiting[rows] = np.where(slept, slices["queued"][last], slices["begin"][last])
        self.intervals = union(slices["queued"][last], slices["end"][last])


def _least_of_rest(begin: Ints) -> tuple[Ints, Ints]:
    """(least, whose): for each place the least number from there on, and where it stands.

    ``least`` has one more entry, for "nothing is left".
    """
    backwards = np.minimum.accumulate(begin[::-1])
    fresh = np.append(True, backwards[1:] < backwards[:-1])
    place = np.maximum.accumulate(np.where(fresh, np.arange(len(begin)), 0))
    return np.append(backwards[::-1], FOREVER), len(begin) - 1 - place[::-1]


def _all_empty(
    begins: list[tuple[Ints, Ints]], ends: list[tuple[Ints, Ints]]
) -> tuple[Ints, Ints, Ints, Ints]:
    """(begin, opener, end, closer) of the intervals that all streams share."""
    streams = len(begins)
    time = np.concatenate([part[0] for part in [*begins, *ends]])
    what = np.concatenate([part[1] for part in [*begins, *ends]])
    opens = sum(len(part[0]) for part in begins)
    step = np.where(np.arange(len(time)) < opens, 1, -1)
    order = np.lexsort((step, time))
    time, what, step = time[order], what[order], step[order]
    all_at = np.flatnonzero((np.cumsum(step) == streams) & (step == 1))
    following = np.minimum(all_at + 1, len(time) - 1)
    whole = time[following] > time[all_at]
    all_at, following = all_at[whole], following[whole]
    return time[all_at], what[all_at], time[following], what[following]


def _join(parts: list[Gaps]) -> Gaps:
    names = ("begin", "end", "device", "opener", "closer", "thread")
    empty = np.zeros(0, np.int64)
    columns = [np.concatenate([empty, *(getattr(part, name) for part in parts)]) for name in names]
    proved = np.concatenate([np.zeros(0, np.bool_), *(part.proved for part in parts)])
    order = np.argsort(columns[0], kind="stable")
    begin, end, device, opener, closer, thread = (column[order] for column in columns)
    return Gaps(begin, end, device, opener, closer, thread, proved[order])

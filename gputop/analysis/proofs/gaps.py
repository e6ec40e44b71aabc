"""When a GPU provably had no work, which call drained it and which one enqueued work again.

The lemma (docs/explain.md): if a call that returned at r proves that all work of a stream whose enqueueing
had returned by c is complete, and the first enqueue call that returned after c began at M > r, then the
stream is empty on [r, M). With enqueues sorted by their return, M(c) is a suffix minimum of their begins,
which holds for any number of threads. A GPU is empty where all streams of all its processes are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gputop.analysis.evidence.api_classes import D2H, ON_GPU, Group, Role
from gputop.analysis.evidence.columns import (
    FOREVER,
    Ints,
    Mask,
    Tabular,
    among,
    covered,
    intersect,
    length,
    subtract,
    union,
)
from gputop.analysis.evidence.evidence import Column, Evidence
from gputop.analysis.proofs.proofs import Delays, Pending, Proofs, proofs
from gputop.analysis.proofs.streams import Devices, HostRanges, Streams, Unseen, born_ns
from probes.activities import Table

FIRST_NS = 1_000_000  # the first launch of a kernel loads it, which lasts 1 ms and more
LOST_CALL_NS = 1_000_000  # a lost call began at most this long before it ended; longer ones met a full queue


@dataclass(frozen=True, slots=True)
class Gaps(Tabular):
    """Intervals in which a GPU had no work, by begin."""

    # begin, end, device: of each gap
    begin: Ints
    end: Ints
    device: Ints
    drained_by: Ints  # row of the call that proves the GPU empty from ``begin`` on, -1 if a process ended
    refilled_by: Ints  # row of the call that enqueues work at ``end``, -1 for a group of collectives
    thread: Ints  # row of the thread that makes it
    proved: Column  # True if every assumption is known to hold (else it is strong)
    estimated: Column  # True if no call proves it (estimates/estimate.py)

    def __len__(self) -> int:
        return len(self.begin)


_NO_GAPS = Gaps(*(np.zeros(0, np.int64),) * 6, *(np.zeros(0, np.bool_),) * 2)


@dataclass(frozen=True, slots=True)
class StreamEmpty(Tabular):
    """Disjoint intervals in which a stream is empty, in order."""

    # at, until: of each interval; the first one begins before everything
    at: Ints
    until: Ints
    row: Ints  # the call that proves it, -1 for the first one and for the end of a process
    closing: Ints  # the operation that ends it, -1 for none
    cover: Ints  # operations that had returned by then are proved complete


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """One GPU's time.

    ``begin`` to ``end`` is the span: from the first enqueue to the last moment at which it was proved empty.
    ``empty_ns``: it provably had no work; ``pending_ns``: work was proved outstanding; ``outside_ns``:
    first-use initialisation and the start of further processes.
    """

    device: int
    begin: int
    end: int
    empty_ns: int
    pending_ns: int
    outside_ns: int

    @property
    def span_ns(self) -> int:
        """Length of the span."""
        return self.end - self.begin

    @property
    def unknown_ns(self) -> int:
        """Time of the span that is neither."""
        return max(self.span_ns - self.empty_ns - self.pending_ns - self.outside_ns, 0)


class GpuTime:
    """Gaps and spans of all GPUs."""

    def __init__(self, evidence: Evidence, stretch: tuple[int, int] = (0, FOREVER)) -> None:
        """Only gaps in ``stretch`` count; their proofs may need earlier records."""
        self.evidence = evidence
        self.stretch = stretch
        self.devices = Devices(evidence)
        self.ranges = HostRanges(evidence)
        self.streams = Streams(evidence, self.devices)
        self._unseen = Unseen(evidence, self.devices, self.streams)
        self.delays = Delays(evidence)
        self.voided_ns = 0  # time of gaps that are unknown because a record is missing in them
        self.spans: list[DeviceTime] = []
        self.empty: dict[int, StreamEmpty] = {}  # when each stream was proved empty
        # for each GPU the time of its span with no proof: disjoint intervals
        self.unknown: dict[int, tuple[Ints, Ints]] = {}
        every = proofs(evidence, self.streams, self.devices, self.ranges)
        self._every = [known for _direct, known in every]
        # when GPUs certainly had work
        self.work = Pending(
            evidence, self.streams, self.ranges, self.delays, [direct for direct, _known in every]
        )
        self._firsts = self._first_of_processes()
        self._first_uses = self._first_use_rows()
        streams = self.streams
        self._starts = np.array(
            [streams.enqueue_begin[streams.operations(one)].min() for one in range(len(streams))]
        )
        self.gaps = join([self._device(device) for device in self._numbers()])

    def _numbers(self) -> list[int]:
        """The GPUs whose time is reported."""
        numbers: list[int] = np.unique(self.streams.device).tolist()
        return numbers

    def pending(self, device: int, without: int = -1) -> tuple[Ints, Ints]:
        """Return when a GPU is known to have work, disjoint and in order; without the work of one process."""
        return self.work.of(device, without)

    def proved_by(self, stream: int) -> tuple[Ints, Ints]:
        """Return (cover, row) of each proof: work enqueued by ``cover`` had ended when that call returned."""
        known = self._every[stream]
        order = np.argsort(known.cover, kind="stable")
        return known.cover[order], known.row[order]

    def waited_for(self, rows: Ints) -> Ints:
        """Return up to when enqueued work is covered by each of these waits, ns.

        That is its begin, or when the event was recorded for which it waits.
        """
        until: Ints = self.evidence.calls["begin"][rows].astype(np.int64)
        events = np.flatnonzero(self.evidence.role_of(rows) == Role.PROVE_EVENT)
        events = events[np.argsort(rows[events])]
        latest = np.full(len(events), -1, np.int64)
        for known in self._every if len(events) else ():
            place = np.minimum(np.searchsorted(rows[events], known.row), len(events) - 1)
            mine = rows[events][place] == known.row
            np.maximum.at(latest, place[mine], known.cover[mine])
        until[events] = np.where(latest >= 0, latest, until[events])
        return until

    def _device(self, device: int) -> Gaps:
        mine = np.flatnonzero(self.streams.device == device)
        empty = [self._empty(stream, self._every[stream]) for stream in mine.tolist()]
        self.empty.update(zip(mine.tolist(), empty, strict=True))
        return self._bounded(device, empty, *_all_empty(empty))

    def _empty(self, stream: int, known: Proofs) -> StreamEmpty:
        """The intervals in which a stream is provably empty."""
        streams, calls = self.streams, self.evidence.calls
        order = streams.operations(stream)
        begin, end = streams.enqueue_begin[order], streams.enqueue_end[order]
        least, whose = _least_of_rest(begin)
        cover, row = self._self_covering(known, streams.enqueue_row[order], end), known.row
        place = np.searchsorted(end, cover, side="right")
        at = np.minimum(known.at, self.delays.completed[row])
        # before the first enqueue a stream is empty without a proof
        valid = (place > 0) & (least[place] > np.maximum(at, calls["end"][row]))
        place, at, row, cover = place[valid], at[valid], row[valid], cover[valid]
        by_place = np.lexsort((at, place))
        first = by_place[np.flatnonzero(np.diff(place[by_place], prepend=-1))]
        place, at, row, cover = place[first], at[first], row[first], cover[first]
        at, row, cover = np.append(-FOREVER, at), np.append(-1, row), np.append(self._there(stream), cover)
        until = np.append(least[0], least[place])
        closing = np.append(whose[0], np.append(whose, -1)[place])
        closing = np.where(closing >= 0, order[np.maximum(closing, 0)], -1)
        gone = self.evidence.ended.get(int(streams.pid[stream]), FOREVER)
        if until[-1] <= gone < FOREVER:  # its contexts went with it
            at, until, cover = np.append(at, gone), np.append(until, FOREVER), np.append(cover, gone)
            row, closing = np.append(row, -1), np.append(closing, -1)
        return StreamEmpty(at, until, row, closing, cover)

    def _self_covering(self, known: Proofs, rows: Ints, end: Ints) -> Ints:
        """The covers; a waiting copy covers itself, too, if nothing was enqueued meanwhile."""
        copies = np.flatnonzero(self.evidence.role_of(known.row) == Role.COPY_SYNC)
        finish = self.evidence.calls["end"][known.row[copies]]
        place = np.searchsorted(end, known.cover[copies], side="right")
        own = np.minimum(place, len(rows) - 1)
        alone = (rows[own] == known.row[copies]) & (np.searchsorted(end, finish, side="right") == own + 1)
        cover: Ints = known.cover.copy()
        cover[copies] = np.where(alone, finish, cover[copies])
        return cover

    def _bounded(
        self,
        device: int,
        empty: list[StreamEmpty],
        at: Ints,
        drained_by: Ints,
        until: Ints,
        refilled_by: Ints,
    ) -> Gaps:
        """Cut the gaps to the device's span and remove uncertain ones."""
        streams = self.streams
        first = int(self._starts[streams.device == device].min())
        inside = (until < FOREVER) & (at >= first) & (refilled_by >= 0)
        drained = at[(at >= first) & (at < FOREVER)]
        last = int(drained.max()) if len(drained) else first
        busy = self.pending(device)
        # the last operations may have been under way at the end
        orders = [streams.operations(one) for one in np.flatnonzero(streams.device == device).tolist()]
        enqueued = max((int(streams.enqueue_begin[order].max()) for order in orders if len(order)), default=0)
        last = max(last, min(enqueued, self.evidence.end_ns))
        # without a wait for all work there is no proved end, but proved work up to here
        last = max([last, *np.minimum(busy[1][-1:], self.evidence.end_ns).tolist()])
        torn, fresh = self._losses(empty, at, until)
        fresh &= self._unseen.excluded(device, at, until)
        low, high = self.stretch
        inside &= (until > low) & (at < high)
        at, drained_by, until, refilled_by, torn, fresh = (
            column[inside] for column in (at, drained_by, until, refilled_by, torn, fresh)
        )
        at, until = np.maximum(at, low), np.minimum(until, high)
        first, last = min(max(first, low), high), max(min(last, high), low)
        starts_up = np.isin(refilled_by, self._firsts)
        outside = (at[starts_up], until[starts_up])
        calls, loads = self.evidence.calls, self._first_uses
        loads = loads[self.devices.of_calls[loads] == device]
        first_use = union(calls["begin"][loads], calls["end"][loads])
        keep = ~starts_up & ~torn
        self.voided_ns += int((until - at)[torn & ~starts_up].sum())
        gaps = self._gaps(device, at, drained_by, until, refilled_by, fresh).take(keep)
        span = (np.array([first]), np.array([max(last, first)]))
        gone = (gaps.begin, gaps.end)
        pending = subtract(intersect(busy, span), gone)
        # time without records is left out, as start-up is
        unkept = self.evidence.unkept
        aside = union(
            np.concatenate([outside[0], first_use[0], unkept[0]]),
            np.concatenate([outside[1], first_use[1], unkept[1]]),
        )
        aside = subtract(subtract(intersect(aside, span), gone), pending)
        self.unknown[device] = subtract(subtract(subtract(span, gone), pending), aside)
        self.spans.append(
            DeviceTime(
                device,
                first,
                max(last, first),
                int((gaps.end - gaps.begin)[gaps.proved].sum()),
                length(*pending),
                length(*aside),
            )
        )
        return gaps

    def _losses(self, empty: list[StreamEmpty], at: Ints, until: Ints) -> tuple[Column, Column]:
        """(torn, fresh): a record is missing since a gap's opening proof; none is since all its proofs.

        A lost record may be an enqueue that had begun before, or the record of an event.
        """
        begin, end = self.evidence.lost
        torn, fresh = np.zeros(len(at), np.bool_), np.ones(len(at), np.bool_)
        if not len(begin):
            return torn, fresh
        starts = np.append(begin - LOST_CALL_NS, FOREVER)
        for stream in empty:
            place = np.searchsorted(stream.at, at, side="right") - 1
            missing = starts[np.searchsorted(end, stream.cover[place], side="left")] < until
            fresh &= ~missing
            torn |= missing & (stream.at[place] == at)
        within = np.searchsorted(end, at, side="left") < np.searchsorted(starts[:-1], until, side="left")
        return torn | within, fresh

    def _there(self, stream: int) -> int:
        """When a stream was made: no earlier record of it can be missing. -FOREVER where unknown."""
        streams, calls = self.streams, self.evidence.calls
        if not len(self.evidence.lost[0]):
            return -FOREVER  # not needed
        pid = int(streams.pid[stream])
        made = streams.rows(Role.CREATE_STREAM)
        made = made[(calls["pid"][made] == pid) & (calls["stream"][made] == streams.handle[stream])]
        if len(made):
            return int(calls["begin"][made].min())
        return born_ns(self.evidence, pid)

    def _first_of_processes(self) -> Ints:
        """The first operation of each process: a gap that ends with it is its start-up, not a loss."""
        streams = self.streams
        firsts: dict[int, tuple[int, int]] = {}
        for stream, pid in enumerate(streams.pid.tolist()):
            own = streams.operations(stream)
            first = own[np.argmin(streams.enqueue_begin[own])]
            one = int(streams.enqueue_begin[first]), int(first)
            firsts[pid] = min(firsts.get(pid, one), one)
        return np.array(sorted(first for _begin, first in firsts.values()), np.int64)

    def _first_use_rows(self) -> Ints:
        """The first launch of each kernel, where it lasted long: it loads the kernel."""
        calls = self.evidence.calls
        long = calls["end"] - calls["begin"] >= FIRST_NS
        launches = np.flatnonzero((self.evidence.group(calls) == Group.LAUNCH) & (calls["ret"] == 0))
        if not long[launches].any():
            return np.zeros(0, np.int64)
        kernel = calls["aux"][launches] ^ (calls["pid"][launches].astype(np.uint64) << np.uint64(40))
        order = np.lexsort((calls["begin"][launches], kernel))
        fresh = np.append(True, kernel[order][1:] != kernel[order][:-1])
        firsts = launches[order[fresh]]
        loads: Ints = firsts[long[firsts]]
        return loads

    def _gaps(
        self, device: int, at: Ints, drained_by: Ints, until: Ints, refilled_by: Ints, fresh: Column
    ) -> Gaps:
        streams = self.streams
        return Gaps(
            begin=at,
            end=until,
            device=np.full(len(at), device, np.int64),
            drained_by=drained_by,
            refilled_by=streams.enqueue_row[refilled_by],
            thread=streams.enqueue_thread[refilled_by],
            # a process that ends may leave its GPU at work for a moment
            proved=fresh & (drained_by >= 0) & (at >= self._proved_since(device)),
            estimated=np.zeros(len(at), np.bool_),
        )

    def _proved_since(self, device: int) -> int:
        """From when on no stream from before the attach can hold work."""
        streams, calls = self.streams, self.evidence.calls
        since = 0
        rows = streams.rows(Role.PROVE_DEVICE)
        for pid in np.unique(streams.pid[streams.device == device]).tolist():
            if pid in self.evidence.complete:
                continue
            own = rows[(calls["pid"][rows] == pid) & (self.devices.of_calls[rows] == device)]
            since = max(since, int(calls["end"][own].min()) if len(own) else FOREVER)
        return since


def _least_of_rest(begin: Ints) -> tuple[Ints, Ints]:
    """(least, whose): the suffix minimum of each place, and its place; ``least`` ends with ``FOREVER``."""
    backwards = np.minimum.accumulate(begin[::-1])
    fresh = np.append(True, backwards[1:] < backwards[:-1])
    place = np.maximum.accumulate(np.where(fresh, np.arange(len(begin)), 0))
    return np.append(backwards[::-1], FOREVER), len(begin) - 1 - place[::-1]


def _all_empty(empty: list[StreamEmpty]) -> tuple[Ints, Ints, Ints, Ints]:
    """(begin, draining call, end, refilling call) of the intervals in which all streams are empty."""
    streams = len(empty)
    time = np.concatenate([part.at for part in empty] + [part.until for part in empty])
    what = np.concatenate([part.row for part in empty] + [part.closing for part in empty])
    step = np.where(np.arange(len(time)) < len(time) // 2, 1, -1)
    order = np.lexsort((step, time))
    time, what, step = time[order], what[order], step[order]
    all_at = np.flatnonzero((np.cumsum(step) == streams) & (step == 1))
    following = np.minimum(all_at + 1, len(time) - 1)
    whole = time[following] > time[all_at]
    all_at, following = all_at[whole], following[whole]
    return time[all_at], what[all_at], time[following], what[following]


def join(parts: list[Gaps]) -> Gaps:
    """Join gaps, by begin."""
    gaps = Gaps.join([_NO_GAPS, *parts])
    return gaps.take(np.argsort(gaps.begin, kind="stable"))


# Idle time by the GPU's own clock: where a file has kernel times, no proof is needed.

Intervals = tuple[Ints, Ints]

_WAITS = (Role.PROVE_DEVICE, Role.PROVE_STREAM, Role.PROVE_EVENT, Role.COPY_SYNC)
_NO_LOADING = (Group.SYNC, Group.QUERY, Group.EVENT, Group.COPY)  # long for other reasons
_MOSTLY = 0.5  # of a gap in calls that load or allocate, for a first use
_SKEW_NS = 10_000  # between the clocks of host and GPU in such a file
_AGAIN = 3  # runs of a kernel that is part of a loop


def held_kernels(evidence: Evidence) -> bool:
    """True if the file has the kernel times of every process that enqueued work.

    With ``--inside`` CUPTI may refuse, a profiler may use it, or a process may report nothing: that process's
    work is missing.
    """
    rows = evidence.activities.of(*ON_GPU)
    if not len(rows) or not evidence.header.get("inside"):
        return bool(len(rows))
    calls, processes = evidence.calls, evidence.facts.processes
    enqueues = (evidence.role(calls) == Role.ENQUEUE) & (calls["ret"] == 0)
    pids = np.unique(calls["pid"][enqueues]).tolist()
    facts = [processes.get(pid, {}) for pid in pids]
    return all("inside_from_ns" in one and "inside_refused" not in one for one in facts)


class KernelTime(GpuTime):
    """As ``GpuTime``, but exact: the GPU was at work while a kernel, a copy or a fill ran, and only then."""

    def __init__(self, evidence: Evidence, stretch: tuple[int, int] = (0, FOREVER)) -> None:
        self.rows = evidence.activities.of(*ON_GPU)  # kernels, copies and fills
        # for each GPU the idle time that was ended by work whose launch is not in the file
        self.unlinked: dict[int, Intervals] = {}
        self.first_use: dict[int, Intervals] = {}  # for each GPU the idle time of first loads and allocations
        super().__init__(evidence, stretch)

    def _numbers(self) -> list[int]:
        """Every GPU that ran anything, whatever calls are in the file."""
        return [self.devices.number(index) for index in np.unique(self.rows["device"]).tolist() if index >= 0]

    def pending(self, device: int, without: int = -1) -> Intervals:
        """Return when a GPU was at work; without the work of one process."""
        rows = self.of(device)
        rows = rows[rows["pid"] != without] if without >= 0 else rows
        return union(rows["begin"].astype(np.int64), rows["end"].astype(np.int64))

    def of(self, device: int) -> Table:
        """Return the rows of one GPU, by begin."""
        chosen: Table = self.rows[self.rows["device"] == self.devices.index[device]]
        return chosen

    def _device(self, device: int) -> Gaps:
        if (self.streams.device == device).any():
            super()._device(device)  # sets ``empty``, which causes need
            self.spans.pop()
        rows = self.of(device)
        low, high = self.stretch
        first = min(max(int(rows["begin"].min()), low), high)
        last = max(min(int(rows["end"].max()), high), first)
        span = np.array([first]), np.array([last])
        busy = intersect(self.pending(device), span)
        idle = subtract(span, busy)
        self.unknown[device] = intersect(idle, self.evidence.lost)  # rows may be missing there
        self.voided_ns += length(*self.unknown[device])
        begin, end = subtract(idle, self.evidence.lost)
        self.spans.append(DeviceTime(device, first, last, int((end - begin).sum()), length(*busy), 0))
        # nor is the end of a gap known that reaches into lost time
        whole = np.isin(end, idle[1])
        refilled = np.where(whole, self._calls_of(rows, end, after=True), -1)
        fresh = self._fresh(rows, begin, end, refilled)
        self.first_use[device] = (begin[fresh], end[fresh])
        none = refilled < 0  # without the call that enqueued its work the gap has no owner
        self.unlinked[device] = (begin[none], end[none])
        keep = ~none & ~fresh
        begin, end, refilled = begin[keep], end[keep], refilled[keep]
        drained = self._waits_at(begin, end, self._calls_of(rows, begin, after=False))
        thread = self.evidence.calls["row"][refilled] if len(begin) else refilled
        every = np.ones(len(begin), np.bool_)
        numbers = np.full(len(begin), device, np.int64)
        return Gaps(begin, end, numbers, drained, refilled, thread.astype(np.int64), every, ~every)

    def _fresh(self, rows: Table, begin: Ints, end: Ints, refilled: Ints) -> Mask:
        """Gaps before each repeated kernel has run once, mostly in long calls that load or allocate."""
        calls = self.evidence.calls
        fresh: Mask = np.zeros(len(begin), np.bool_)
        long = calls["end"] - calls["begin"] >= FIRST_NS
        long &= ~among(self.evidence.group(calls), _NO_LOADING)
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

    def _calls_of(self, rows: Table, times: Ints, *, after: bool) -> Ints:
        """The call whose work began (``after``) or ended at each time; -1: not known."""
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
        """The wait under way at the begin of each gap that ended within it; else the last launch.

        A call that returns after its copy to the host has ended waits for it.
        """
        calls = self.evidence.calls
        copies = self.evidence.group(calls) == Group.COPY
        waits = among(self.evidence.role(calls), _WAITS) | (copies & (calls["direction"] == D2H))
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


def first_shown(gpu: GpuTime, rows: Ints) -> Ints:
    """Return the first call whose return proves that the work of each of some calls had ended; -1: none.

    Args:
        gpu: The streams and their proofs.
        rows: Calls that enqueue work, ascending.
    """
    found = np.full(len(rows), -1, np.int64)
    for stream in range(len(gpu.streams)) if len(rows) else ():
        operations = gpu.streams.operations(stream)
        place = np.searchsorted(rows, gpu.streams.enqueue_row[operations])
        mine = rows[np.minimum(place, len(rows) - 1)] == gpu.streams.enqueue_row[operations]
        place, enqueued = place[mine], gpu.streams.enqueue_end[operations[mine]]
        cover, row = gpu.proved_by(stream)
        end = gpu.evidence.calls["end"][row]
        first = end == np.minimum.accumulate(end[::-1])[::-1]  # no later proof returns sooner
        whose = np.append(row[first], -1)
        found[place] = whose[np.searchsorted(cover[first], enqueued, side="left")]
    return found

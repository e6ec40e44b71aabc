"""Attributes the time of each gap along the wakeup chain until every instant lies on one segment.

A gap belongs to the thread that ends it. Where that thread was blocked, the time belongs to the thread that
woke it, over the same interval, and so on; before a thread existed, to the thread that created it. The walk
handles all gaps level by level, in numpy operations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from gputop.analysis.chains.polling import NO_WAKER, UNWATCHED, Polls, find_polls, find_wakers
from gputop.analysis.evidence.columns import Ints, Tabular
from gputop.analysis.evidence.evidence import Column, Evidence
from gputop.engine.threads.occupancy import expand

DEPTH = 12  # longer chains end on a segment of their own; PyTorch's loader with pinning needs five links


class State(IntEnum):
    """The state of a thread in a piece of time."""

    RUN = 0  # on a CPU
    QUEUED = 1  # waiting for a CPU
    BLOCKED = 2  # asleep; the wait is its own (a sleep, the disk, the network, a page)
    OUTSIDE = 3  # woken by an unwatched thread
    UNKNOWN = 4  # its state or its waker is unknown
    LOOP = 5  # the chain returned to a thread on it, or is too long


_NONE = -1
BLOCK = 1 << 17  # pieces at a time: a walk needs some 500 bytes for each, its result 72


@dataclass(frozen=True, slots=True)
class Segments(Tabular):
    """Pieces of gaps, each with the thread and state at the end of its chain."""

    gap: Ints  # row of the gap
    thread: Ints  # row of the thread
    state: Ints  # ``State``
    # begin, end: the piece; the pieces of a gap are disjoint and sum up to it
    begin: Ints
    end: Ints
    slice: Ints  # row of the stay off the CPU, -1 while it ran or is unknown
    link: Ints  # row in ``Links`` of the wait that led here, -1 on the submitter itself
    call: Ints  # row of the *submitter's* CUDA call around the piece, -1 between calls
    depth: Ints  # number of waits on the way

    def __len__(self) -> int:
        return len(self.gap)

    @property
    def ns(self) -> Ints:
        """The length of each piece."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Links:
    """Waits that led down a chain, a row each."""

    above: Ints  # the link before it; -1 on the submitter
    thread: Ints  # row of the thread that waits
    slice: Ints  # row of its stay off the CPU; -1 where it polls
    poll: Ints  # row of ``Polls`` where it polls, else -1

    def of_slices(self, column: Column, polled: int) -> Column:
        """Return a column of the stays off the CPU for each link; ``polled`` where there is none."""
        if not len(column):
            return np.full(len(self.slice), polled, column.dtype)
        return np.where(self.slice >= 0, column[np.maximum(self.slice, 0)], column.dtype.type(polled))

    def behind(self, marked: Column, link: Ints) -> Column:
        """Return True for links that are marked or below a marked one; -1 is no link."""
        if not len(self.above):
            return np.zeros(len(link), np.bool_)
        for _ in range(DEPTH):
            marked = marked | np.where(self.above >= 0, marked[np.maximum(self.above, 0)], False)
        return np.where(link >= 0, marked[np.maximum(link, 0)], False)


@dataclass(frozen=True, slots=True)
class _Front(Tabular):
    gap: Ints
    thread: Ints
    begin: Ints
    end: Ints
    link: Ints
    call: Ints
    path: npt.NDArray[np.int64]  # threads passed, a row each

    def passed(self, depth: int) -> npt.NDArray[np.int64]:
        """Return the paths with the threads of this level."""
        path: npt.NDArray[np.int64] = self.path.copy()
        path[:, depth] = self.thread
        return path


class Walk:
    """The walk over all gaps; its results are ``segments`` and ``links``."""

    def __init__(
        self,
        evidence: Evidence,
        gap: Ints,
        thread: Ints,
        begin: Ints,
        end: Ints,
        call: Ints,
        polls: Polls | None = None,
    ) -> None:
        """Walk from some pieces: those of one gap are disjoint and cut at the submitter's calls."""
        self._evidence = evidence
        self._slices = evidence.slices
        self._begin_key, self._end_key = evidence.slice_begins, evidence.slice_ends
        self._wakers = find_wakers(evidence, self._begin_key)
        self.polls = find_polls(evidence) if polls is None else polls
        self._known = np.flatnonzero(self.polls.target >= 0)
        self._polled = self.polls.take(self._known)
        self._poll_begins = evidence.key(self._polled.thread, self._polled.begin)
        self._poll_ends = evidence.key(self._polled.thread, self._polled.end)
        self._found: list[tuple[Ints, ...]] = []
        self._link_parts: list[tuple[Ints, Ints, Ints, Ints]] = []
        self._link_count = 0
        for row in range(0, len(gap), BLOCK):
            rows = slice(row, row + BLOCK)
            self._explain(gap[rows], thread[rows], begin[rows], end[rows], call[rows])
        self.segments = self._segments()
        parts = zip(*self._link_parts, strict=True) if self._link_parts else [[np.zeros(0, np.int64)]] * 4
        self.links = Links(*(np.concatenate(list(part)) for part in parts))

    def _explain(self, gap: Ints, thread: Ints, begin: Ints, end: Ints, call: Ints) -> None:
        none = np.full(len(gap), _NONE, np.int64)
        front = _Front(gap, thread, begin, end, none, call, np.full((len(gap), DEPTH), _NONE, np.int64))
        for depth in range(DEPTH):
            if not len(front.gap):
                break
            front = self._descend(front, depth)
        self._segment(front, np.arange(len(front.gap)), State.LOOP, DEPTH)

    # -- one level ----------------------------------------------------------------------------------

    def _descend(self, front: _Front, depth: int) -> _Front:
        """Write the segments of this level; return the pieces of the next one."""
        alive, others = self._clip(front, depth)
        alive, polling = self._poll(alive, depth)
        owner, item = self._overlapping(alive)
        self._running(alive, owner, item, depth)
        slices = self._slices
        low, high = alive.begin[owner], alive.end[owner]
        queued, back = self._wakers.queued[item], slices["end"][item]
        self._cut(alive, owner, np.maximum(low, queued), np.minimum(high, back), State.QUEUED, depth, item)
        asleep_from = np.maximum(low, slices["begin"][item])
        asleep_to = np.minimum(high, queued)
        asleep = asleep_to > asleep_from
        sleeping = replace(alive.take(owner[asleep]), begin=asleep_from[asleep], end=asleep_to[asleep])
        return _Front.join([others, polling, self._follow(sleeping, item[asleep], depth)])

    def _clip(self, front: _Front, depth: int) -> tuple[_Front, _Front]:
        """Split at birth and end of the threads: (pieces within their life, those of their makers)."""
        threads = self._evidence.threads
        watched = front.thread >= 0
        self._segment(front, np.flatnonzero(~watched), State.OUTSIDE, depth)
        front = front.take(np.flatnonzero(watched))
        known, ended = threads.known[front.thread], threads.ended[front.thread]
        parent = threads.parent[front.thread]
        before = front.begin < known
        late = np.flatnonzero(front.end > np.maximum(ended, front.begin))
        self._cut(front, late, np.maximum(front.begin, ended)[late], front.end[late], State.UNKNOWN, depth)
        born = np.flatnonzero(before & (parent >= 0))
        unborn = np.flatnonzero(before & (parent < 0))
        until = np.minimum(front.end, known)
        self._cut(front, unborn, front.begin[unborn], until[unborn], State.UNKNOWN, depth)
        handed = front.take(born)
        handed = replace(handed, thread=parent[born], end=until[born], path=handed.passed(depth))
        begin, end = np.maximum(front.begin, known), np.minimum(front.end, ended)
        rows = np.flatnonzero(end > begin)
        return replace(front.take(rows), begin=begin[rows], end=end[rows]), handed

    def _poll(self, front: _Front, depth: int) -> tuple[_Front, _Front]:
        """Split at polling stretches: (pieces outside of them, those of the polled threads)."""
        key, polls = self._evidence.key, self._polled
        if not len(polls):
            return front, front.take(np.zeros(0, np.int64))
        first = np.searchsorted(self._poll_ends, key(front.thread, front.begin), side="right")
        last = np.searchsorted(self._poll_begins, key(front.thread, front.end), side="left")
        owner, item = expand(first, last)
        path = front.path[owner]
        loops = ((path == polls.target[item][:, None]) | (path == front.thread[owner][:, None])).any(axis=1)
        owner, item = owner[~loops], item[~loops]
        begin = np.maximum(front.begin[owner], polls.begin[item])
        end = np.minimum(front.end[owner], polls.end[item])
        handed = front.take(owner)
        none = np.full(len(owner), _NONE, np.int64)
        link = self._linked(handed.link, handed.thread, none, self._known[item])
        path = handed.passed(depth)
        handed = replace(handed, thread=polls.target[item], begin=begin, end=end, link=link, path=path)
        rows, low, high = _between(front, owner, begin, end)
        keep = high > low
        return replace(front.take(rows[keep]), begin=low[keep], end=high[keep]), handed

    def _linked(self, above: Ints, thread: Ints, item: Ints, poll: Ints) -> Ints:
        """Write links; return their rows."""
        link = self._link_count + np.arange(len(item))
        self._link_count += len(item)
        self._link_parts.append((above, thread, item, poll))
        return link

    def _overlapping(self, front: _Front) -> tuple[Ints, Ints]:
        key = self._evidence.key
        first = np.searchsorted(self._end_key, key(front.thread, front.begin), side="right")
        last = np.searchsorted(self._begin_key, key(front.thread, front.end), side="left")
        return expand(first, last)

    def _running(self, front: _Front, owner: Ints, item: Ints, depth: int) -> None:
        """Write the pieces between the stays off the CPU."""
        begin = np.maximum(self._slices["begin"][item], front.begin[owner])
        end = np.minimum(self._slices["end"][item], front.end[owner])
        rows, low, high = _between(front, owner, begin, end)
        self._cut(front, rows, low, high, State.RUN, depth)

    def _follow(self, front: _Front, item: Ints, depth: int) -> _Front:
        """Pieces asleep: pass them to the thread that ended the sleep; an own wait is a segment."""
        waker, own = self._wakers.thread[item], self._wakers.own[item]
        unknown = ~own & (waker == NO_WAKER)
        path = front.passed(depth)
        loops = ~own & ~unknown & (path == waker[:, None]).any(axis=1)
        for chosen, state in ((own, State.BLOCKED), (unknown, State.UNKNOWN), (loops, State.LOOP)):
            rows = np.flatnonzero(chosen)
            self._cut(front, rows, front.begin[rows], front.end[rows], state, depth, item[rows])
        rows = np.flatnonzero(~own & ~unknown & ~loops)
        left = front.take(rows)
        link = self._linked(left.link, left.thread, item[rows], np.full(len(rows), _NONE, np.int64))
        thread = np.where(waker[rows] == UNWATCHED, _NONE, waker[rows])
        return replace(left, thread=thread, link=link, path=path[rows])

    # -- segments -----------------------------------------------------------------------------------

    def _segment(self, front: _Front, rows: Ints, state: State, depth: int) -> None:
        self._cut(front, rows, front.begin[rows], front.end[rows], state, depth)

    def _cut(
        self,
        front: _Front,
        rows: Ints,
        begin: Ints,
        end: Ints,
        state: State,
        depth: int,
        item: Ints | None = None,
    ) -> None:
        keep = np.flatnonzero(end > begin)
        rows = rows[keep]
        self._found.append(
            (
                front.gap[rows],
                front.thread[rows],
                np.full(len(rows), int(state), np.int64),
                begin[keep],
                end[keep],
                np.full(len(rows), _NONE, np.int64) if item is None else item[keep],
                front.link[rows],
                front.call[rows],
                np.full(len(rows), depth, np.int64),
            )
        )

    def _segments(self) -> Segments:
        if not self._found:
            empty = np.zeros(0, np.int64)
            return Segments(*(empty for _ in range(9)))
        columns = [np.concatenate(parts) for parts in zip(*self._found, strict=True)]
        order = np.lexsort((columns[3], columns[0]))
        return Segments(*(column[order] for column in columns))


def _between(front: _Front, owner: Ints, begin: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """(row, begin, end) of the rest of each row without its intervals: before each, behind the last.

    The intervals are in order, by row; pieces of the rest may be empty.
    """
    head = np.append(True, owner[1:] != owner[:-1]) if len(owner) else np.zeros(0, np.bool_)
    before = np.where(head, front.begin[owner], np.append(0, end[:-1]) if len(end) else end)
    last = front.begin.copy()
    np.maximum.at(last, owner, end)
    rows = np.concatenate([owner, np.arange(len(front.gap))])
    return rows, np.concatenate([before, last]), np.concatenate([begin, front.end])

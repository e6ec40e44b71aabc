"""Work on parts of a recording whose results merge, in several processes of this machine.

``map`` processes one part alone, ``merge`` joins the results of two consecutive parts, ``finish`` turns the
joined result into the answer. ``reduced`` runs the parts.
"""

from __future__ import annotations

import os
import pickle
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

from gputop.errors import GputopError
from gputop.parts.process_pool import PartError, ProcessEndedError, ProcessPool

_POLL_S = 0.2
_most = 1 << 20
Partial = TypeVar("Partial")
Carry = TypeVar("Carry")
Answer = TypeVar("Answer", covariant=True)


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a recording, by its marks."""

    path: str  # the session file
    after_mark: int  # the mark after which it begins, -1 for the start
    until_mark: int  # the last mark in it; the number of marks for the end of the file


class Merges(Protocol[Partial, Answer]):
    """How results of segments become an answer. Objects are sent to other processes: plain data only."""

    def merge(self, earlier: Partial, later: Partial) -> Partial:
        """Join the results of two consecutive segments; may change the first."""
        ...

    def finish(self, whole: Partial) -> Answer:
        """Return the answer for all segments together."""
        ...


class Work(Merges[Partial, Answer], Protocol[Partial, Answer]):
    """Work on independent segments."""

    def map(self, segment: Segment) -> Partial:
        """Process one segment, and nothing else."""
        ...


@runtime_checkable
class ChainedWork(Merges[Partial, Answer], Protocol[Carry, Partial, Answer]):
    """Work on segments each of which needs state of those before it."""

    def begin(self) -> Carry:
        """Return the state of the first segment."""
        ...

    def follow(self, segment: Segment, before: Carry) -> tuple[Carry, Callable[[], Partial]]:
        """Return (state of the next segment, function that makes the result of this one).

        The state is sent to the next segment's process at once, before the function is called.
        """
        ...


AnyWork = Work[Partial, object] | ChainedWork[Any, Partial, object]


def segments_of(path: str, marks: int, count: int) -> list[Segment]:
    """Divide a file into so many segments of equally many marks, at most one per mark."""
    count = max(min(count, marks), 1)
    borders = [-1, *(marks * part // count - 1 for part in range(1, count)), marks]
    return [Segment(path, after, until) for after, until in pairwise(borders)]


def segments_by_size(path: str, ends: Sequence[int], size: int) -> list[Segment]:
    """Divide a file into segments of at most so many bytes, or of one mark; ``ends``: places of its marks."""
    borders = [-1]
    since = 0
    for mark, (end, following) in enumerate(pairwise(ends)):
        if following - since > size:
            borders.append(mark)
            since = end
    borders.append(len(ends))
    return [Segment(path, after, until) for after, until in pairwise(borders)]


def processors() -> int:
    """Return the number of processors to use."""
    return min(len(os.sched_getaffinity(0)), _most)


def use_processors(most: int) -> None:
    """Limit the processors of this process, which is one of several that share them."""
    global _most
    _most = most


class EndedEarlyError(GputopError, Generic[Partial]):
    """Interrupted; ``known``: the result of the first ``parts`` segments, None of none."""

    status = 130

    def __init__(self, known: Partial | None, parts: int) -> None:
        super().__init__("interrupted before anything was known")
        self.known, self.parts = known, parts


def reduced(
    work: AnyWork[Partial],
    segments: Sequence[Segment],
    processes: int,
    done: Callable[[int, int], None] = lambda parts, of: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Partial:
    """Return the joined result of all segments, computed in processes of their own.

    Args:
        work: The work.
        segments: In order; at least one.
        processes: So many at a time.
        done: Called with the number of joined segments, and of all.
        stopped: Returns True to end with the result so far; polled several times a second.

    Raises:
        PartError: A process failed, for the reason in the message.
        EndedEarlyError: It was interrupted.
    """
    whole: Partial | None = None
    joined = 0
    with ProcessPool(processes) as pool:
        done(0, len(segments))
        for segment, result in _in_order(pool, work, segments, processes):
            while not stopped() and not wait((result,), _POLL_S).done:
                pass
            if stopped():
                raise EndedEarlyError(whole, joined)
            try:
                partial = result.result()
            except ProcessEndedError as error:
                raise PartError(f"{segment.path}: {error}") from error
            whole = partial if whole is None else work.merge(whole, partial)
            joined += 1
            done(joined, len(segments))
    return cast("Partial", whole)  # there is one at least


def _in_order(
    pool: ProcessPool, work: AnyWork[Partial], segments: Sequence[Segment], ahead: int
) -> Iterator[tuple[Segment, Future[Partial]]]:
    carried: Future[bytes] = Future()
    carried.set_result(b"")
    waiting: deque[tuple[Segment, Future[Partial]]] = deque()
    for segment in segments:
        carried, result = pool.submit_chained(work_on, work, segment, after=carried)
        waiting.append((segment, result))
        # bounds the results that wait to be joined
        if len(waiting) > ahead:
            yield waiting.popleft()
    yield from waiting


def work_on(work: AnyWork[Any], segment: Segment, carried: bytes) -> Iterator[Any]:
    """Yield the state of the next segment, pickled, then the result of this one."""
    if isinstance(work, ChainedWork):
        after, rest = work.follow(segment, pickle.loads(carried) if carried else work.begin())
        yield pickle.dumps(after, pickle.HIGHEST_PROTOCOL)
        yield rest()
    else:
        yield b""  # else the next segment's process waits for this one's result
        yield work.map(segment)

"""Work on parts that merge: what may run in several processes today, and on several machines tomorrow.

``map`` looks at one part alone, ``merge`` joins the results of two parts that follow each other, ``finish``
makes the answer of the joined result. No engine is in it: ``reduced`` runs the parts in processes of this
machine.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

from gputop.errors import GputopError
from gputop.process.isolation import isolated

_ASK_S = 0.2
_most = 1 << 20
Partial = TypeVar("Partial")
Carry = TypeVar("Carry")
Answer = TypeVar("Answer", covariant=True)


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a recording, by its marks.

    Attributes:
        path: The session file.
        after_mark: The mark after which it begins, -1 for the start.
        until_mark: The last mark in it; the number of marks for the end of the file.
    """

    path: str
    after_mark: int
    until_mark: int


class Work(Protocol[Partial, Answer]):
    """What is done with segments. An object of it is sent to other processes: plain data only."""

    def map(self, segment: Segment) -> Partial:
        """Looks at one segment, and at nothing else."""
        ...

    def merge(self, earlier: Partial, later: Partial) -> Partial:
        """Joins the results of two segments of which the second follows the first; may change the first."""
        ...

    def finish(self, whole: Partial) -> Answer:
        """The answer for all segments together."""
        ...


@runtime_checkable
class ChainedWork(Protocol[Carry, Partial, Answer]):
    """Work on segments each of which must know something of those before it."""

    def begin(self) -> Carry:
        """What the first segment must know."""
        ...

    def follow(self, segment: Segment, before: Carry) -> tuple[Carry, Callable[[], Partial]]:
        """(what the next segment must know, how to come to the result of this one).

        The first is told to the next segment's process at once; the other takes its time meanwhile.
        """
        ...

    def merge(self, earlier: Partial, later: Partial) -> Partial:
        """As of ``Work``."""
        ...

    def finish(self, whole: Partial) -> Answer:
        """As of ``Work``."""
        ...


AnyWork = Work[Partial, object] | ChainedWork[Any, Partial, object]


class PartError(GputopError):
    """A part could not be looked at."""


def segments_of(path: str, marks: int, count: int) -> list[Segment]:
    """A file in so many segments of as many marks each, at most one a mark."""
    count = max(min(count, marks), 1)
    borders = [-1, *(marks * part // count - 1 for part in range(1, count)), marks]
    return [Segment(path, after, until) for after, until in pairwise(borders)]


def segments_by_size(path: str, ends: Sequence[int], size: int) -> list[Segment]:
    """A file in segments of at most so many bytes, or of one mark; ``ends`` are the places of its marks."""
    borders = [-1]
    since = 0
    for mark, (end, following) in enumerate(pairwise(ends)):
        if following - since > size:
            borders.append(mark)
            since = end
    borders.append(len(ends))
    return [Segment(path, after, until) for after, until in pairwise(borders)]


def processors() -> int:
    """How many may be used."""
    return min(len(os.sched_getaffinity(0)), _most)


def use_processors(most: int) -> None:
    """From now on this process takes so many at most: it is one of several that share them."""
    global _most
    _most = most


class EndedEarlyError(GputopError, Generic[Partial]):
    """It was interrupted; ``known`` is of the first ``parts`` segments, None of none."""

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
    """The joined result of all segments, mapped in processes of their own.

    Args:
        work: What is done.
        segments: In order; at least one.
        processes: So many at a time.
        done: Is told how many segments are joined, and of how many.
        stopped: Says whether to end with what is known; asked some times a second.

    Raises:
        PartError: A process failed; the text says why.
        EndedEarlyError: It was interrupted.
    """
    whole: Partial | None = None
    joined = 0
    with _workers(processes) as ask:
        done(0, len(segments))
        for result in ask(work, segments):
            while not stopped() and not wait((result,), _ASK_S).done:
                pass
            if stopped():
                raise EndedEarlyError(whole, joined)
            partial = result.result()
            whole = partial if whole is None else work.merge(whole, partial)
            joined += 1
            done(joined, len(segments))
    return cast("Partial", whole)  # there is one at least


@contextmanager
def _workers(
    count: int,
) -> Iterator[Callable[[AnyWork[Partial], Sequence[Segment]], Iterator[Future[Partial]]]]:
    """Processes that map; they end with the context, whatever they are doing."""
    running: list[subprocess.Popen[bytes]] = []
    idle: list[subprocess.Popen[bytes]] = []
    lock = threading.Lock()

    def one(work: AnyWork[Partial], segment: Segment, before: Future[bytes], after: Future[bytes]) -> Partial:
        try:
            return asked(work, segment, before, after)
        finally:
            after.cancel()  # unless it is there: no thread waits for what does not come

    def asked(
        work: AnyWork[Partial], segment: Segment, before: Future[bytes], after: Future[bytes]
    ) -> Partial:
        try:
            carry = before.result()
        except CancelledError:
            raise PartError(f"{segment.path}: the part before this one could not be looked at") from None
        with lock:
            process = idle.pop() if idle else None
            if process is None:
                # an interrupt of the terminal is ours to answer
                process = subprocess.Popen(
                    isolated("gputop.parts"),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    start_new_session=True,
                )
                running.append(process)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump((work, segment, carry), process.stdin)
            process.stdin.flush()
            fine, result = pickle.load(process.stdout)
            if fine:
                after.set_result(result)
                fine, result = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise PartError(
                f"{segment.path}: a process that looked at a part of it has ended ({process.poll()}); was it "
                "killed, or is there too little memory?"
            ) from error
        with lock:
            idle.append(process)
        if not fine:
            raise PartError(str(result))
        found: Partial = result
        return found

    def ask(work: AnyWork[Partial], segments: Sequence[Segment]) -> Iterator[Future[Partial]]:
        carried: Future[bytes] = Future()
        carried.set_result(b"")
        waiting: deque[Future[Partial]] = deque()
        for segment in segments:
            after: Future[bytes] = Future()
            waiting.append(pool.submit(one, work, segment, carried, after))
            carried = after
            # no more are looked at than can be joined soon: what is known is bounded
            if len(waiting) > count:
                yield waiting.popleft()
        while waiting:
            yield waiting.popleft()

    pool = ThreadPoolExecutor(count)
    try:
        yield ask
    finally:
        for process in running:
            process.kill()
        pool.shutdown(cancel_futures=True)
        for process in running:
            process.communicate()

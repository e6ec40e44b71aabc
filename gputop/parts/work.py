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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, Protocol, TypeVar

from gputop.errors import GputopError
from gputop.process.isolation import isolated

Partial = TypeVar("Partial")
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


class PartError(GputopError):
    """A part could not be looked at."""


def segments_of(path: str, marks: int, count: int) -> list[Segment]:
    """A file in so many segments of as many marks each, at most one a mark."""
    count = max(min(count, marks), 1)
    borders = [-1, *(marks * part // count - 1 for part in range(1, count)), marks]
    return [Segment(path, after, until) for after, until in pairwise(borders)]


def processors() -> int:
    """How many may be used."""
    return len(os.sched_getaffinity(0))


class EndedEarlyError(GputopError, Generic[Partial]):
    """It was interrupted; ``known`` is of the first segments, as far as they were looked at, None of none."""

    def __init__(self, known: Partial | None, parts: int, of: int) -> None:
        super().__init__(f"interrupted after {parts} of {of} parts")
        self.known, self.parts, self.of = known, parts, of


def reduced(
    work: Work[Partial, object],
    segments: Sequence[Segment],
    processes: int,
    done: Callable[[int, int], None] = lambda parts, of: None,
) -> Partial:
    """The joined result of all segments, mapped in processes of their own.

    Args:
        work: What is done.
        segments: In order; at least one.
        processes: So many at a time.
        done: Is told how many segments are joined, and of how many.

    Raises:
        PartError: A process failed; the text says why.
        EndedEarlyError: It was interrupted.
    """
    whole: Partial | None = None
    joined = 0
    with _workers(processes) as ask:
        results = ask(work, segments)
        try:
            for partial in results:
                whole = partial if whole is None else work.merge(whole, partial)
                joined += 1
                done(joined, len(segments))
        except KeyboardInterrupt:
            raise EndedEarlyError(whole, joined, len(segments)) from None
    assert whole is not None
    return whole


@contextmanager
def _workers(
    count: int,
) -> Iterator[Callable[[Work[Partial, object], Sequence[Segment]], Iterator[Partial]]]:
    """Processes that map; they end with the context, whatever they are doing."""
    running: list[subprocess.Popen[bytes]] = []
    idle: list[subprocess.Popen[bytes]] = []
    lock = threading.Lock()

    def one(work: Work[Partial, object], segment: Segment) -> Partial:
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
            pickle.dump((work, segment), process.stdin)
            process.stdin.flush()
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

    def ask(work: Work[Partial, object], segments: Sequence[Segment]) -> Iterator[Partial]:
        # no more are looked at than can be joined soon: what is known is bounded
        waiting = [pool.submit(one, work, segment) for segment in segments[: count + 1]]
        rest = iter(segments[count + 1 :])
        while waiting:
            yield waiting.pop(0).result()
            waiting += [pool.submit(one, work, segment) for segment in (next(rest, None),) if segment]

    pool = ThreadPoolExecutor(count)
    try:
        yield ask
    finally:
        for process in running:
            process.kill()
        pool.shutdown(cancel_futures=True)
        for process in running:
            process.communicate()

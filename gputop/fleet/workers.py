"""Worker processes over many files: few at a time, tried again when one dies."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from gputop.fleet.work import Outcome, look_at

Task = tuple[str, str]  # path, hash of the content
_AHEAD = 2  # tasks a worker that are handed out at once
_TRIES = 2  # alone, after it was at hand when a worker died


def outcomes(tasks: Sequence[Task], workers: int) -> Iterator[tuple[Task, Outcome | None]]:
    """What each recording came to, as they are done.

    When a worker dies, what was at hand is done again, each alone: so one bad file takes no other with it.

    Args:
        tasks: What to look at.
        workers: So many processes.

    Yields:
        Task and outcome; None where workers died over it again and again.
    """
    suspects: list[Task] = []
    todo = deque(tasks)
    while todo:
        lost: list[Task] = []
        with _pool(workers) as pool:
            running: dict[Future[Outcome], Task] = {}
            while running or (todo and not lost):
                while todo and not lost and len(running) < _AHEAD * workers:
                    task = todo.popleft()
                    try:
                        running[pool.submit(look_at, *task)] = task
                    except BrokenProcessPool:
                        lost.append(task)
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    task = running.pop(future)
                    try:
                        yield task, future.result()
                    except BrokenProcessPool:
                        lost.append(task)
        suspects += lost
    for task in suspects:
        yield task, _alone(task)


def _alone(task: Task) -> Outcome | None:
    for _ in range(_TRIES):
        with _pool(1) as pool:
            try:
                return pool.submit(look_at, *task).result()
            except BrokenProcessPool:
                continue
    return None


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"))

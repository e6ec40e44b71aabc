"""Worker processes of this machine over many files: few at a time, tried again when one dies."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from gputop.fleet.explain_task import WORKER_MEMORY, ExplainOutcome, Task, look_at
from gputop.parts.mapreduce import use_processors
from gputop.process.isolation import isolate_children
from gputop.query.forked import bound_memory

# explains tasks until it is told to stop; None: workers died over it again and again
Engine = Callable[[Sequence[Task], Callable[[], bool]], Iterator[tuple[Task, ExplainOutcome | None]]]
TRIES = 2  # alone, after it was at hand when a worker died
_AHEAD = 2  # tasks a worker that are handed out at once
_ASK_S = 0.2


def processes(workers: int) -> Engine:
    """Explains in so many processes of this machine.

    When a worker dies, what was at hand is done again, each alone: so one bad file takes no other with it.
    What is at hand when it is told to stop is done to the end.
    """

    def outcomes(
        tasks: Sequence[Task], stopped: Callable[[], bool]
    ) -> Iterator[tuple[Task, ExplainOutcome | None]]:
        suspects: list[Task] = []
        todo = deque(tasks)
        while todo and not stopped():
            lost: list[Task] = []
            with _pool(workers) as pool:
                running: dict[Future[ExplainOutcome], Task] = {}
                while running or (todo and not lost and not stopped()):
                    while todo and not lost and len(running) < _AHEAD * workers and not stopped():
                        task = todo.popleft()
                        try:
                            running[pool.submit(look_at, task)] = task
                        except BrokenProcessPool:
                            lost.append(task)
                    for future in wait(running, _ASK_S, return_when=FIRST_COMPLETED).done:
                        task = running.pop(future)
                        try:
                            yield task, future.result()
                        except BrokenProcessPool:
                            lost.append(task)
            suspects += lost
        for task in suspects:
            if stopped():
                return
            yield task, _alone(task)

    return outcomes


def _alone(task: Task) -> ExplainOutcome | None:
    for _ in range(TRIES):
        with _pool(1) as pool:
            try:
                return pool.submit(look_at, task).result()
            except BrokenProcessPool:
                continue
    return None


def _pool(workers: int) -> ProcessPoolExecutor:
    isolate_children()
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin)


def _begin() -> None:
    """A worker: an interrupt of the terminal is for who asks to answer; one processor, bounded memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    use_processors(1)
    bound_memory(WORKER_MEMORY)

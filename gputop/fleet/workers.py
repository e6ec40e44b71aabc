"""Worker processes of this machine over many files: few at a time, tried again when one dies."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from functools import cache

from gputop.fleet.explain_task import WORKER_MEMORY, ExplainOutcome, Task, look_at
from gputop.parts.mapreduce import use_processors
from gputop.parts.process_pool import ProcessEndedError, ProcessPool
from gputop.query.forked import bound_memory

# explains tasks until it is told to stop; None: workers died over it again and again
Engine = Callable[[Sequence[Task], Callable[[], bool]], Iterator[tuple[Task, ExplainOutcome | None]]]
TRIES = 2  # alone, after a worker died over it
_POLL_S = 0.2


def processes(workers: int) -> Engine:
    """Explains in so many processes of this machine.

    A recording over which a worker dies is tried again alone, after the others.
    What is at hand when it is told to stop is done to the end.
    """

    def outcomes(
        tasks: Sequence[Task], stopped: Callable[[], bool]
    ) -> Iterator[tuple[Task, ExplainOutcome | None]]:
        suspects: list[Task] = []
        todo = deque(tasks)
        with ProcessPool(workers) as pool:
            running: dict[Future[ExplainOutcome], Task] = {}
            while running or (todo and not stopped()):
                while todo and len(running) < workers and not stopped():
                    task = todo.popleft()
                    running[pool.submit(_explained, task)] = task
                for future in wait(running, _POLL_S, return_when=FIRST_COMPLETED).done:
                    task = running.pop(future)
                    try:
                        yield task, future.result()
                    except ProcessEndedError:
                        suspects.append(task)
        for task in suspects:
            if stopped():
                return
            yield task, _alone(task)

    return outcomes


def _alone(task: Task) -> ExplainOutcome | None:
    for _ in range(TRIES):
        with ProcessPool(1) as pool, suppress(ProcessEndedError):
            return pool.submit(_explained, task).result()
    return None


def _explained(task: Task) -> ExplainOutcome:
    begin()
    return look_at(task)


@cache
def begin() -> None:
    """This process becomes a worker: one processor, bounded memory."""
    use_processors(1)
    bound_memory(WORKER_MEMORY)

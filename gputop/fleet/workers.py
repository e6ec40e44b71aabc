"""Worker processes of this machine for many files, with retries when one dies."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from functools import cache

from gputop.fleet.explain_task import WORKER_MEMORY, ExplainOutcome, Task, explain_task
from gputop.parts.mapreduce import use_processors
from gputop.parts.process_pool import ProcessEndedError, ProcessPool
from gputop.query.forked import bound_memory

# explains tasks until stopped; an outcome of None: workers died over it repeatedly
Engine = Callable[[Sequence[Task], Callable[[], bool]], Iterator[tuple[Task, ExplainOutcome | None]]]
TRIES = 2  # retries alone, after a worker died
_POLL_S = 0.2


def processes(workers: int) -> Engine:
    """Return an engine of so many processes of this machine.

    A recording over which a worker dies is retried alone, after the others. On a stop request, running tasks
    are completed.
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
    return explain_task(task)


@cache
def begin() -> None:
    """Make this process a worker: one processor, bounded memory."""
    use_processors(1)
    bound_memory(WORKER_MEMORY)

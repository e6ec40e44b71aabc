"""Worker processes of demo programs, forked before CUDA starts, like a DataLoader's."""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def name_thread(name: str) -> None:
    """Set the calling thread's name."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker process, and a pipe to it."""

    process: ForkProcess
    pipe: Connection


def fork_workers(count: int, work: Callable[[int, Connection], None]) -> list[Worker]:
    """Start ``work(number, pipe)`` in processes that end with their parent."""
    context = get_context("fork")
    workers: list[Worker] = []
    for number in range(count):
        mine, theirs = context.Pipe()
        foreign = [mine, *(worker.pipe for worker in workers)]
        process = context.Process(target=_run, args=(work, number, theirs, foreign), daemon=True)
        process.start()
        theirs.close()
        workers.append(Worker(process, mine))
    return workers


def _run(
    work: Callable[[int, Connection], None], number: int, pipe: Connection, foreign: list[Connection]
) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)  # fork does not inherit it
    for other in foreign:
        other.close()
    name_thread("pt_data_worker")
    work(number, pipe)


def end_workers(workers: list[Worker]) -> None:
    """End them."""
    for worker in workers:
        worker.process.terminate()

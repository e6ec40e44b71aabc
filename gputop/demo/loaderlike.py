"""What PyTorch's DataLoader does for the workloads that it feeds: workers, shared memory, pinning."""

from __future__ import annotations

import math
import mmap
import queue
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

import numpy as np
import numpy.typing as npt

from gputop.demo.helper_processes import Worker, end_workers, fork_workers, name_thread

_PREFETCH = 2  # batches that each worker has in hand (DataLoader's prefetch_factor)

Batch = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]
Get = Callable[[Indices, Batch], None]  # fetches and collates samples
Sampler = Callable[[], Indices]


class Workers:
    """``num_workers=count``: processes that put batches into shared memory and report by a pipe."""

    def __init__(
        self, count: int, get: Get, sampler: Sampler, shape: tuple[int, int], init: Callable[[], None]
    ) -> None:
        """Fork the workers and request their first batches."""
        self._get, self._sampler, self._init = get, sampler, init
        size = 4 * _PREFETCH * math.prod(shape)
        self._slots = [
            np.frombuffer(mmap.mmap(-1, size), np.float32).reshape((_PREFETCH, *shape)) for _ in range(count)
        ]
        self._workers: list[Worker] = fork_workers(count, self._work)
        for slot in range(_PREFETCH):
            for worker in self._workers:
                worker.pipe.send((slot, self._sampler()))

    def _work(self, number: int, pipe: Connection) -> None:
        self._init()
        while True:
            slot, indices = pipe.recv()
            self._get(indices, self._slots[number][slot])
            pipe.send(slot)

    def batches(self) -> Iterator[Batch]:
        """The batches in order; each may be overwritten once the next is requested."""
        while True:
            for worker, slots in zip(self._workers, self._slots, strict=True):
                slot = worker.pipe.recv()
                yield slots[slot]
                worker.pipe.send((slot, self._sampler()))

    def end(self) -> None:
        """End the workers."""
        end_workers(self._workers)


def without_workers(get: Get, sampler: Sampler, shape: tuple[int, int]) -> Iterator[Batch]:
    """``num_workers=0``: each batch is made when it is requested."""
    batch = np.empty(shape, np.float32)
    while True:
        get(sampler(), batch)
        yield batch


def pinning(batches: Iterator[Batch], room: list[Batch], init: Callable[[], None]) -> Iterator[Batch]:
    """``pin_memory=True``: a thread copies each batch into page-locked memory, a queue's length ahead."""
    ready: queue.Queue[Batch] = queue.Queue(1)

    def pin() -> None:
        name_thread("pt_data_pin")
        init()
        for number, batch in enumerate(batches):
            place = room[number % len(room)]
            np.copyto(place, batch)
            ready.put(place)

    threading.Thread(target=pin, daemon=True).start()
    return (ready.get() for _ in iter(int, 1))

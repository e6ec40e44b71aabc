"""Workloads that are fed by a data loader, in the forms that people write.

The data are 7 million samples of 100 numbers, scaled down to a hundredth. Each step moves a batch to the
device, trains on it, and reads the loss with ``.item()``, as the tutorials do.
"""

from __future__ import annotations

import math
import mmap
import os
import queue
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

import numpy as np
import numpy.typing as npt

from gputop.demo.cuda import Kernel
from gputop.demo.story import Steps
from gputop.demo.torchlike import Torch
from gputop.demo.workers import Worker, end_workers, fork_workers, name_thread

_SAMPLES, _FEATURES = 70_000, 100
_BATCH = 16_384
_PREFETCH = 2  # batches that each worker has in hand (DataLoader's prefetch_factor)
_KERNELS, _KERNEL_NS = 20, 500_000

Batch = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]


class _Dataset:
    """A map-style dataset of one array, with a transform and a label for each sample."""

    def __init__(self) -> None:
        self._data: Batch = np.zeros((_SAMPLES, _FEATURES), np.float32)
        self._data += np.arange(_FEATURES, dtype=np.float32)
        self._labels = np.arange(_SAMPLES) % 10
        self._mean, self._scale = self._data.mean(axis=0), np.float32(0.5)
        self._random = np.random.default_rng(1)

    def __getitem__(self, index: int) -> tuple[Batch, np.int64]:
        sample = (self._data[index] - self._mean) * self._scale
        return np.minimum(np.maximum(sample, -1), 1), self._labels[index]

    def __getitems__(self, indices: Indices, out: Batch) -> Indices:
        """A whole batch in one gather, with the same transform."""
        np.take(self._data, indices, axis=0, out=out, mode="clip")
        np.subtract(out, self._mean, out=out)
        np.multiply(out, self._scale, out=out)
        np.minimum(np.maximum(out, -1, out=out), 1, out=out)
        labels: Indices = self._labels[indices]
        return labels

    def indices(self) -> Indices:
        """What a random sampler draws for a batch."""
        return self._random.integers(_SAMPLES, size=_BATCH)


def _one_by_one(dataset: _Dataset, indices: Indices, out: Batch) -> None:
    """``default_collate([dataset[i] for i in indices])``."""
    samples = [dataset[index] for index in indices.tolist()]
    features, labels = zip(*samples, strict=True)
    np.stack(features, out=out)
    np.stack(labels)


def _at_once(dataset: _Dataset, indices: Indices, out: Batch) -> None:
    dataset.__getitems__(indices, out)


Fetch = Callable[[_Dataset, Indices, Batch], None]


def _leave_first_cpu() -> None:
    """``worker_init_fn``: keeps off the CPU of the thread that feeds the GPU, where there is another."""
    cpus = set(range(os.cpu_count() or 1))
    os.sched_setaffinity(0, cpus - {min(cpus)} or cpus)


class _Workers:
    """``num_workers=count``: processes that put batches into shared memory and say so through a pipe."""

    def __init__(self, count: int, fetch: Fetch, init: Callable[[], None] = lambda: None) -> None:
        self._dataset, self._fetch, self._init = _Dataset(), fetch, init
        shape = (_PREFETCH, _BATCH, _FEATURES)
        self._slots = [
            np.frombuffer(mmap.mmap(-1, 4 * math.prod(shape)), np.float32).reshape(shape)
            for _ in range(count)
        ]
        self.workers: list[Worker] = fork_workers(count, self._work)
        for slot in range(_PREFETCH):
            for worker in self.workers:
                worker.pipe.send((slot, self._dataset.indices()))

    def _work(self, number: int, pipe: Connection) -> None:
        self._init()
        while True:
            slot, indices = pipe.recv()
            self._fetch(self._dataset, indices, self._slots[number][slot])
            pipe.send(slot)

    def batches(self) -> Iterator[Batch]:
        """The batches in order; each may be overwritten once the next is asked for."""
        while True:
            for worker, slots in zip(self.workers, self._slots, strict=True):
                slot = worker.pipe.recv()
                yield slots[slot]
                worker.pipe.send((slot, self._dataset.indices()))


def _without_workers(fetch: Fetch) -> Iterator[Batch]:
    """``num_workers=0``: each batch is made when it is asked for."""
    dataset, batch = _Dataset(), np.empty((_BATCH, _FEATURES), np.float32)
    while True:
        fetch(dataset, dataset.indices(), batch)
        yield batch


def _pin(batches: Iterator[Batch], room: list[Batch], ready: queue.Queue[Batch]) -> None:
    """``pin_memory=True``: a thread copies each batch into page-locked memory, a queue's length ahead."""
    name_thread("pt_data_pin")
    _leave_first_cpu()
    for number, batch in enumerate(batches):
        place = room[number % len(room)]
        np.copyto(place, batch)
        ready.put(place)


def _train(steps: Steps, torch: Torch, batches: Iterator[Batch], move: Callable[[Batch], None]) -> int:
    model = [Kernel(_KERNEL_NS)] * _KERNELS
    done = 0
    for _ in steps:
        move(next(batches))
        torch.launch(model)
        torch.item()
        done += 1
    torch.finish()
    return done


def dataloader(steps: Steps) -> int:
    """DataLoader(num_workers=0): each sample is fetched and collated by the thread that feeds the GPU."""
    torch = Torch()
    return _train(steps, torch, _without_workers(_one_by_one), torch.cuda)


def dataloader_direct(steps: Steps) -> int:
    """No DataLoader: the launching thread indexes the data with a batch of indices at once."""
    torch = Torch()
    return _train(steps, torch, _without_workers(_at_once), torch.cuda)


def dataloader_workers(steps: Steps) -> int:
    """DataLoader(num_workers=4) on few CPUs: the workers fetch sample by sample and cannot keep up."""
    loader = _Workers(4, _one_by_one)
    torch = Torch()
    done = _train(steps, torch, loader.batches(), torch.cuda)
    end_workers(loader.workers)
    return done


def dataloader_fixed(steps: Steps) -> int:
    """As advised: a worker on a CPU of its own fetches whole batches; pinned memory, non_blocking copies."""
    loader = _Workers(1, _at_once, init=_leave_first_cpu)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch = Torch()
    ready: queue.Queue[Batch] = queue.Queue(1)
    room = [torch.pinned((_BATCH, _FEATURES)) for _ in range(4)]  # queued, in use, being filled, and one
    threading.Thread(target=_pin, args=(loader.batches(), room, ready), daemon=True).start()
    done = _train(steps, torch, (ready.get() for _ in iter(int, 1)), torch.cuda_non_blocking)
    end_workers(loader.workers)
    return done

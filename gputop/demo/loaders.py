"""Workloads that are fed by a data loader, in the forms that people write.

The data are 7 million samples of 100 numbers, scaled down to a hundredth. Each step moves a batch to the
device, trains on it, and reads the loss with ``.item()``, as the tutorials do.
"""

from __future__ import annotations

import mmap
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
_BATCH = 8_192
_PREFETCH = 2  # batches that each worker has in hand (DataLoader's prefetch_factor)
_KERNELS, _KERNEL_NS = 20, 500_000

Batch = npt.NDArray[np.float32]
Fetch = Callable[[npt.NDArray[np.int64]], Batch]


class _Dataset:
    """A map-style dataset of one array."""

    def __init__(self) -> None:
        self._data = np.zeros((_SAMPLES, _FEATURES), np.float32)
        self._data += np.arange(_FEATURES, dtype=np.float32)
        self._random = np.random.default_rng(1)

    def __getitem__(self, index: int) -> Batch:
        sample: Batch = self._data[index]
        return sample

    def indices(self) -> npt.NDArray[np.int64]:
        """What a random sampler draws for a batch."""
        return self._random.integers(_SAMPLES, size=_BATCH)

    def one_by_one(self, indices: npt.NDArray[np.int64]) -> Batch:
        """``default_collate([dataset[i] for i in indices])``."""
        return np.stack([self[index] for index in indices.tolist()])

    def at_once(self, indices: npt.NDArray[np.int64]) -> Batch:
        """``dataset.__getitems__(indices)``: one gather."""
        batch: Batch = self._data[indices]
        return batch


class _Workers:
    """``num_workers=count``: processes that put batches into shared memory and say so through a pipe."""

    def __init__(self, count: int, fetch: Fetch, dataset: _Dataset) -> None:
        size = _PREFETCH * _BATCH * _FEATURES * 4
        self._shared = [mmap.mmap(-1, size) for _ in range(count)]
        self._slots = [
            np.frombuffer(shared, np.float32).reshape(_PREFETCH, _BATCH, _FEATURES) for shared in self._shared
        ]
        self._fetch, self._dataset = fetch, dataset
        self.workers: list[Worker] = fork_workers(count, self._work)
        for slot in range(_PREFETCH):
            for worker in self.workers:
                worker.pipe.send((slot, dataset.indices()))

    def _work(self, number: int, pipe: Connection) -> None:
        while True:
            slot, indices = pipe.recv()
            self._slots[number][slot] = self._fetch(indices)
            pipe.send(slot)

    def batches(self) -> Iterator[Batch]:
        """The batches in order; each may be overwritten once the next is asked for."""
        while True:
            for worker, slots in zip(self.workers, self._slots, strict=True):
                slot = worker.pipe.recv()
                yield slots[slot]
                worker.pipe.send((slot, self._dataset.indices()))


def _pin(batches: Iterator[Batch], room: list[Batch], ready: queue.Queue[Batch]) -> None:
    """``pin_memory=True``: a thread copies each batch into page-locked memory; the queue bounds how far ahead."""
    name_thread("pt_data_pin")
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
    dataset, torch = _Dataset(), Torch()
    batches = (dataset.one_by_one(dataset.indices()) for _ in iter(int, 1))
    return _train(steps, torch, batches, torch.cuda)


def dataloader_direct(steps: Steps) -> int:
    """No DataLoader: the launching thread indexes the data with a batch of indices at once."""
    dataset, torch = _Dataset(), Torch()
    batches = (dataset.at_once(dataset.indices()) for _ in iter(int, 1))
    return _train(steps, torch, batches, torch.cuda)


def dataloader_workers(steps: Steps) -> int:
    """DataLoader(num_workers=4) on few CPUs: the workers fetch sample by sample and cannot keep up."""
    dataset = _Dataset()
    loader = _Workers(4, dataset.one_by_one, dataset)
    torch = Torch()
    done = _train(steps, torch, loader.batches(), torch.cuda)
    end_workers(loader.workers)
    return done


def dataloader_fixed(steps: Steps) -> int:
    """The same as advised: one worker that fetches whole batches, pinned memory, non_blocking copies."""
    dataset = _Dataset()
    loader = _Workers(1, dataset.at_once, dataset)
    torch = Torch()
    ready: queue.Queue[Batch] = queue.Queue(1)
    room = [torch.pinned((_BATCH, _FEATURES)) for _ in range(4)]  # queued, in use, being filled, and one
    threading.Thread(target=_pin, args=(loader.batches(), room, ready), daemon=True).start()
    done = _train(steps, torch, (ready.get() for _ in iter(int, 1)), torch.cuda_non_blocking)
    end_workers(loader.workers)
    return done

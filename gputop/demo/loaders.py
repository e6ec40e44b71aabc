"""Workloads that are fed by a data loader, in the forms that people write.

The data are 7 million samples of 100 numbers, scaled down to a hundredth. Each step moves a batch to the
device, trains on it, and reads the loss with ``.item()``, as the tutorials do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import numpy as np

from gputop.demo.cuda import Kernel
from gputop.demo.loaderlike import Batch, Indices, Workers, pinning, without_workers
from gputop.demo.torchlike import Torch
from gputop.demo.workload import Steps

_SAMPLES, _FEATURES = 70_000, 100
_BATCH = 16_384
_KERNELS, _KERNEL_NS = 20, 500_000


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


def _loader(count: int, fetch: Fetch, init: Callable[[], None] = lambda: None) -> Workers:
    """``DataLoader(dataset, num_workers=count, worker_init_fn=init)``."""
    dataset = _Dataset()

    def get(indices: Indices, out: Batch) -> None:
        fetch(dataset, indices, out)

    return Workers(count, get, dataset.indices, (_BATCH, _FEATURES), init)


def _in_process(fetch: Fetch) -> Iterator[Batch]:
    """``DataLoader(dataset, num_workers=0)``."""
    dataset = _Dataset()

    def get(indices: Indices, out: Batch) -> None:
        fetch(dataset, indices, out)

    return without_workers(get, dataset.indices, (_BATCH, _FEATURES))


def _leave_first_cpu() -> None:
    """``worker_init_fn``: keeps off the CPU of the submitting thread, where there is another."""
    cpus = set(range(os.cpu_count() or 1))
    os.sched_setaffinity(0, cpus - {min(cpus)} or cpus)


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
    """DataLoader(num_workers=0): each sample is fetched and collated by the submitting thread."""
    torch = Torch()
    return _train(steps, torch, _in_process(_one_by_one), torch.cuda)


def dataloader_direct(steps: Steps) -> int:
    """No DataLoader: the launching thread indexes the data with a batch of indices at once."""
    torch = Torch()
    return _train(steps, torch, _in_process(_at_once), torch.cuda)


def dataloader_workers(steps: Steps) -> int:
    """DataLoader(num_workers=4) on few CPUs: the workers fetch sample by sample and cannot keep up."""
    loader = _loader(4, _one_by_one)
    torch = Torch()
    done = _train(steps, torch, loader.batches(), torch.cuda)
    loader.end()
    return done


def dataloader_fixed(steps: Steps) -> int:
    """As advised: a worker on a CPU of its own fetches whole batches; pinned memory, non_blocking copies."""
    loader = _loader(1, _at_once, init=_leave_first_cpu)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch = Torch()
    room = [torch.pinned((_BATCH, _FEATURES)) for _ in range(4)]  # queued, in use, being filled, and one
    batches = pinning(loader.batches(), room, _leave_first_cpu)
    done = _train(steps, torch, batches, torch.cuda_non_blocking)
    loader.end()
    return done

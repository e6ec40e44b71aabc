"""PyTorch's own DataLoader feeds the simulated GPU; a CPU build of torch makes no CUDA calls of its own.

Arguments: the number of workers, ``pinned`` or ``pageable``. Runs for ``SECONDS``, some steps at least.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset, default_collate

from gputop.demo.cuda import H2D, Cuda, Kernel

ROWS, COLUMNS, BATCH = 1 << 17, 100, 4096
BUFFERS = 24  # more than batches that can be under way
KERNELS, KERNEL_NS = 12, 300_000
SECONDS, LEAST, MOST = 4, 8, 60  # steps: fewer are no pattern, more tell nothing new


def page_locked() -> Iterator[int]:
    """Buffers in turn, as PyTorch's host allocator hands them out again."""
    cuda = Cuda()
    yield from itertools.cycle([cuda.pinned(BATCH * COLUMNS * 4) for _ in range(BUFFERS)])


class Batch:
    """A batch that the loader's thread pins, into memory of the simulated driver."""

    buffers = page_locked()

    def __init__(self, samples: list[tuple[torch.Tensor, ...]]) -> None:
        (self.tensor,) = default_collate(samples)
        self.address = 0

    def pin_memory(self) -> Batch:
        """What the loader's thread calls on things that are not tensors."""
        self.address = next(self.buffers)
        ctypes.memmove(self.address, self.tensor.data_ptr(), self.tensor.nbytes)
        return self


def pretend_accelerator() -> None:
    """Without a GPU the loader starts no pinning thread; nothing else in it asks for one."""
    torch.accelerator.is_available = lambda: True
    torch.accelerator.current_accelerator = lambda: torch.device("cpu")
    torch.accelerator.current_device_index = lambda: 0
    torch.accelerator.set_device_index = lambda _index: None


def times(pid: int) -> tuple[int, int]:
    """(ns on CPUs, ns in run queues) of all threads of a process, by the kernel's own account."""
    spent = [0, 0]
    for task in Path(f"/proc/{pid}/task").iterdir():
        on_cpu, queued = (task / "schedstat").read_text().split()[:2]
        spent = [spent[0] + int(on_cpu), spent[1] + int(queued)]
    return spent[0], spent[1]


def say(**facts: object) -> None:
    """Tells the test."""
    with open(os.environ["SELF_LOG"], "a") as log:
        log.write(json.dumps(facts) + "\n")


def main() -> None:
    """Runs the steps: ``.to("cuda")``, kernels, a loss that is read at the end of the step."""
    workers, pinned = int(sys.argv[1]), sys.argv[2] == "pinned"
    if pinned:
        pretend_accelerator()
    loader = DataLoader(
        TensorDataset(torch.zeros(ROWS, COLUMNS)),
        batch_size=BATCH,
        shuffle=True,
        num_workers=workers,
        pin_memory=pinned,
        collate_fn=Batch if pinned else None,
        persistent_workers=workers > 0,
    )
    batches = itertools.chain.from_iterable(iter(loader) for _ in itertools.count())
    first = next(batches)  # forks the workers, before this process has a CUDA context
    say(ready=os.getpid())
    before, until = times(os.getpid()), time.monotonic() + SECONDS
    cuda = Cuda()
    stream, kernel = cuda.stream(), Kernel(KERNEL_NS)
    device = cuda.malloc(BATCH * COLUMNS * 4)
    for step, batch in enumerate(itertools.chain([first], batches)):
        if step == MOST or (step >= LEAST and time.monotonic() > until):
            break
        tensor = batch.tensor if pinned else batch[0]
        cuda.copy_async(device, batch.address if pinned else tensor.data_ptr(), tensor.nbytes, H2D, stream)
        if not pinned:
            cuda.synchronize(stream)  # as .to() does unless told non_blocking=True
        for _ in range(KERNELS):
            cuda.launch(kernel, stream)
        cuda.synchronize(stream)
    trainer = [after - earlier for after, earlier in zip(times(os.getpid()), before, strict=True)]
    children = [times(int(child.pid or 0)) for child in multiprocessing.active_children()]
    workers_spent = [sum(column) for column in zip(*children, strict=True)] or [0, 0]
    say(trainer=trainer, workers=workers_spent)


main()

"""The workloads. Each is one function that runs steps until its clock says stop."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import numpy as np

from gputop.demo.cuda import D2H, H2D, Cuda, Kernel

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess

MIB = 1 << 20
Steps = Iterator[int]


def steps_until(deadline: float | None) -> Steps:
    """Numbers steps until ``deadline`` (time.monotonic), or for ever."""
    step = 0
    while deadline is None or time.monotonic() < deadline:
        yield step
        step += 1


def _name_thread(name: str) -> None:
    """Shows as the thread's name (prctl PR_SET_NAME)."""
    ctypes.CDLL(None).prctl(15, name.encode()[:15], 0, 0, 0)


def train(steps: Steps) -> int:
    """A healthy training loop: pinned copies, 190 launches a step, two steps ahead of the GPU."""
    cuda = Cuda()
    stream, kernel = cuda.stream(), Kernel(46_000)
    host, device = cuda.pinned(MIB), cuda.malloc(MIB)
    events = [cuda.event() for _ in range(3)]
    done = 0
    for step in steps:
        if step >= 2:
            cuda.wait_event(events[(step - 2) % 3])
        cuda.copy_async(device, host, MIB, H2D, stream)
        for _ in range(190):
            cuda.launch(kernel, stream)
        cuda.record(events[step % 3], stream)
        done += 1
    cuda.synchronize(stream)
    return done


def numpy_sync(steps: Steps) -> int:
    """A hidden .cpu().numpy() in the loop: the GPU drains, NumPy works, the result goes back."""
    cuda = Cuda()
    stream, kernel = cuda.stream(), Kernel(400_000)
    array = np.zeros(2 * MIB, np.float32)
    address, device = array.ctypes.data, cuda.malloc(array.nbytes)
    noise = np.random.default_rng(1).random(MIB // 4)
    done = 0
    for _ in steps:
        for _ in range(8):
            cuda.launch(kernel, stream)
        cuda.copy_async(address, device, array.nbytes, D2H, stream)
        cuda.synchronize(stream)
        # what .numpy() is for: a reduction on the host while the GPU has nothing to do
        np.argsort(noise)
        cuda.copy_async(device, address, MIB, H2D, stream)
        done += 1
    cuda.synchronize(stream)
    return done


def to_device(steps: Steps) -> int:
    """Tensors built on the CPU and sent one by one from pageable memory: hundreds of small copies."""
    cuda = Cuda()
    stream, kernel = cuda.stream(), Kernel(150_000)
    small = np.zeros(4096, np.uint8)
    device = cuda.malloc(MIB)
    done = 0
    for _ in steps:
        for _ in range(200):
            small[:8] = 1
            cuda.copy_async(device, small.ctypes.data, small.nbytes, H2D, stream)
            cuda.synchronize(stream)
        for _ in range(10):
            cuda.launch(kernel, stream)
        cuda.synchronize(stream)
        done += 1
    return done


def _load_batches(pipe: Connection, samples: int) -> None:
    """A DataLoader worker: fetches sample by sample in Python, collates, sends."""
    data = np.zeros((4096, 100), np.float32)
    rng = np.random.default_rng(os.getpid())
    while True:
        batch = np.stack([data[int(rng.integers(4096))] for _ in range(samples)])
        pipe.send_bytes(batch.tobytes())


def _worker(
    work: Callable[..., None], writer: Connection, readers: list[Connection], *arguments: object
) -> None:
    """In a forked worker: ends with its parent, and keeps no pipe of another worker open."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG, not inherited by fork
    for reader in readers:
        reader.close()
    _name_thread("pt_data_worker")
    work(writer, *arguments)


def _workers(
    count: int, work: Callable[..., None], *arguments: object
) -> tuple[list[Connection], list[ForkProcess]]:
    """Forks workers before CUDA starts, as a DataLoader's should be."""
    context = get_context("fork")
    pipes, processes = [], []
    for _ in range(count):
        reader, writer = context.Pipe(duplex=False)
        pipes.append(reader)
        process = context.Process(target=_worker, args=(work, writer, pipes, *arguments), daemon=True)
        process.start()
        writer.close()
        processes.append(process)
    return pipes, processes


def dataloader(steps: Steps) -> int:
    """Four loader workers on few CPUs: the GPU waits for the next batch."""
    pipes, processes = _workers(4, _load_batches, 4000)
    cuda = Cuda()
    stream, kernel = cuda.stream(), Kernel(300_000)
    device = cuda.malloc(2 * MIB)
    done = 0
    for step in steps:
        batch = np.frombuffer(pipes[step % 4].recv_bytes(), np.float32)
        cuda.copy_async(device, batch.ctypes.data, batch.nbytes, H2D, stream)
        for _ in range(12):
            cuda.launch(kernel, stream)
        cuda.synchronize(stream)
        done += 1
    for process in processes:
        process.terminate()
    return done


class _SchedAttr(ctypes.Structure):
    """struct sched_attr of sched_setattr(2)."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


def _short_slices() -> None:
    """Asks for the shortest time slice (0.1 ms), so that a wakeup preempts whoever runs.

    Kernels before 6.12 refuse it and preempt on wakeups anyway.
    """
    attributes = _SchedAttr(size=ctypes.sizeof(_SchedAttr), runtime=100_000)
    ctypes.CDLL(None).syscall(314, 0, ctypes.byref(attributes), 0)  # sched_setattr on x86-64


def _disturb(_pipe: Connection) -> None:
    """Wakes up very often for very little: each wakeup takes the CPU from whoever has it."""
    _short_slices()
    while True:
        time.sleep(0.003)
        until = time.perf_counter() + 0.0003
        while time.perf_counter() < until:
            pass


def storm(steps: Steps) -> int:
    """A context-switch storm: six loader workers wake up all the time on the trainer's own CPU."""
    cpu = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})
    _pipes, processes = _workers(6, _disturb)
    cuda = Cuda()
    stream, kernel = cuda.stream(), Kernel(20_000)
    done = 0
    for _ in steps:
        for _ in range(50):
            cuda.launch(kernel, stream)
        cuda.synchronize(stream)
        done += 1
    for process in processes:
        process.terminate()
    return done


@dataclass(frozen=True, slots=True)
class Story:
    """A workload by name; ``run`` takes the steps to do and returns how many were done."""

    name: str
    run: Callable[[Steps], int]

    @property
    def title(self) -> str:
        """What it shows, from the function's docstring."""
        return (self.run.__doc__ or "").strip()


STORIES: dict[str, Story] = {
    story.name: story
    for story in (
        Story("train", train),
        Story("numpy-sync", numpy_sync),
        Story("redundant-to-device", to_device),
        Story("dataloader", dataloader),
        Story("storm", storm),
    )
}
DEFAULT = "train"

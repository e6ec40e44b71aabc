"""The demo programs by name; healthy and storm are here, the others beside."""

from __future__ import annotations

import ctypes
import os
import time
from multiprocessing.connection import Connection

from gputop.demo.cuda import H2D, Cuda, Kernel
from gputop.demo.helper_processes import end_workers, fork_workers
from gputop.demo.loaders import dataloader, dataloader_direct, dataloader_fixed, dataloader_workers
from gputop.demo.transfers import (
    numpy_sync,
    numpy_sync_fixed,
    redundant_to_device,
    redundant_to_device_fixed,
)
from gputop.demo.workload import MIB, Steps, Story


def healthy(steps: Steps) -> int:
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
    """Request the shortest time slice (0.1 ms), so that a wakeup preempts the running thread.

    Kernels before 6.12 refuse it and preempt on wakeups anyway.
    """
    attributes = _SchedAttr(size=ctypes.sizeof(_SchedAttr), nice=os.nice(0), runtime=100_000)
    ctypes.CDLL(None).syscall(314, 0, ctypes.byref(attributes), 0)  # sched_setattr on x86-64


def _disturb(_number: int, _pipe: Connection) -> None:
    """Wake up often for little work: each wakeup preempts the running thread."""
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
    workers = fork_workers(6, _disturb)
    cuda = Cuda()
    stream, kernel = cuda.stream(), Kernel(20_000)
    done = 0
    for _ in steps:
        for _ in range(50):
            cuda.launch(kernel, stream)
        cuda.synchronize(stream)
        done += 1
    end_workers(workers)
    return done


STORIES: dict[str, Story] = {
    story.name: story
    for story in (
        Story("healthy", healthy),
        Story("numpy-sync", numpy_sync),
        Story("numpy-sync-fixed", numpy_sync_fixed),
        Story("dataloader", dataloader),
        Story("dataloader-direct", dataloader_direct),
        Story("dataloader-workers", dataloader_workers),
        Story("dataloader-fixed", dataloader_fixed),
        Story("redundant-to-device", redundant_to_device),
        Story("redundant-to-device-fixed", redundant_to_device_fixed),
        Story("storm", storm),
    )
}

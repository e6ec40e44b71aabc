"""Programs as people write them, none of them made for a probe: ``unforeseen.py WHAT``, on the simulated GPU.

Each ends by itself, except for those whose end is what they are about.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from cuda import _ONE, D2D, D2H, H2D, Cuda

RANDOM = random.Random(7)
SIZE = ctypes.c_size_t


def pipelined_streams() -> None:
    """Three stages on streams of their own, each behind the one before by an event; buffers in turns."""
    cuda = Cuda()
    load, work, store = (cuda.stream(1) for _ in range(3))
    device, host = [cuda.malloc(1 << 20) for _ in range(3)], [cuda.pinned(1 << 20) for _ in range(3)]
    loaded, worked = [cuda.event(2) for _ in range(3)], [cuda.event(2) for _ in range(3)]
    for item in range(60):
        slot = item % 3
        cuda.copy_async(device[slot], host[slot], 1 << 19, H2D, load)
        cuda.EventRecord(loaded[slot], load)
        cuda.StreamWaitEvent(work, loaded[slot], 0)
        for _ in range(3):
            cuda.launch(RANDOM.randrange(20_000, 300_000), work)
        cuda.EventRecord(worked[slot], work)
        cuda.StreamWaitEvent(store, worked[slot], 0)
        cuda.copy_async(host[slot], device[slot], 1 << 16, D2H, store)
        if slot == 2:
            cuda.StreamSynchronize(store)
    cuda.DeviceSynchronize()


def graphs_beside_kernels() -> None:
    """Two graphs in turns, one of them made again every few steps, and launches between them."""
    cuda = Cuda()
    stream, other = cuda.stream(1), cuda.stream(1)

    def made(count: int) -> ctypes.c_void_p:
        cuda.StreamBeginCapture(stream, 0)
        for number in range(count):
            cuda.launch(30_000 + 10_000 * number, stream)
        graph = ctypes.c_void_p()
        assert cuda.StreamEndCapture(stream, ctypes.byref(graph)) == 0
        return cuda.handle("GraphInstantiate", graph, ctypes.c_ulonglong(0))

    first, second = made(4), made(9)
    for step in range(50):
        cuda.GraphLaunch(first if step % 2 else second, stream)
        cuda.launch(70_000, other)
        cuda.StreamSynchronize(stream)
        if step % 10 == 9:
            cuda.GraphExecDestroy(second)
            second = made(9)
    cuda.DeviceSynchronize()


def forks_before_and_after() -> None:
    """Children made before the first call use the GPU, as does what a child that is made later executes."""
    early = [os.fork() for _ in range(2)]
    if 0 in early:
        some_work(Cuda(), 30)
        os._exit(0)
    some_work(Cuda(), 30)
    if (late := os.fork()) == 0:
        os.execv(sys.executable, [sys.executable, __file__, "memsets"])
    for pid in (*early, late):
        os.waitpid(pid, 0)


def executes_without_work_left() -> None:
    """All was waited for and handed over before another program takes the process."""
    some_work(Cuda(), 20)
    time.sleep(0.5)
    os.execv(sys.executable, [sys.executable, __file__, "managed_memory"])


def pool_of_threads() -> None:
    """Tasks of a pool; threads come and go, each with a stream of its own while it lives."""
    cuda = Cuda()

    def task(number: int) -> None:
        stream = cuda.stream(1)
        for _ in range(5):
            cuda.launch(10_000 * (1 + number % 7), stream)
            cuda.StreamSynchronize(stream)
        cuda.StreamDestroy(stream)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(task, range(60)))
    short = [threading.Thread(target=task, args=(number,)) for number in range(20)]
    for one in short:
        one.start()
    for one in short:
        one.join()


def memsets() -> None:
    """Fills of all kinds, in place of kernels."""
    cuda = Cuda()
    device, stream = cuda.malloc(1 << 22), cuda.stream(1)
    for step in range(60):
        cuda.Memset(device, step, SIZE(1 << 12))
        cuda.MemsetAsync(device, 0, SIZE(1 << 20), stream)
        cuda.Memset2DAsync(device, SIZE(1 << 11), 1, SIZE(1 << 10), SIZE(64), stream)
        cuda.StreamSynchronize(stream)
        time.sleep(0.0005)


def managed_memory() -> None:
    """Memory that both sides touch, moved ahead and back."""
    cuda = Cuda()
    both = cuda.handle("MallocManaged", SIZE(1 << 21), 1)
    for _ in range(40):
        cuda.MemPrefetchAsync(both, SIZE(1 << 21), 0, None)
        cuda.launch(150_000)
        cuda.MemPrefetchAsync(both, SIZE(1 << 21), -1, None)
        cuda.DeviceSynchronize()


def timed_by_events() -> None:
    """A benchmark: events around each kernel, polled."""
    cuda = Cuda()
    begin, end, ms = cuda.event(), cuda.event(), ctypes.c_float()
    for step in range(80):
        cuda.EventRecord(begin, None)
        cuda.launch(1_000 + 7_000 * (step % 20))
        cuda.EventRecord(end, None)
        while cuda.EventQuery(end) == 600:
            pass
        assert cuda.EventElapsedTime(ctypes.byref(ms), begin, end) == 0


def two_gpus() -> None:
    """One thread feeds two GPUs and copies from one to the other."""
    cuda = Cuda()
    memory = []
    for device in range(2):
        cuda.SetDevice(device)
        memory.append(cuda.malloc(1 << 20))
    for step in range(50):
        for device in range(2):
            cuda.SetDevice(device)
            cuda.launch(100_000 + 20_000 * device)
        cuda.MemcpyPeerAsync(memory[1], 1, memory[0], 0, SIZE(1 << 18), None)
        for device in range(2):
            cuda.SetDevice(device)
            cuda.DeviceSynchronize()
        time.sleep(0.001 * (step % 3))


def resets_the_device() -> None:
    """Everything is thrown away twice in the middle."""
    cuda = Cuda()
    for _ in range(3):
        some_work(cuda, 15)
        assert cuda.DeviceReset() == 0


def driver_contexts() -> None:
    """The driver's own functions, with contexts that are made and destroyed."""
    driver = ctypes.CDLL("libcuda.so.1")
    assert driver.cuInit(0) == 0
    for _ in range(3):
        context, stream, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        assert driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
        assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
        assert driver.cuMemAlloc_v2(ctypes.byref(memory), SIZE(1 << 16)) == 0
        for step in range(20):
            assert driver.cuMemsetD8Async(memory, step, SIZE(1 << 14), stream) == 0
            assert driver.cuStreamSynchronize(stream) == 0
        assert driver.cuCtxDestroy_v2(context) == 0


def bursts_and_pauses() -> None:
    """A server: hundreds of launches at once, then nothing for a while."""
    cuda = Cuda()
    stream = cuda.stream(1)
    for _ in range(6):
        for number in range(300):
            cuda.launch(2_000 + number, stream)
        cuda.StreamSynchronize(stream)
        time.sleep(0.12)


def allocates_in_streams() -> None:
    """Memory of a pool, and a function of the host between kernels."""
    cuda = Cuda()
    stream, seen = cuda.stream(1), []
    host = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _argument: seen.append(1))
    for _ in range(40):
        memory = cuda.handle("MallocAsync", SIZE(1 << 16), stream)
        cuda.launch(60_000, stream)
        cuda.LaunchHostFunc(stream, host, None)
        cuda.copy_async(memory, ctypes.c_void_p(memory.value + (1 << 15)), 1 << 14, D2D, stream)
        cuda.FreeAsync(memory, stream)
        cuda.StreamSynchronize(stream)
    assert len(seen) == 40


def starts_others_by_a_shell() -> None:
    """A script's script: only the grandchildren use the GPU, two at a time."""
    command = f"{sys.executable} {__file__} timed_by_events & {sys.executable} {__file__} memsets; wait"
    subprocess.run(["sh", "-c", command], check=True)


def is_killed_with_work_queued() -> None:
    """The queue is full of what will never be told."""
    cuda = Cuda()
    some_work(cuda, 30)
    time.sleep(0.3)
    for _ in range(50):
        cuda.launch(3_000_000)
    os.kill(os.getpid(), signal.SIGKILL)


def crashes_in_a_thread() -> None:
    """A worker writes where nothing is, while others wait for the GPU."""
    cuda = Cuda()
    others = [threading.Thread(target=some_work, args=(cuda, 10_000), daemon=True) for _ in range(2)]
    for one in others:
        one.start()
    time.sleep(0.6)
    ctypes.memset(16, 0, 1)


def collectives() -> None:
    """Two ranks of a job, a process each, whose all-reduce follows each step."""
    from nccl import Nccl

    with tempfile.TemporaryDirectory() as folder:
        meeting = os.path.join(folder, "meeting")
        children = []
        for rank in range(2):
            if (child := os.fork()) == 0:
                cuda, nccl = Cuda(), Nccl()
                cuda.SetDevice(rank)
                comm, stream = nccl.join(rank, 2, meeting), cuda.stream(1)
                for _ in range(40):
                    cuda.launch(300_000 + 100_000 * rank, stream)
                    assert nccl.all_reduce(comm, stream, 4096) == 0
                    cuda.StreamSynchronize(stream)
                nccl.CommDestroy(comm)
                sys.exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)


def two_lines() -> None:
    """Launches from two functions in turns, whose order it logs."""
    cuda, order, ns = Cuda(), [], ctypes.c_uint64()
    stream, arguments = cuda.stream(1), (ctypes.c_void_p * 1)(ctypes.addressof(ns))
    launch, function, rest = (
        cuda.LaunchKernel,
        ctypes.c_void_p(0x1000),
        (_ONE, _ONE, arguments, SIZE(0), stream),
    )

    def forward() -> None:
        order.append("forward")
        ns.value = 40_000 + RANDOM.randrange(40_000)
        assert launch(function, *rest) == 0

    def backward() -> None:
        order.append("backward")
        ns.value = 90_000 + RANDOM.randrange(90_000)
        assert launch(function, *rest) == 0

    for _ in range(60):
        for _ in range(RANDOM.randrange(1, 4)):
            forward()
        backward()
        cuda.StreamSynchronize(stream)
    with open(os.environ["SELF_LOG"], "a") as log:
        print(json.dumps({"order": order}), file=log)


def some_work(cuda: Cuda, steps: int) -> None:
    """Kernels, a copy each way, a wait, some time of the host's."""
    device, host, stream = cuda.malloc(1 << 18), cuda.pinned(1 << 18), cuda.stream(1)
    for step in range(steps):
        cuda.copy_async(device, host, 1 << 16, H2D, stream)
        cuda.launch(50_000 + 5_000 * (step % 9), stream)
        cuda.copy_async(host, device, 1 << 10, D2H, stream)
        cuda.StreamSynchronize(stream)
        time.sleep(0.001)


if __name__ == "__main__":
    globals()[sys.argv[1]]()

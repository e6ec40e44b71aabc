"""Work for a simulated GPU whose trace is the truth: ``insides.py WHAT``."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time

from cuda import D2H, H2D, Cuda

STEPS = int(os.environ.get("STEPS", "40"))


def work(cuda: Cuda, streams: int = 2, steps: int = STEPS) -> None:
    """Kernels on streams, copies both ways, fills."""
    used = [cuda.stream() for _ in range(streams)]
    device, host = cuda.malloc(1 << 20), cuda.pinned(1 << 20)
    for step in range(steps):
        cuda.copy(device, host, 1 << 18, H2D)
        for stream in used:
            cuda.launch(200_000 + 1000 * step, stream)
            cuda.launch(50_000, stream)
        cuda.MemsetAsync(device, 0, ctypes.c_size_t(4096), used[0])
        cuda.DeviceSynchronize()
        cuda.copy(host, device, 1 << 12, D2H)
        time.sleep(0.002)


def threads() -> None:
    cuda = Cuda()
    run = [threading.Thread(target=work, args=(cuda, 1)) for _ in range(3)]
    for one in run:
        one.start()
    for one in run:
        one.join()


def forks() -> None:
    """A child that uses the GPU by itself, made before the parent does, and one that does not, made after."""
    child = os.fork()
    if child == 0:
        work(Cuda(), 1)
        sys.exit(0)
    work(Cuda(), 1)
    other = os.fork()
    if other == 0:
        os._exit(0)
    os.waitpid(child, 0)
    os.waitpid(other, 0)


def executes() -> None:
    """Another program while the GPU is busy: no moment to hand that kernel over lies between."""
    cuda = Cuda()
    work(cuda, 1, 40)
    cuda.launch(100_000_000)
    os.execv(sys.executable, [sys.executable, __file__, "work"])


def starts() -> None:
    run = [subprocess.Popen([sys.executable, __file__, "work"]) for _ in range(2)]
    for one in run:
        one.wait()


def eager() -> None:
    """Short kernels that the host launches too slowly, and a read at the end of each step."""
    cuda = Cuda()
    device, host = cuda.malloc(1 << 12), cuda.pinned(1 << 12)
    for _ in range(10 * STEPS):
        for _ in range(20):
            cuda.launch(5_000)
            sum(range(2000))
        cuda.copy(host, device, 4, D2H)


def graphs() -> None:
    cuda = Cuda()
    stream = cuda.stream()
    cuda.StreamBeginCapture(stream, 0)
    for ns in (100_000, 200_000, 300_000):
        cuda.launch(ns, stream)
    graph = ctypes.c_void_p()
    assert cuda.StreamEndCapture(stream, ctypes.byref(graph)) == 0
    made = cuda.handle("GraphInstantiate", graph, ctypes.c_ulonglong(0))
    for _ in range(STEPS):
        assert cuda.GraphLaunch(made, stream) == 0
        cuda.StreamSynchronize(stream)
        time.sleep(0.001)


def crashes() -> None:
    work(Cuda())
    os.kill(os.getpid(), signal.SIGSEGV)


def killed() -> None:
    work(Cuda())
    os.kill(os.getpid(), signal.SIGKILL)


def profiled() -> None:
    """Another client takes CUPTI over in the middle."""
    cuda = Cuda()
    work(cuda)
    cupti, handle = ctypes.CDLL(os.environ.get("TEST_CUPTI", "libcupti.so.13")), ctypes.c_void_p()
    said = cupti.cuptiSubscribe(ctypes.byref(handle), None, None)
    with open(os.environ["SELF_LOG"], "a") as log:
        print(json.dumps({"subscribe": said}), file=log)
    time.sleep(2.5)
    work(cuda)


def long_lived() -> None:
    cuda = Cuda()
    until = time.monotonic() + 60
    while time.monotonic() < until:
        cuda.launch(100_000)
        cuda.DeviceSynchronize()
        time.sleep(0.001)


if __name__ == "__main__":
    {"work": lambda: work(Cuda())}.get(sys.argv[1], globals().get(sys.argv[1]))()

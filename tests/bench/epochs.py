"""A training loop on the simulated GPU whose two workers are born anew for every epoch, or kept.

Usage: ``epochs.py born|kept SECONDS``.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import sys
import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

WORKERS, BATCHES, LAUNCHES = 2, 12, 20
BATCH_S, KERNEL_NS = 0.005, 50_000
EPOCH_S = 0.2  # at least


class Dim3(ctypes.Structure):
    """As CUDA has it."""

    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


def _prepares(connection: Connection) -> None:
    """A worker: a batch for each number that is asked for, until None."""
    while connection.recv() is not None:
        until = time.perf_counter() + BATCH_S
        while time.perf_counter() < until:
            pass
        connection.send(bytes(1000))


def _workers() -> list[tuple[BaseProcess, Connection]]:
    context, found = multiprocessing.get_context("fork"), []
    for _ in range(WORKERS):
        ours, theirs = context.Pipe()
        process = context.Process(target=_prepares, args=(theirs,), daemon=True)
        process.start()
        found.append((process, ours))
    return found


def _end(workers: list[tuple[BaseProcess, Connection]]) -> None:
    for process, connection in workers:
        connection.send(None)
        process.join()


def main(way: str, seconds: float) -> None:
    """Runs epochs."""
    runtime, one, kept = ctypes.CDLL("libcudart.so.12"), Dim3(64, 1, 1), ctypes.c_uint64(KERNEL_NS)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(kept))
    kernel = ctypes.c_void_p(ctypes.addressof(kept))
    runtime.cudaLaunchKernel.argtypes = [
        ctypes.c_void_p,
        Dim3,
        Dim3,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_void_p,
    ]
    until, workers = time.monotonic() + seconds, _workers()
    while time.monotonic() < until:
        begin = time.monotonic()
        if way == "born":
            _end(workers)
            workers = _workers()
        for batch in range(BATCHES):
            for _process, connection in workers:
                connection.send(batch)
            for _process, connection in workers:
                connection.recv()
            for _ in range(LAUNCHES):
                runtime.cudaLaunchKernel(kernel, one, one, arguments, 0, None)
            runtime.cudaStreamSynchronize(None)
        time.sleep(max(0.0, begin + EPOCH_S - time.monotonic()))
    _end(workers)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))

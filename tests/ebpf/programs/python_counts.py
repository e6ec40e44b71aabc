"""Known numbers of calls from three processes of eight threads: python_counts.py LAUNCHES."""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import sys
import threading
from collections import Counter

from cuda import H2D, Cuda

THREADS = 8


def work(cuda: Cuda, driver: ctypes.CDLL, launches: int, results: list[Counter[str]]) -> None:
    """One thread: counts each call it makes."""
    made: Counter[str] = Counter()
    stream, memory, host = cuda.stream(1), cuda.malloc(64), ctypes.create_string_buffer(64)
    made.update(["cudaStreamCreateWithFlags", "cudaMalloc"])
    for turn in range(1, launches + 1):
        assert cuda.launch(1000, stream) == 0
        made["cudaLaunchKernel"] += 1
        if turn % 4 == 0:
            assert cuda.copy_async(memory, host, 64, H2D, stream) == 0
            made["cudaMemcpyAsync"] += 1
        if turn % 16 == 0:
            assert cuda.StreamSynchronize(stream) == 0
            made["cudaStreamSynchronize"] += 1
        if turn % 8 == 0:
            driver.cuStreamQuery(stream)
            made["cuStreamQuery"] += 1
    results.append(made)


def process(launches: int, leave: bool) -> None:
    """One process: its threads, its line in the log; leaves in the middle of Python if told so."""
    cuda, driver = Cuda(), ctypes.CDLL("libcuda.so.1")
    results: list[Counter[str]] = []
    threads = [
        threading.Thread(target=work, args=(cuda, driver, launches + 10 * number, results))
        for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == THREADS
    made = sum(results, Counter())
    direct = {"cuStreamQuery": made.pop("cuStreamQuery")}
    with open(os.environ["SELF_LOG"], "a") as log:
        log.write(json.dumps({"pid": os.getpid(), "made": made, "direct": direct}) + "\n")
    if leave:
        os._exit(0)


def main() -> None:
    """The parent counts too, after its children were forked."""
    context = multiprocessing.get_context("fork")
    launches = int(sys.argv[1])
    children = [context.Process(target=process, args=(launches + 100 * n, n == 1)) for n in (1, 2)]
    for child in children:
        child.start()
    process(launches, False)
    for child in children:
        child.join()
        assert child.exitcode == 0


main()

"""Calls of the CUDA runtime and driver, a known number of times: ``count N``, or timed: ``time N``.

By ctypes on the libraries that PyTorch has loaded, so that nothing has to be compiled here.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable

import torch

NULL = ctypes.c_void_p(0)


def library(name: str) -> ctypes.CDLL:
    """The one that this process has mapped."""
    with open("/proc/self/maps") as maps:
        paths = [line.split()[-1] for line in maps if name in line.rpartition("/")[2]]
    return ctypes.CDLL(paths[0] if paths else name)


def calls() -> dict[str, Callable[[], object]]:
    torch.zeros(1, device="cuda")
    runtime, driver = library("libcudart.so"), library("libcuda.so.1")
    event = ctypes.c_void_p()
    runtime.cudaEventCreate(ctypes.byref(event))
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    return {
        "cudaStreamQuery": lambda: runtime.cudaStreamQuery(NULL),
        "cudaEventRecord": lambda: runtime.cudaEventRecord(event, NULL),
        "cudaEventQuery": lambda: runtime.cudaEventQuery(event),
        "cudaStreamSynchronize": lambda: runtime.cudaStreamSynchronize(NULL),
        "cudaMemGetInfo": lambda: runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)),
        "cuStreamQuery": lambda: driver.cuStreamQuery(NULL),
        "cuCtxSynchronize": lambda: driver.cuCtxSynchronize(),
    }


def timed(call: Callable[[], object], count: int) -> float:
    """The fastest of nine batches, ns a call: what disturbs the machine for a moment is left out."""
    best = float("inf")
    for _ in range(9):
        began = time.perf_counter_ns()
        for _ in range(count):
            call()
        best = min(best, (time.perf_counter_ns() - began) / count)
    return best


def copies() -> dict[str, float]:
    """Bytes a ns of blocking copies to the GPU: pageable (used before, fresh pages, 1 MiB) and pinned."""
    size = 32 << 20
    target = torch.empty(size, dtype=torch.uint8, device="cuda")
    used = torch.ones(size, dtype=torch.uint8)
    pinned = used.pin_memory()
    rates: dict[str, list[float]] = {"pageable": [], "fresh pages": [], "pinned": [], "small": []}
    small = torch.ones(1 << 20, dtype=torch.uint8)
    for _ in range(8):
        fresh = torch.empty(size, dtype=torch.uint8)
        for name, source in (
            ("pageable", used),
            ("fresh pages", fresh),
            ("pinned", pinned),
            ("small", small),
        ):
            torch.cuda.synchronize()
            began = time.perf_counter_ns()
            target[: len(source)].copy_(source)
            torch.cuda.synchronize()
            rates[name].append(len(source) / (time.perf_counter_ns() - began))
        del fresh
    return {name: min(found) for name, found in rates.items()}


def square_wave(seconds: float, period: float) -> list[tuple[int, int]]:
    """Keeps the GPU busy for half of each period; returns the times (CLOCK_MONOTONIC, ns) of its work."""
    x = torch.randn(4096, 4096, device="cuda")
    x @ x
    torch.cuda.synchronize()
    spans = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began, stop = time.monotonic_ns(), time.monotonic() + period / 2
        while time.monotonic() < stop:
            for _ in range(4):
                x @ x
            torch.cuda.synchronize()
        spans.append((began, time.monotonic_ns()))
        time.sleep(period / 2)
    return spans


def main() -> None:
    print(json.dumps({"ready": True, "pid": os.getpid()}), flush=True)
    made: dict[str, Callable[[], object]] = {}
    for line in sys.stdin:
        what, *more = line.split()
        said: dict[str, object] = {}
        made = made or calls()
        if what == "count":
            for call in made.values():
                for _ in range(int(more[0])):
                    call()
            said = {"counts": dict.fromkeys(made, int(more[0]))}
        elif what == "time":
            said = {"ns": {name: timed(call, int(more[0])) for name, call in made.items()}}
        elif what == "copies":
            said = {"rates": copies()}
        elif what == "wave":
            said = {"spans": square_wave(float(more[0]), float(more[1]))}
        print(json.dumps(said), flush=True)


main()

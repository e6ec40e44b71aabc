"""Copies of 8 MiB of one kind and three kernels of 0.1 ms a step, on nothing but libcudart.

Usage: copies.py sent|sent-twice|sent-pinned|sent-async|read|read-empty|read-async|both|both-async
"""

from __future__ import annotations

import ctypes
import sys
import time

SIZE, KERNEL_NS, SECONDS, HOST_S = 8 << 20, 100_000, 2.5, 0.0003
TO_DEVICE, TO_HOST = 1, 2


class Dim3(ctypes.Structure):
    """Blocks or threads."""

    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


runtime = ctypes.CDLL("libcudart.so.12")
runtime.cudaLaunchKernel.argtypes = [
    ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p,
]  # fmt: skip
kept = ctypes.c_uint64(KERNEL_NS)
arguments = (ctypes.c_void_p * 1)(ctypes.addressof(kept))
device, pinned = ctypes.c_void_p(), ctypes.c_void_p()
pageable = ctypes.create_string_buffer(SIZE)
runtime.cudaMalloc(ctypes.byref(device), ctypes.c_size_t(SIZE))
runtime.cudaHostAlloc(ctypes.byref(pinned), ctypes.c_size_t(SIZE), 0)


def launch() -> None:
    """Three kernels."""
    for _ in range(3):
        handle = ctypes.c_void_p(ctypes.addressof(kept))
        assert runtime.cudaLaunchKernel(handle, Dim3(64, 1, 1), Dim3(64, 1, 1), arguments, 0, None) == 0


def wait() -> None:
    """For all of it."""
    assert runtime.cudaDeviceSynchronize() == 0


def copy(way: int, host: object, *, wait_for_it: bool = True) -> None:
    """One copy."""
    target, source = (device, host) if way == TO_DEVICE else (host, device)
    if wait_for_it:
        assert runtime.cudaMemcpy(target, source, ctypes.c_size_t(SIZE), way) == 0
    else:
        assert runtime.cudaMemcpyAsync(target, source, ctypes.c_size_t(SIZE), way, None) == 0


def step(kind: str) -> None:
    """One step."""
    what, _, how = kind.partition("-")
    if what in ("sent", "both"):
        copy(TO_DEVICE, pinned if how in ("pinned", "async") else pageable, wait_for_it=how != "async")
        if how == "twice":
            copy(TO_DEVICE, pageable)
    launch()
    if how == "empty" or what == "sent":
        wait()
    if what in ("read", "both"):
        copy(TO_HOST, pinned if how == "async" else pageable, wait_for_it=how != "async")
        if how == "async":
            wait()
    end = time.perf_counter() + HOST_S
    while time.perf_counter() < end:
        pass


until = time.monotonic() + SECONDS
while time.monotonic() < until:
    step(sys.argv[1])
wait()

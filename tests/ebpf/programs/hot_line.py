"""Waits for the GPU and computes for 20 ms, in turns for some seconds: nearly all of that on one line."""

import ctypes
import os
import sys
import time

RUNTIME = ctypes.CDLL(os.environ.get("TEST_CUDART", "libcudart.so.12"))


def compute():
    end = time.perf_counter() + 0.02
    small = 0
    while time.perf_counter() < end:
        sum(range(40_000))  # hot
        small += 1
    return small


until = time.perf_counter() + float(sys.argv[1])
while time.perf_counter() < until:
    RUNTIME.cudaDeviceSynchronize()
    compute()

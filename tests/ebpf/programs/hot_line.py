"""Waits for the GPU and computes for 20 ms, in turns for some CPU seconds: nearly all of that on one line."""

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


until = time.process_time() + float(sys.argv[1])
while time.process_time() < until:
    RUNTIME.cudaDeviceSynchronize()
    compute()

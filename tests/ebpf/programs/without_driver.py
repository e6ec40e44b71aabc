"""Calls NVIDIA's own runtime where there is no driver: every call fails, and says so."""

from __future__ import annotations

import ctypes
import json
import os
import sys

runtime = ctypes.CDLL(sys.argv[1])
host, out = ctypes.create_string_buffer(64), ctypes.c_void_p()
size = ctypes.c_size_t(64)
CALLS = {
    "cudaMalloc": (ctypes.byref(out), size),
    "cudaFree": (host,),
    "cudaMemcpy": (host, host, size, 1),
    "cudaMemcpyAsync": (host, host, size, 1, None),
    "cudaMemsetAsync": (host, 0, size, None),
    "cudaStreamSynchronize": (None,),
    "cudaDeviceSynchronize": (),
    "cudaMallocHost": (ctypes.byref(out), size),
    "cudaGetDeviceCount": (host,),
}
codes = {
    name: [getattr(runtime, name)(*arguments) for _ in range(times)]
    for times, (name, arguments) in enumerate(CALLS.items(), start=1)
}
with open(os.environ["SELF_LOG"], "a") as log:
    log.write(json.dumps({"pid": os.getpid(), "codes": codes}) + "\n")

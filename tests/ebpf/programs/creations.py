"""Creates streams, events and pinned memory in every way, and says which handles and addresses it got."""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any

runtime = ctypes.CDLL("libcudart.so.12", mode=ctypes.RTLD_GLOBAL)
driver = ctypes.CDLL("libcuda.so.1")
said: list[dict[str, Any]] = []
DIRTY = 0xABCD << 32  # an unsigned argument: the upper half of its register holds anything


def create(library: Any, symbol: str, *arguments: int, flags: int = 0) -> None:
    """Calls a function that writes a handle to its first argument; ``flags`` are those it was given."""
    out = ctypes.c_uint64()
    code = getattr(library, symbol)(ctypes.byref(out), *(ctypes.c_uint64(value) for value in arguments))
    said.append({"api": symbol, "ret": code, "made": out.value, "flags": flags})


def fail(library: Any, symbol: str, *arguments: Any) -> None:
    """Calls a function that has nothing to give."""
    code = getattr(library, symbol)(*arguments)
    assert code != 0, symbol
    said.append({"api": symbol, "ret": code, "made": 0, "flags": 0})


def main() -> None:
    """All of it, in one thread."""
    runtime.cudaFree(None)
    for _ in range(3):
        create(runtime, "cudaStreamCreate")
        create(runtime, "cudaStreamCreateWithFlags", DIRTY | 1, flags=1)
        create(runtime, "cudaStreamCreateWithPriority", DIRTY | 1, 0, flags=1)
        create(driver, "cuStreamCreate", DIRTY | 1, flags=1)
        create(driver, "cuStreamCreateWithPriority", DIRTY | 1, 0, flags=1)
        create(runtime, "cudaEventCreate")
        create(runtime, "cudaEventCreateWithFlags", DIRTY | 2, flags=2)
        create(driver, "cuEventCreate", DIRTY | 3, flags=3)
        create(runtime, "cudaMallocHost", 4096)
        create(runtime, "cudaHostAlloc", 8192, 1)
        create(driver, "cuMemAllocHost_v2", 4096)
        create(driver, "cuMemHostAlloc", 8192, 1)
    fail(runtime, "cudaStreamCreate", None)
    fail(runtime, "cudaMallocHost", None, ctypes.c_size_t(4096))
    with open(os.environ["SELF_LOG"], "a") as log:
        log.writelines(json.dumps(line) + "\n" for line in said)


main()

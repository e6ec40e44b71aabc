"""A thin ctypes binding of the CUDA runtime for test programs; it knows nothing of the simulation."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

H2D, D2H, D2D, DEFAULT = 1, 2, 3, 4


class _Dim3(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


_ONE = _Dim3(1, 1, 1)


class Cuda:
    """The runtime library; functions return their error code unless the name says otherwise."""

    def __init__(self, name: str | None = None) -> None:
        self.lib = ctypes.CDLL(name or os.environ.get("TEST_CUDART", "libcudart.so.12"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lib, "cuda" + name)

    def launch(self, ns: int, stream: Any = None, function: int = 0x1000, suffix: str = "") -> int:
        """Launches a kernel that lasts so many nanoseconds."""
        value = ctypes.c_uint64(ns)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(value))
        call = getattr(self.lib, "cudaLaunchKernel" + suffix)
        code: int = call(ctypes.c_void_p(function), _ONE, _ONE, arguments, ctypes.c_size_t(0), stream)
        return code

    def handle(self, maker: str, *arguments: Any) -> ctypes.c_void_p:
        """Calls a function that writes a handle to its first argument."""
        out = ctypes.c_void_p()
        code = getattr(self, maker)(ctypes.byref(out), *arguments)
        assert code == 0, (maker, code)
        return out

    def stream(self, flags: int = 0) -> ctypes.c_void_p:
        """Makes a stream."""
        return self.handle("StreamCreateWithFlags", flags)

    def event(self, flags: int = 0) -> ctypes.c_void_p:
        """Makes an event."""
        return self.handle("EventCreateWithFlags", flags)

    def malloc(self, size: int) -> ctypes.c_void_p:
        """Allocates device memory."""
        return self.handle("Malloc", ctypes.c_size_t(size))

    def pinned(self, size: int) -> ctypes.c_void_p:
        """Allocates pinned host memory."""
        return self.handle("MallocHost", ctypes.c_size_t(size))

    def copy(self, dst: Any, src: Any, size: int, kind: int) -> int:
        """Copies synchronously."""
        code: int = self.Memcpy(dst, src, ctypes.c_size_t(size), kind)
        return code

    def copy_async(self, dst: Any, src: Any, size: int, kind: int, stream: Any = None) -> int:
        """Copies asynchronously."""
        code: int = self.MemcpyAsync(dst, src, ctypes.c_size_t(size), kind, stream)
        return code

    def timed(self, function: Any, *arguments: Any) -> tuple[int, float, float]:
        """Calls a function; returns its code, and the milliseconds it took of the wall and of the CPU."""
        wall, cpu = time.monotonic(), time.thread_time()
        code = function(*arguments)
        return code, (time.monotonic() - wall) * 1e3, (time.thread_time() - cpu) * 1e3

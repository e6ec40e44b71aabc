"""The CUDA runtime by ctypes, as far as the demo programs need it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

H2D, D2H = 1, 2
_NON_BLOCKING = 1
_DISABLE_TIMING = 2


class CudaError(Exception):
    """A CUDA call failed."""


class _Dim3(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


_ONE = _Dim3(1, 1, 1)


class Kernel:
    """A kernel that lasts ``ns`` on the simulated GPU."""

    def __init__(self, ns: int) -> None:
        self._ns = ctypes.c_uint64(ns)
        self._pointers = (ctypes.c_void_p * 1)(ctypes.addressof(self._ns))
        self.function = ctypes.c_void_p(ctypes.addressof(self._ns))  # any address tells kernels apart
        self.arguments = ctypes.cast(self._pointers, ctypes.c_void_p)


class Cuda:
    """The runtime library, loaded by its soname like a linked library."""

    def __init__(self) -> None:
        self._runtime = ctypes.CDLL("libcudart.so.12")
        launch = self._runtime.cudaLaunchKernel
        launch.argtypes = [
            ctypes.c_void_p,
            _Dim3,
            _Dim3,
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_void_p,
        ]
        self._launch: Callable[..., int] = launch

    def _check(self, name: str, *arguments: Any) -> None:
        code = getattr(self._runtime, name)(*arguments)
        if code:
            raise CudaError(f"{name} returned {code}")

    def launch(self, kernel: Kernel, stream: int = 0) -> None:
        """cudaLaunchKernel."""
        code = self._launch(kernel.function, _ONE, _ONE, kernel.arguments, 0, stream)
        if code:
            raise CudaError(f"cudaLaunchKernel returned {code}")

    def malloc(self, size: int) -> int:
        """cudaMalloc: an address on the device."""
        pointer = ctypes.c_void_p()
        self._check("cudaMalloc", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer.value or 0

    def pinned(self, size: int) -> int:
        """cudaMallocHost: a page-locked address on the host."""
        pointer = ctypes.c_void_p()
        self._check("cudaMallocHost", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer.value or 0

    def pinned_array(self, size: int) -> npt.NDArray[np.float32]:
        """Page-locked memory as ``size`` numbers."""
        address = self.pinned(4 * size)
        return np.ctypeslib.as_array((ctypes.c_float * size).from_address(address))

    def stream(self) -> int:
        """A stream that does not synchronise with the legacy default stream, as PyTorch's pool has."""
        handle = ctypes.c_void_p()
        self._check("cudaStreamCreateWithFlags", ctypes.byref(handle), _NON_BLOCKING)
        return handle.value or 0

    def event(self) -> int:
        """An event without timing."""
        handle = ctypes.c_void_p()
        self._check("cudaEventCreateWithFlags", ctypes.byref(handle), _DISABLE_TIMING)
        return handle.value or 0

    def copy_async(self, target: int, source: int, size: int, kind: int, stream: int = 0) -> None:
        """cudaMemcpyAsync."""
        self._check(
            "cudaMemcpyAsync",
            ctypes.c_void_p(target),
            ctypes.c_void_p(source),
            ctypes.c_size_t(size),
            kind,
            ctypes.c_void_p(stream),
        )

    def record(self, event: int, stream: int = 0) -> None:
        """cudaEventRecord."""
        self._check("cudaEventRecord", ctypes.c_void_p(event), ctypes.c_void_p(stream))

    def wait_event(self, event: int) -> None:
        """cudaEventSynchronize."""
        self._check("cudaEventSynchronize", ctypes.c_void_p(event))

    def synchronize(self, stream: int = 0) -> None:
        """cudaStreamSynchronize."""
        self._check("cudaStreamSynchronize", ctypes.c_void_p(stream))

    def synchronize_device(self) -> None:
        """cudaDeviceSynchronize."""
        self._check("cudaDeviceSynchronize")

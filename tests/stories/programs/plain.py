"""A GPU without a framework: ctypes on ``libcudart``, as many servers and simulations drive it."""

from __future__ import annotations

import ctypes

_RUNTIME = "libcudart.so.12"


class Dim3(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


class Gpu:
    """Launches kernels that last as long as they are told to, and waits for them."""

    def __init__(self) -> None:
        self._runtime = ctypes.CDLL(_RUNTIME)
        self._runtime.cudaLaunchKernel.argtypes = [
            *(ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p),
        ]
        self._ns = ctypes.c_uint64(0)
        self._arguments = (ctypes.c_void_p * 1)(ctypes.addressof(self._ns))
        self._kernel, self._grid = ctypes.c_void_p(ctypes.addressof(self._ns)), Dim3(64, 1, 1)
        self._device, self._host = ctypes.c_void_p(), ctypes.create_string_buffer(64)
        assert self._runtime.cudaMalloc(ctypes.byref(self._device), ctypes.c_size_t(64)) == 0

    def stream(self) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        assert self._runtime.cudaStreamCreate(ctypes.byref(made)) == 0
        return made

    def launch(self, count: int, ns: int, stream: ctypes.c_void_p | None = None) -> None:
        self._ns.value = ns
        for _ in range(count):
            done = self._runtime.cudaLaunchKernel(
                self._kernel, self._grid, self._grid, self._arguments, 0, stream
            )
            assert done == 0

    def graph(self, count: int, ns: int) -> ctypes.c_void_p:
        """So many kernels as one graph that can be replayed."""
        stream, graph, ready = self.stream(), ctypes.c_void_p(), ctypes.c_void_p()
        assert self._runtime.cudaStreamBeginCapture(stream, 0) == 0
        self.launch(count, ns, stream)
        assert self._runtime.cudaStreamEndCapture(stream, ctypes.byref(graph)) == 0
        assert self._runtime.cudaGraphInstantiate(ctypes.byref(ready), graph, ctypes.c_ulonglong(0)) == 0
        return ready

    def replay(self, graph: ctypes.c_void_p) -> None:
        assert self._runtime.cudaGraphLaunch(graph, None) == 0

    def wait(self, stream: ctypes.c_void_p | None = None) -> None:
        assert self._runtime.cudaStreamSynchronize(stream) == 0

    def read(self) -> bytes:
        copied = self._runtime.cudaMemcpyAsync(self._host, self._device, ctypes.c_size_t(4), 2, None)
        assert copied == 0
        self.wait()
        return self._host.raw[:4]

    def step(self, launches: int = 20, ns: int = 50_000) -> None:
        """A millisecond of work, and the wait for it."""
        self.launch(launches, ns)
        self.wait()

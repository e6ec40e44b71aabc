"""Makes calls whose arguments are known from CUDA's and NCCL's headers, and says what each asked for."""

from __future__ import annotations

import ctypes
import json
import os
import struct
from typing import Any

H2D, D2H, D2D, DEFAULT = 1, 2, 3, 4
PER_THREAD = 2

runtime = ctypes.CDLL("libcudart.so.12", mode=ctypes.RTLD_GLOBAL)
driver = ctypes.CDLL("libcuda.so.1")
nccl = ctypes.CDLL("libnccl.so.2")
said: list[dict[str, Any]] = []


class Dim3(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


def word(value: Any) -> Any:
    """Integers as 64-bit arguments."""
    return ctypes.c_uint64(value) if isinstance(value, int) else value


def call(library: Any, symbol: str, *arguments: Any, **meant: int) -> int:
    """Calls a function; notes its name and what it was asked for: bytes, kind, stream."""
    code: int = getattr(library, symbol)(*map(word, arguments))
    asked = {"bytes": 0, "kind": 0, "stream": 0} | meant
    said.append({"symbol": symbol, "ret": code, **asked})
    return code


def made(symbol: str, *arguments: Any, **meant: int) -> int:
    """Calls a function that writes a handle to its first argument; returns the handle."""
    out = ctypes.c_void_p()
    assert call(runtime, symbol, ctypes.byref(out), *arguments, **meant) == 0, symbol
    return out.value or 0


def copies(stream: int, device: int, host: Any) -> None:
    """Linear, 2D and 3D copies; stream and kind lie in registers, on the stack, in structures."""
    for suffix, default in (("", 0), ("_ptsz", PER_THREAD)):
        name = "cudaMemcpyAsync" + suffix
        call(runtime, name, device, host, 1001, H2D, stream, bytes=1001, kind=H2D, stream=stream)
        call(runtime, name, host, device, 1002, D2H, 0, bytes=1002, kind=D2H, stream=default)
        call(runtime, name, device, device + 8192, 1003, D2D, 0, bytes=1003, kind=D2D, stream=default)
        name = "cudaMemcpy2DAsync" + suffix
        call(runtime, name, device, 64, host, 32, 24, 5, H2D, stream, bytes=24 * 5, kind=H2D, stream=stream)
        call(runtime, name, host, 32, device, 64, 16, 7, D2H, 0, bytes=16 * 7, kind=D2H, stream=default)
    call(runtime, "cudaMemcpy", device, host, 77, DEFAULT, bytes=77, kind=DEFAULT)
    call(runtime, "cudaMemcpy_ptds", device, host, 78, H2D, bytes=78, kind=H2D, stream=PER_THREAD)
    at = ctypes.addressof(host)
    pitched = (0, 0, 0, 0, at, 16, 16, 8), (0, 0, 0, 0, device, 16, 16, 8)
    block = struct.pack("<8Q8Q3QQ", *pitched[0], *pitched[1], 16, 3, 2, H2D)
    call(runtime, "cudaMemcpy3D", block, bytes=16 * 3 * 2, kind=H2D)
    call(runtime, "cudaMemcpy3DAsync", block, stream, bytes=96, kind=H2D, stream=stream)


def sets(stream: int, device: int) -> None:
    """Fills: bytes, rows, and words of four bytes."""
    for suffix, default in (("", 0), ("_ptsz", PER_THREAD)):
        call(runtime, "cudaMemsetAsync" + suffix, device, 1, 301, stream, bytes=301, stream=stream)
        call(runtime, "cudaMemsetAsync" + suffix, device, 1, 302, 0, bytes=302, stream=default)
        call(driver, "cuMemsetD32Async" + suffix, device, 1, 51, stream, bytes=4 * 51, stream=stream)
        call(driver, "cuMemsetD32Async" + suffix, device, 1, 52, 0, bytes=4 * 52, stream=default)
    call(runtime, "cudaMemset2DAsync", device, 64, 0, 20, 6, stream, bytes=120, stream=stream)
    call(driver, "cuMemsetD16Async", device, 1, 33, stream, bytes=66, stream=stream)


def launches(stream: int) -> None:
    """Grids pass by value: the stream of a launch lies on the stack, or in the structure of ExC."""
    ns = ctypes.c_uint64(1000)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(ns))
    one = Dim3(1, 1, 1)
    for suffix, default in (("", 0), ("_ptsz", PER_THREAD)):
        for asked, meant in ((stream, stream), (0, default)):
            name = "cudaLaunchKernel" + suffix
            call(runtime, name, 0x1000, one, one, arguments, 0, asked, stream=meant)
            config = struct.pack("<6I4Q", 1, 1, 1, 1, 1, 1, 0, asked, 0, 0)
            call(runtime, "cudaLaunchKernelExC" + suffix, config, 0x1000, arguments, stream=meant)


def driver_copies(stream: int, device: int, host: Any) -> None:
    """The driver's copies name their direction, or leave it to the addresses."""
    for suffix, default in (("", 0), ("_ptsz", PER_THREAD)):
        name = "cuMemcpyHtoDAsync_v2" + suffix
        call(driver, name, device, host, 401, stream, bytes=401, kind=H2D, stream=stream)
        call(driver, name, device, host, 402, 0, bytes=402, kind=H2D, stream=default)
    call(driver, "cuMemcpyDtoHAsync_v2", host, device, 403, stream, bytes=403, kind=D2H, stream=stream)
    call(driver, "cuMemcpyDtoD_v2", device, device + 8192, 404, bytes=404, kind=D2D)
    at = ctypes.addressof(host)
    block = struct.pack("<16Q", 0, 0, 1, at, 0, 0, 32, 0, 0, 2, 0, device, 0, 64, 24, 9)
    call(driver, "cuMemcpy2DAsync_v2", block, stream, bytes=24 * 9, kind=DEFAULT, stream=stream)


def collectives(stream: int) -> None:
    """Count times the size of each data type, in the order of ncclDataType_t; refused: no communicator."""
    for number, size in enumerate((1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)):
        reduce = (1, 2, 100 + number, number, 0, 0, stream)
        call(nccl, "ncclAllReduce", *reduce, bytes=size * (100 + number), stream=stream)
        send = (1, 200 + number, number, 1, 0, stream)
        call(nccl, "ncclSend", *send, bytes=size * (200 + number), stream=stream)


def main() -> None:
    """All of it, in one thread."""
    stream = made("cudaStreamCreateWithFlags", 1)
    said[-1]["stream"] = stream
    device = made("cudaMalloc", 65536, bytes=65536)
    host = ctypes.create_string_buffer(65536)
    copies(stream, device, host)
    sets(stream, device)
    launches(stream)
    driver_copies(stream, device, host)
    collectives(stream)
    with open(os.environ["SELF_LOG"], "a") as log:
        log.writelines(json.dumps(line) + "\n" for line in said)


main()

"""Launches through a table of the driver that has no name, as NVIDIA's own libraries have such entries."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

_POINTER = ctypes.c_void_p
_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, _POINTER, *[ctypes.c_uint] * 7, _POINTER, ctypes.POINTER(_POINTER), _POINTER
)


class _Table(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("count", _POINTER), ("cell", _POINTER), ("launch", _LAUNCH))


def launcher() -> Callable[[int, Any], int]:
    """Returns a function that launches a kernel of so many nanoseconds; a context must be current."""
    driver = ctypes.CDLL("libcuda.so.1")
    table, module, function = ctypes.POINTER(_Table)(), _POINTER(), _POINTER()
    assert driver.cuGetExportTable(ctypes.byref(table), b"gputop-simgpu-01") == 0
    assert driver.cuModuleLoadData(ctypes.byref(module), b"x") == 0
    assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"simgpu_hidden") == 0

    def launch(ns: int, stream: Any = None) -> int:
        value = ctypes.c_uint64(ns)
        arguments = (_POINTER * 1)(ctypes.addressof(value))
        code: int = table.contents.launch(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, None)
        return code

    return launch

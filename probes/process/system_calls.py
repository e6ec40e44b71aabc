"""System calls that Python's standard library lacks, by their numbers."""

from __future__ import annotations

import ctypes
import os
import platform

_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
_CLOSE_ON_EXEC = 8  # PERF_FLAG_FD_CLOEXEC

_libc = ctypes.CDLL(None, use_errno=True)


def system_call(numbers: dict[str, int], *arguments: object) -> int:
    """The result of a system call by its number on each machine. Raises OSError."""
    result: int = _libc.syscall(numbers[platform.machine()], *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def perf_event_open(attribute: ctypes.Array[ctypes.c_char] | ctypes.Array[ctypes.c_uint64], cpu: int) -> int:
    """An event of all processes on a CPU. Raises OSError."""
    return system_call(_PERF_EVENT_OPEN, attribute, -1, cpu, -1, _CLOSE_ON_EXEC)

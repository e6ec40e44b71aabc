"""Measures what a pair of probes adds to a call on this machine, on a function of the C library.

Only this process is probed. The function begins as nearly all do, with a push: the kernel emulates that;
other instructions are single-stepped, which on some virtual machines costs twenty times as much.
"""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from probes.ebpf import bpfcall

_FUNCTIONS: Final = ("wctob", "mblen")  # do nothing with zeros, and need no lock that others hold
_CALLS, _ROUNDS = 400, 15
# gputop's programs cost at most so many times an empty pair, which `make bench` holds them to
PROGRAMS: Final = 1.65


def measured() -> float | None:
    """Nanoseconds that gputop's probes cost a call, at most; None where it cannot be measured here.

    Measured is an empty pair of entry and return probes, the fastest of several rounds.
    """
    with suppress(OSError, AttributeError, StopIteration):
        libc = ctypes.CDLL(None)
        function = next(one for one in (getattr(libc, name) for name in _FUNCTIONS) if _pushes(one))
        path, offset = _place(ctypes.cast(function, ctypes.c_void_p).value or 0)
        without = _fastest(lambda: function(0, 0))
        program = bpfcall.empty_uprobe()
        links: list[int] = []
        try:
            for on_return in (True, False):
                link = bpfcall.attach_uprobes(
                    program, path, [offset], [0], on_return=on_return, pid=os.getpid()
                )
                links.append(link)
            probed = _fastest(lambda: function(0, 0))
        finally:
            for descriptor in (*links, program):
                os.close(descriptor)
        return max(probed - without, 0.0) * PROGRAMS
    return None


def _pushes(function: Any) -> bool:
    """True if its first instruction pushes a register (x86-64)."""
    first = ctypes.string_at(ctypes.cast(function, ctypes.c_void_p).value or 0, 2)
    return platform.machine() == "x86_64" and first[first[0] == 0x41] & 0xF8 == 0x50


def _place(address: int) -> tuple[str, int]:
    """The file that is mapped at an address, and the offset in it. Raises StopIteration."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _rights, offset, _device, _inode, *path = line.split(maxsplit=5)
        begin, end = (int(part, 16) for part in span.split("-"))
        if begin <= address < end and path:
            return path[0], address - begin + int(offset, 16)
    raise StopIteration


def _fastest(call: Callable[[], object]) -> float:
    """ns a call, of the fastest round."""
    rounds = []
    for _ in range(_ROUNDS):
        began = time.perf_counter_ns()
        for _ in range(_CALLS):
            call()
        rounds.append((time.perf_counter_ns() - began) / _CALLS)
    return min(rounds)

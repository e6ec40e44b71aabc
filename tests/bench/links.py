"""Which probes a process holds, and whether they are gone."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

_NR_BPF = {"x86_64": 321, "aarch64": 280}
_LINK_GET_FD_BY_ID = 30


def of_process(pid: int) -> set[int]:
    """Numbers of the BPF links that the process has open."""
    found = set()
    for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
        if match := re.search(r"^link_id:\s*(\d+)$", entry.read_text(), re.M):
            found.add(int(match[1]))
    return found


def alive(link: int) -> bool:
    """Whether the link still exists."""
    attribute = (ctypes.c_uint32 * 32)(link)
    number = _NR_BPF[os.uname().machine]
    descriptor: int = ctypes.CDLL(None, use_errno=True).syscall(
        number, _LINK_GET_FD_BY_ID, ctypes.byref(attribute), ctypes.sizeof(attribute)
    )
    if descriptor < 0:
        return False
    os.close(descriptor)
    return True

"""Whether two paths are one file to the kernel, where device and inode say otherwise: overlayfs.

Two containers of one image show one library with two devices. Probes belong to the file below, so attaching
through both would count each call twice. A page of that file is in memory once, whichever way it is mapped.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

import numpy as np

_PAGE = os.sysconf("SC_PAGE_SIZE")
_FRAME = (1 << 55) - 1  # bits of a pagemap entry that hold the page frame's number
_PRESENT = 1 << 63


class SharedPages:
    """Files seen so far, known again by the page frame of their beginning."""

    def __init__(self) -> None:
        self._seen: list[mmap.mmap] = []  # kept mapped: a page that was evicted comes back elsewhere, for all

    def known(self, path: Path) -> bool:
        """Whether the file is one of those asked about before; remembers it otherwise.

        Never true where frames are not shown: that needs CAP_SYS_ADMIN.
        """
        try:
            with path.open("rb") as file:
                page = mmap.mmap(file.fileno(), _PAGE, mmap.MAP_SHARED, mmap.PROT_READ)
        except (OSError, ValueError):
            return False
        frame = _frame(page)
        if frame and any(_frame(other) == frame for other in self._seen):
            page.close()
            return True
        self._seen.append(page)
        return False

    def close(self) -> None:
        """Forgets all."""
        seen, self._seen = self._seen, []
        for page in seen:
            page.close()


def _frame(page: mmap.mmap) -> int:
    """Number of the page frame, 0 where the kernel does not tell it."""
    if not page[:1]:  # reads it, so that it is in memory
        return 0
    address = np.frombuffer(page, np.uint8).ctypes.data
    with open("/proc/self/pagemap", "rb", buffering=0) as file:
        entry: int = struct.unpack("<Q", os.pread(file.fileno(), 8, address // _PAGE * 8))[0]
    return entry & _FRAME if entry & _PRESENT else 0

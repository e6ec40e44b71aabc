"""Whether two paths are one file to the kernel, where device and inode say otherwise: overlayfs.

Two containers of one image show one library with two devices. Probes belong to the file below, so attaching
through both would count each call twice. A page of that file is in memory once, whichever way it is mapped.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from typing import BinaryIO

import numpy as np

from probes.code.foreign import File

_PAGE = os.sysconf("SC_PAGE_SIZE")
_FRAME = (1 << 55) - 1  # bits of a pagemap entry that hold the page frame's number
_PRESENT = 1 << 63


class SharedPages:
    """Files seen so far, known again by the page frame of their beginning.

    They stay open, since a page that was evicted comes back elsewhere, for all. So they keep what they are on
    mounted, as the probes on them do.

    To be made with CAP_SYS_ADMIN, without which the kernel hides frames: the right of whoever has opened
    pagemap counts, so it may be given up afterwards.
    """

    def __init__(self) -> None:
        self._seen: list[int] = []
        self._pagemap: BinaryIO | None = None
        with contextlib.suppress(OSError):
            self._pagemap = open("/proc/self/pagemap", "rb", buffering=0)  # noqa: SIM115

    def known(self, file: File) -> bool:
        """Whether the file is one of those asked about before; remembers it otherwise.

        Never true where frames are not shown.
        """
        frame = self._frame(file.descriptor)
        if frame and any(self._frame(other) == frame for other in self._seen):
            return True
        if frame:
            with contextlib.suppress(OSError):  # out of descriptors: then it may be probed twice
                self._seen.append(os.dup(file.descriptor))
        return False

    def close(self) -> None:
        """Forgets all."""
        seen, self._seen = self._seen, []
        for descriptor in seen:
            os.close(descriptor)
        if self._pagemap is not None:
            self._pagemap.close()
            self._pagemap = None

    def _frame(self, descriptor: int) -> int:
        """Number of the page frame of a file's beginning, 0 where the kernel does not tell it.

        The page is mapped for a moment and touched by the kernel alone: where its owner has just made the
        file shorter, that is an error of a read and no signal.
        """
        pagemap = self._pagemap
        if pagemap is None:
            return 0
        try:
            page = mmap.mmap(descriptor, _PAGE, mmap.MAP_SHARED, mmap.PROT_READ)
        except (OSError, ValueError):
            return 0
        with page:
            address = np.frombuffer(page, np.uint8).ctypes.data
            try:
                with open("/proc/self/mem", "rb", buffering=0) as memory:
                    os.pread(memory.fileno(), 1, address)
                entry: int = struct.unpack("<Q", os.pread(pagemap.fileno(), 8, address // _PAGE * 8))[0]
            except (OSError, struct.error):
                return 0
        return entry & _FRAME if entry & _PRESENT else 0

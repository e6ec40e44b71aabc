"""Whether two paths are one file to the kernel, where device and inode say otherwise: overlayfs.

Two containers of one image show one library with two devices. Probes belong to the file below, so attaching
through both would count each call twice. A page of that file is in memory once, whichever way it is mapped.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import struct

import numpy as np

from probes.code import reader
from probes.code.foreign import File

_PAGE = os.sysconf("SC_PAGE_SIZE")
_FRAME = (1 << 55) - 1  # bits of a pagemap entry that hold the page frame's number
_PRESENT = 1 << 63


class Own:
    """This process's memory, and where its pages are. Raises OSError.

    To be made with CAP_SYS_ADMIN, without which the kernel hides frames: the right of whoever has opened
    pagemap counts, so it may be given up afterwards.
    """

    def __init__(self) -> None:
        self.pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        self.memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Lets go of them."""
        os.close(self.pagemap)
        os.close(self.memory)


class SharedPages:
    """Files seen so far, known again by the page frame of their beginning.

    They stay open, since a page that was evicted comes back elsewhere, for all. So they keep what they are on
    mounted, as the probes on them do. Only files of one length are looked at: others are no one file. Where a
    child reads the files of others it looks, in a process for each: a page may never come.
    """

    def __init__(self) -> None:
        self._seen: list[File] = []
        self._own: Own | None = None
        with contextlib.suppress(OSError):
            self._own = None if reader.current() is not None else Own()

    def known(self, file: File) -> bool:
        """Whether the file is one of those asked about before; remembers it otherwise.

        Never true where frames are not shown.
        """
        alike = [other for other in self._seen if other.size == file.size]
        frame = self._frame(file) if alike else 0
        if frame and any(self._frame(other) == frame for other in alike):
            return True
        with contextlib.suppress(OSError):  # out of descriptors: then it may be probed twice
            self._seen.append(file.again())
        return False

    def close(self) -> None:
        """Forgets all."""
        seen, self._seen = self._seen, []
        for file in seen:
            file.close()
        own, self._own = self._own, None
        if own is not None:
            own.close()

    def _frame(self, file: File) -> int:
        """Number of the page frame of a file's beginning, 0 where it is not told."""
        with contextlib.suppress(OSError, reader.UnreadableError):
            if (asked := reader.current()) is not None:
                found, _ = asked.ask("frame", None, file.identity, str(file.path), file.descriptor)
                return found if isinstance(found, int) and 0 < found <= _FRAME else 0
            if self._own is not None:
                return frame_of(file.descriptor, self._own)
        return 0


def frame_of(descriptor: int, own: Own) -> int:
    """Number of the page frame of a file's beginning, 0 where the kernel does not tell it. Raises OSError.

    The page is mapped for a moment and touched by the kernel alone: where its owner has just made the file
    shorter, that is an error of a read and no signal.
    """
    try:
        page = mmap.mmap(descriptor, _PAGE, mmap.MAP_SHARED, mmap.PROT_READ)
    except ValueError as error:  # it is shorter than a page
        raise OSError(errno.ENODATA, os.strerror(errno.ENODATA)) from error
    with page:
        address = np.frombuffer(page, np.uint8).ctypes.data
        os.pread(own.memory, 1, address)
        data = os.pread(own.pagemap, 8, address // _PAGE * 8)
    entry: int = struct.unpack("<Q", data)[0] if len(data) == 8 else 0
    return entry & _FRAME if entry & _PRESENT else 0

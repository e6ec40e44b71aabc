"""Finds paths that are one file to the kernel, where device and inode differ: overlayfs.

Two containers of one image show one library with two devices. Probes belong to the file below, so attaching
through both would count each call twice. A page of that file is in memory once, whichever way it is mapped.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import struct
import zlib
from dataclasses import dataclass

import numpy as np

from probes.files import file_reader
from probes.files.untrusted_files import File, Identity

_PAGE = os.sysconf("SC_PAGE_SIZE")
_FRAME = (1 << 55) - 1  # bits of a pagemap entry that hold the page frame's number
_PRESENT = 1 << 63
_NUMBER = (1 << 32) - 1  # bits of an inode's number that are the same where overlayfs shows the file
MOST_LOOKED_AT = 64  # files, copies of which a user may have put everywhere


class OwnPages:
    """This process's memory, and where its pages are. Raises OSError.

    To be made with CAP_SYS_ADMIN, without which the kernel hides frames: the right at the opening of
    pagemap counts, so it may be given up afterwards.
    """

    def __init__(self) -> None:
        self.pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        self.memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self.pagemap)
        os.close(self.memory)


@dataclass(slots=True)
class _Seen:
    """A file, and its beginning as soon as that was needed; None: not known."""

    file: File
    digest: int | None = None


class SharedPages:
    """Files seen so far, known again by the page frame of their beginning.

    They stay open, since an evicted page comes back elsewhere, for all. So their file systems stay
    mounted, as with the probes. Only likely pairs are compared: of one length, on two devices, and
    with the same beginning, which is read once; first those with numbers as overlayfs shows them. Where
    a child reads the files of others it does this, too, in a process for each: a page may never come.
    """

    def __init__(self) -> None:
        self._seen: dict[int, list[_Seen]] = {}  # by length
        self._own: OwnPages | None = None
        with contextlib.suppress(OSError):
            self._own = None if file_reader.current() is not None else OwnPages()

    def original(self, file: File) -> Identity | None:
        """The file of an earlier question that this one is, under another device; remembers it otherwise.

        None, too, where frames are not shown.
        """
        device, inode = file.identity
        alike = self._seen.setdefault(file.size, [])
        if any(one.file.identity == file.identity for one in alike):
            return None
        others = [one for one in alike if one.file.identity[0] != device]
        others.sort(key=lambda one: (one.file.identity[1] ^ inode) & _NUMBER != 0)
        frame, digest = self.look(file) if others else (0, None)
        for one in others[:MOST_LOOKED_AT] if frame else ():
            if one.digest is None:
                one.digest = self.look(one.file)[1]
            if one.digest == digest and self.look(one.file)[0] == frame:
                return one.file.identity
        with contextlib.suppress(OSError):  # out of descriptors: then it may be probed twice
            alike.append(_Seen(file.again(), digest))
        return None

    def forget(self, identity: tuple[int, int]) -> None:
        """Lets go of a file, if it is one of these."""
        for alike in self._seen.values():
            for one in [one for one in alike if one.file.identity == identity]:
                alike.remove(one)
                one.file.close()
        self._seen = {size: alike for size, alike in self._seen.items() if alike}

    def close(self) -> None:
        seen, self._seen = self._seen, {}
        for alike in seen.values():
            for one in alike:
                one.file.close()
        own, self._own = self._own, None
        if own is not None:
            own.close()

    def look(self, file: File) -> tuple[int, int | None]:
        """(page frame number of a file's beginning, 0 where it is not reported; its digest)."""
        with contextlib.suppress(OSError, file_reader.UnreadableError, TypeError, ValueError):
            if (reader := file_reader.current()) is not None:
                found, _ = reader.request("frame", None, file.identity, str(file.path), file.descriptor)
                frame, digest = map(int, found)
                return (frame, digest) if 0 < frame <= _FRAME else (0, None)
            if self._own is not None:
                return frame_of(file.descriptor, self._own)
        return 0, None


def frame_of(descriptor: int, own: OwnPages) -> tuple[int, int]:
    """(page frame number of a file's beginning, 0 where the kernel hides it; the page's digest).

    The page is mapped for a moment and touched by the kernel alone: where its owner has just made the file
    shorter, that is an error of a read and no signal. Raises OSError.
    """
    try:
        page = mmap.mmap(descriptor, _PAGE, mmap.MAP_SHARED, mmap.PROT_READ)
    except ValueError as error:  # it is shorter than a page
        raise OSError(errno.ENODATA, os.strerror(errno.ENODATA)) from error
    with page:
        address = np.frombuffer(page, np.uint8).ctypes.data
        digest = zlib.crc32(os.pread(own.memory, _PAGE, address))
        data = os.pread(own.pagemap, 8, address // _PAGE * 8)
    entry: int = struct.unpack("<Q", data)[0] if len(data) == 8 else 0
    return (entry & _FRAME if entry & _PRESENT else 0), digest

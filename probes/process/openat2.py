"""openat2(2): opens a path with limits on the links that it may lead over. Numbers of linux/openat2.h."""

from __future__ import annotations

import ctypes
import os

NO_MAGIC_LINKS, IN_ROOT = 0x02, 0x10
OPENAT2 = 437  # on every architecture
HERE = -100  # AT_FDCWD


class _How(ctypes.Structure):
    """struct open_how."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def openat2(folder: int, path: str, flags: int, resolve: int) -> int:
    """A descriptor.

    Raises:
        OSError: ENOSYS before Linux 5.6.
    """
    how = _How(flags, 0, resolve)
    libc = ctypes.CDLL(None, use_errno=True)
    found = int(libc.syscall(OPENAT2, folder, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how)))
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return found

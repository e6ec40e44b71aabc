"""Tables by the number of a process or thread, of which there can be four million and are a few hundred."""

from __future__ import annotations

import contextlib
import mmap
from typing import TypeVar

import numpy as np
import numpy.typing as npt

PIDS = 1 << 22  # PID_MAX_LIMIT of 64-bit kernels

T = TypeVar("T", bound=np.generic)


def table(dtype: type[T]) -> npt.NDArray[T]:
    """A zero for each number; it takes memory, a page at a time, for what is written.

    numpy would ask for huge pages for arrays of this size, and one number would take two megabytes.

    Raises:
        MemoryError: As numpy does where there is none.
    """
    size = PIDS * np.dtype(dtype).itemsize
    try:
        room = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no room for {size} bytes") from error
    with contextlib.suppress(OSError):  # a kernel without huge pages
        room.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(room, dtype)

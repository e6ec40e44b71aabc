"""Small numpy helpers: distinct values, and tables by the number of a process."""

from __future__ import annotations

import contextlib
import mmap
from typing import TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T", bound=np.integer)


def distinct(values: npt.NDArray[T]) -> npt.NDArray[T]:
    """The numbers in order, each once.

    ``np.unique`` loads masked arrays to answer this, three megabytes, and hashes: of the column of a batch
    that takes three to ten times as long as sorting it.
    """
    ordered = np.sort(values)
    first = np.empty(len(ordered), np.bool_)
    first[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


# Tables by the number of a process or thread, of which there can be four million and are a few hundred.

PIDS = 1 << 22  # PID_MAX_LIMIT of 64-bit kernels

Value = TypeVar("Value", bound=np.generic)


def table(dtype: type[Value]) -> npt.NDArray[Value]:
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

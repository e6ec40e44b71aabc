"""Small numpy helpers: distinct values, a value for each distinct one, tables by pid."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T", bound=np.integer)
Found = TypeVar("Found")


def distinct(values: npt.NDArray[T]) -> npt.NDArray[T]:
    """The sorted distinct numbers.

    ``np.unique`` loads masked arrays for this, three megabytes, and hashes: for the column of a batch
    that needs three to ten times as long as sorting it.
    """
    ordered = np.sort(values)
    first = np.empty(len(ordered), np.bool_)
    first[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def each(values: npt.NDArray[Any], what: Callable[[Any], Found]) -> list[Found]:
    """``what(value)`` for each value, called once for equal ones."""
    different, place = np.unique(values, return_inverse=True)
    known = [what(one) for one in different.tolist()]
    return [known[row] for row in place.reshape(-1).tolist()]


def each_number(values: npt.NDArray[Any], what: Callable[[Any], int]) -> npt.NDArray[np.int64]:
    """As ``each``, of numbers."""
    different, place = np.unique(values, return_inverse=True)
    return np.array([what(one) for one in different.tolist()], np.int64)[place.reshape(-1)]


def signed(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Unsigned numbers of records as signed ones; 2**62 for larger ones, which only damage makes."""
    numbers: npt.NDArray[np.int64] = np.minimum(values, np.uint64(1 << 62)).astype(np.int64)
    return numbers


# Tables by the number of a process or thread, of which there can be four million and are a few hundred.

PIDS = 1 << 22  # PID_MAX_LIMIT of 64-bit kernels

Value = TypeVar("Value", bound=np.generic)


def table(dtype: type[Value]) -> npt.NDArray[Value]:
    """A zero for each number; only written pages use memory.

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

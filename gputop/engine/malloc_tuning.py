"""Tunes when the C library keeps or returns freed memory. Does nothing without glibc."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8  # malloc.h
_NEVER = 2**31 - 1


def keep_freed() -> None:
    """From now on large arrays come out of freed memory rather than fresh from the kernel.

    A page is zeroed at its first touch, and in a virtual machine the host has to find it first: of explaining
    ten million events that was a third of the time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_MMAP_MAX, 0)
    mallopt(_TRIM_THRESHOLD, _NEVER)


def share_freed() -> None:
    """From now on what one thread frees another one takes.

    Each thread has memory of its own otherwise: what an explanation took for a moment stays with the thread
    that explains, some 10 MB, and the others do not use it.
    """
    try:
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)
    except (AttributeError, OSError):
        return


def release_free_memory() -> None:
    """Returns what is free now to the kernel."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return

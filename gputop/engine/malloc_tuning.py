"""Tunes when the C library keeps or returns freed memory. Does nothing without glibc."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -3, -4, -8  # malloc.h
_NEVER = 2**31 - 1
_LARGE = 1 << 20  # bytes of an array: smaller ones cost more in page faults than they save


def keep_freed() -> None:
    """Keep freed memory for large arrays, instead of returning it to the kernel.

    The kernel zeroes a fresh page at its first touch, and a hypervisor has to map it first: a third of the
        time
    of explaining ten million events.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_MMAP_MAX, 0)
    mallopt(_TRIM_THRESHOLD, _NEVER)


def share_freed() -> None:
    """From now on threads share freed memory, and large arrays go back to the kernel when they are freed.

    Each thread has memory of its own otherwise, some 10 MB of what an explanation allocates for a moment. And
    the C library comes to keep ever larger freed blocks: they stay resident between other ones.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_ARENA_MAX, 1)
    mallopt(_MMAP_THRESHOLD, _LARGE)


def release_free_memory() -> None:
    """Return free memory to the kernel."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return

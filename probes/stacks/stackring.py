"""Reads the second ring buffer, in which stacks and code objects come: rare records of different sizes."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

import numpy as np

_BUSY, _DISCARDED = 1 << 31, 1 << 30
_HEADER_BYTES = 8


class StackRing:
    """Reader of a ``BPF_MAP_TYPE_RINGBUF`` (its layout: probes/ebpf/ring.py).

    Args:
        map_fd: The map.
        size_bytes: Its size, a power of two of pages.
    """

    def __init__(self, map_fd: int, size_bytes: int) -> None:
        self._map, self._size, self._page = map_fd, size_bytes, os.sysconf("SC_PAGE_SIZE")
        self._consumer_map = mmap.mmap(map_fd, self._page, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self._producer_map = mmap.mmap(map_fd, self._page, mmap.MAP_SHARED, mmap.PROT_READ, offset=self._page)
        self._consumer = np.frombuffer(self._consumer_map, np.uint64, 1)
        self._producer = np.frombuffer(self._producer_map, np.uint64, 1)

    def read(self) -> Iterator[bytes]:
        """What is there now, each record a copy; stops before one that is still being written.

        It is mapped for as long as it is read: all of a buffer that is nearly always empty would count as
        resident. Where the system refuses, it stays there for the next time.
        """
        end = int(self._producer[0])
        position = int(self._consumer[0])
        if position == end:
            return
        first = position % self._size // self._page * self._page
        shift = first - position % self._size + position  # of positions against places in what is mapped
        try:
            data = mmap.mmap(
                self._map, end - shift, mmap.MAP_SHARED, mmap.PROT_READ, offset=2 * self._page + first
            )
        except OSError:
            return
        with data:
            while position < end:
                start = position - shift
                header = int.from_bytes(data[start : start + 4], "little")
                if header & _BUSY:
                    return
                size = header & ~(_BUSY | _DISCARDED)
                record = data[start + _HEADER_BYTES : start + _HEADER_BYTES + size]
                position += size + _HEADER_BYTES + 7 & ~7
                self._consumer[0] = position
                if not header & _DISCARDED:
                    yield record

    def close(self) -> None:
        """Unmaps the buffer."""
        del self._consumer, self._producer
        self._consumer_map.close()
        self._producer_map.close()

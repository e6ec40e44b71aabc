"""Reads the second ring buffer, in which stacks and code objects come: rare records of different sizes.

They are kept until there is time for them, at a mark.
"""

from __future__ import annotations

import mmap
import os
import time
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

_BUSY, _DISCARDED = 1 << 31, 1 << 30
_HEADER_BYTES = 8
_FULL, _MOST = 0.5, 4.0  # of a ring: emptied from so much on, and memory that may wait for a mark


class StackRing:
    """Reader of a ``BPF_MAP_TYPE_RINGBUF`` (its layout: probes/ebpf/bpf_ring.py)."""

    def __init__(self, map_fd: int, size_bytes: int) -> None:
        self._map, self._size, self._page = map_fd, size_bytes, os.sysconf("SC_PAGE_SIZE")
        self._consumer_map = mmap.mmap(map_fd, self._page, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self._producer_map = mmap.mmap(map_fd, self._page, mmap.MAP_SHARED, mmap.PROT_READ, offset=self._page)
        self._consumer = np.frombuffer(self._consumer_map, np.uint64, 1)
        self._producer = np.frombuffer(self._producer_map, np.uint64, 1)

    @property
    def fill(self) -> float:
        """How full the buffer is, 0 to 1."""
        return (int(self._producer[0]) - int(self._consumer[0])) / self._size

    def read(self) -> Iterator[bytes]:
        """The current records, each a copy; stops before one that is still being written.

        The ring is mapped while it is read only: all of a buffer that is nearly always empty would count as
        resident. Where unmapping fails, it stays for the next time.
        """
        end = int(self._producer[0])
        position = int(self._consumer[0])
        if position == end:
            return
        first = position % self._size // self._page * self._page
        shift = first - position % self._size + position  # of positions against places in the mapping
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
        del self._consumer, self._producer
        self._consumer_map.close()
        self._producer_map.close()


class Inbox:
    """Stacks from a ring that wait for a mark.

    Code that runs for the first time can fill the ring between two marks, so it is emptied meanwhile, too.
    What exceeds the inbox stays in the ring as far as there is room: the kernel drops the rest.
    """

    def __init__(self, ring: StackRing, aside: Callable[[bytes], bool]) -> None:
        self._ring, self._aside = ring, aside
        self.unread: deque[bytes] = deque()
        self._drained = 0.0  # rings full of it

    def relieve(self) -> None:
        """Makes room between two marks, where it is needed."""
        if self._ring.fill > _FULL:
            self.drain()

    def drain(self, *, last: bool = False) -> None:
        """Empties the ring; ``last``: also where too much waits already."""
        if last or self._drained < _MOST:
            before = self._ring.fill
            self.unread.extend(record for record in self._ring.read() if not self._aside(record))
            self._drained += before - self._ring.fill  # one that is still being written stops it

    def looked_at(self) -> None:
        """A mark is over; first those that it had no time for."""
        self._drained = _MOST if self.unread else 0.0

    def close(self) -> None:
        self._ring.close()


_UNWATCHED = 8  # records between two readings of the clock


class Turn:
    """So much time of the processor, for the thread that makes it."""

    def __init__(self, seconds: float) -> None:
        self._until = time.thread_time() + seconds

    def lasts(self) -> bool:
        """True if time is left."""
        return time.thread_time() < self._until

    def of(self, records: deque[bytes]) -> Iterator[bytes]:
        """The first of these records, which are removed."""
        while records and self.lasts():
            for _ in range(min(_UNWATCHED, len(records))):  # the clock costs as much as a record
                yield records.popleft()

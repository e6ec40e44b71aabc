"""The BPF ring buffer, mapped by hand and read with numpy: no call and no object per event.

Layout (kernel/bpf/ringbuf.c): page 0 the consumer position, page 1 the producer position, then the
data twice in a row, so that a backlog is contiguous even where it wraps. All records have one
size, so a backlog is a table of ``STRIDE_BYTES`` rows.

Each mapped page counts as resident from the start, once for each of its places: so the second copy is mapped
only as far as one read may reach.
"""

from __future__ import annotations

import mmap
import os

import numpy as np

from probes.schema import BLOB, IN_RING, RECORD, STRIDE_BYTES, Records

_BUSY = np.uint64(1 << 31)

# Drained in pieces that stay in the processor's cache: the same numpy code needs twice the time per
# event for 40 k records; for 2 k records the fixed cost of a numpy call shows.
CHUNK_RECORDS = 4096


class Ring:
    """Reader of a ``BPF_MAP_TYPE_RINGBUF`` whose records are all ``probes.schema.RECORD``."""

    def __init__(self, map_fd: int, size_bytes: int) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        self._size = size_bytes
        self._page = page
        self._consumer_map = mmap.mmap(map_fd, page, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        beyond = min(size_bytes, -(-CHUNK_RECORDS * STRIDE_BYTES // page) * page)
        self._data_map = mmap.mmap(
            map_fd, page + size_bytes + beyond, mmap.MAP_SHARED, mmap.PROT_READ, offset=page
        )
        self._consumer = np.frombuffer(self._consumer_map, np.uint64, 1)
        self._producer = np.frombuffer(self._data_map, np.uint64, 1)

    @property
    def backlog_bytes(self) -> int:
        """Bytes that wait to be read."""
        return int(self._producer[0]) - int(self._consumer[0])

    @property
    def fill(self) -> float:
        """How full the buffer is, 0 to 1."""
        return self.backlog_bytes / self._size

    def read(self) -> Records:
        """The next records in the order of their reservation, at most ``CHUNK_RECORDS``; a copy.

        Stops before the first record that is still being written.
        """
        position = int(self._consumer[0])
        count = min(self.backlog_bytes // STRIDE_BYTES, CHUNK_RECORDS)
        if count == 0:
            return np.empty(0, RECORD)
        start = self._page + position % self._size
        rows = np.frombuffer(self._data_map, IN_RING, count, start)
        busy = rows["header"] & _BUSY
        if busy.any():
            rows = rows[: int(busy.argmax())]
        records = np.empty(len(rows), RECORD)
        records.view(BLOB)[:] = rows["record"]
        self._consumer[0] = position + len(rows) * STRIDE_BYTES
        return records

    def close(self) -> None:
        del self._consumer, self._producer
        self._consumer_map.close()
        self._data_map.close()

"""Who maps which executable file, told by the kernel as it happens: perf's MMAP2 records of every CPU.

A dummy perf event for each CPU writes a record of each executable mapping into a ring of its own. It needs
no BPF, costs nothing while nobody maps anything, and names files by device and inode as /proc/PID/maps does.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import select
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_NR_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
_SOFTWARE, _DUMMY, _ATTRIBUTE_BYTES = 1, 9, 64
_MMAP, _WATERMARK, _MMAP2 = 1 << 8, 1 << 14, 1 << 23  # bits of perf_event_attr's flags
_CLOSE_ON_EXEC = 8
_RECORD_LOST, _RECORD_MMAP2 = 2, 10
_HEAD, _TAIL = 1024, 1032  # data_head and data_tail in the first page
_DATA_PAGES = 16  # some 500 mappings for each CPU between two readings

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Mapped:
    """One file that a process has mapped.

    Attributes:
        pid: The process.
        span: First address, and the one behind the last.
        file: (device, inode), as the kernel tells them in records and in /proc/PID/maps.
        path: The file's path as the process sees it; " (deleted)" follows where it has gone.
    """

    pid: int
    span: tuple[int, int]
    file: tuple[int, int]
    path: str


def _open(cpu: int) -> int:
    """perf_event_open(2) of all processes on a CPU. Raises OSError."""
    flags = _MMAP | _MMAP2 | _WATERMARK
    attribute = struct.pack("<IIQQQQQII", _SOFTWARE, _ATTRIBUTE_BYTES, _DUMMY, 0, 0, 0, flags, 1, 0)
    buffer = ctypes.create_string_buffer(attribute, _ATTRIBUTE_BYTES)
    number = _NR_PERF_EVENT_OPEN[platform.machine()]
    event: int = _libc.syscall(number, buffer, -1, cpu, -1, _CLOSE_ON_EXEC)
    if event < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return event


class _CpuRing:
    """The records of one CPU."""

    def __init__(self, cpu: int) -> None:
        self.event = _open(cpu)
        page = os.sysconf("SC_PAGE_SIZE")
        self._begin, self._size = page, _DATA_PAGES * page
        try:
            self._map = mmap.mmap(self.event, page + self._size)
        except OSError:
            os.close(self.event)
            raise

    def take(self) -> Iterator[bytes]:
        """The records that wait, without those that come meanwhile."""
        (head,) = struct.unpack_from("<Q", self._map, _HEAD)
        (tail,) = struct.unpack_from("<Q", self._map, _TAIL)
        data = self._bytes(tail, head - tail)
        struct.pack_into("<Q", self._map, _TAIL, head)
        position = 0
        while position + 8 <= len(data):
            size = struct.unpack_from("<H", data, position + 6)[0]
            if size < 8:
                return
            yield data[position : position + size]
            position += size

    def _bytes(self, tail: int, length: int) -> bytes:
        first = tail % self._size
        until_end = min(length, self._size - first)
        start = self._begin + first
        return (
            self._map[start : start + until_end] + self._map[self._begin : self._begin + length - until_end]
        )

    def close(self) -> None:
        self._map.close()
        os.close(self.event)


def _ring_of(cpu: int) -> _CpuRing | None:
    """The ring of a CPU, None while it is offline. Raises OSError."""
    try:
        return _CpuRing(cpu)
    except OSError as error:
        if error.errno == errno.ENODEV:
            return None
        raise


class MmapEvents:
    """All CPUs' executable mappings from its creation on. CPUs that come online later are not heard.

    Args:
        cpus: One more than the highest CPU number.

    Raises:
        OSError: The kernel allows no perf events of other processes.
    """

    def __init__(self, cpus: int) -> None:
        self._rings: list[_CpuRing] = []
        self._poll = select.poll()
        try:
            for cpu in range(cpus):
                if (ring := _ring_of(cpu)) is not None:
                    self._rings.append(ring)
        except OSError:
            self.close()
            raise
        if not self._rings:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        for ring in self._rings:
            self._poll.register(ring.event, select.POLLIN)

    def wait(self, seconds: float) -> tuple[list[Mapped], bool]:
        """What was mapped since the last time, after the first of it or that long; whether some was lost."""
        self._poll.poll(seconds * 1000)
        found: list[Mapped] = []
        lost = False
        for ring in self._rings:
            for record in ring.take():
                kind = struct.unpack_from("<I", record)[0]
                lost |= kind == _RECORD_LOST
                if kind == _RECORD_MMAP2:
                    found.append(parse(record))
        return found, lost

    def close(self) -> None:
        """Ends it."""
        rings, self._rings = self._rings, []
        for ring in rings:
            ring.close()


def parse(record: bytes) -> Mapped:
    """A PERF_RECORD_MMAP2 record, header included."""
    pid, _tid, start, length = struct.unpack_from("<IIQQ", record, 8)
    major, minor, inode = struct.unpack_from("<IIQ", record, 40)
    name = record[72:].split(b"\0", 1)[0]
    return Mapped(pid, (start, start + length), (os.makedev(major, minor), inode), os.fsdecode(name))

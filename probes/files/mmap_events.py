"""Mappings of executable files, reported by the kernel as they happen: perf's MMAP2 records of every CPU.

A dummy perf event for each CPU writes a record of each executable mapping into a ring of its own. It needs
no BPF, costs nothing while there are no mappings, and names files by device and inode as /proc/PID/maps does.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import select
import struct
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from probes.process.system_calls import perf_event_open

_SOFTWARE, _DUMMY, _ATTRIBUTE_BYTES = 1, 9, 112
# its flags
_MMAP, _COMM, _WATERMARK, _SAMPLE_ID_ALL = 1 << 8, 1 << 9, 1 << 14, 1 << 18
_MMAP2, _COMM_EXEC, _USE_CLOCKID = 1 << 23, 1 << 24, 1 << 25
_SAMPLE_TIME, _CLOCK_MONOTONIC, _CLOCKID_AT = 1 << 2, 1, 92
_RECORD_LOST, _RECORD_COMM, _RECORD_MMAP2 = 2, 3, 10
_BY_EXEC = 1 << 13  # PERF_RECORD_MISC_COMM_EXEC: of a name
_HEAD, _TAIL = 1024, 1032  # data_head and data_tail in the first page
_DATA_PAGES = 16  # some 500 mappings for each CPU between two readings

# mappings that wait to be read, some 30 MB: beyond that they are found in /proc afterwards
MOST_FOUND = 1 << 16


@dataclass(frozen=True, slots=True)
class Mapped:
    """One file that a process has mapped."""

    pid: int  # the process
    span: tuple[int, int]  # first address, and the one behind the last
    file: tuple[int, int]  # (device, inode), as the kernel reports them in records and in /proc/PID/maps
    path: str  # the file's path as the process sees it; " (deleted)" follows where it has gone
    offset: int = 0  # where in the file it begins
    time_ns: int = 0  # when, by CLOCK_MONOTONIC; 0: at a time that is not known


# of PERF_RECORD_MMAP2: pid, tid, address, length, offset, device's major and minor number, inode
_MMAP2_FIELDS = struct.Struct("<IIQQQIIQ")


class Hears:
    """Receives mappings as soon as they are read, from any thread; unused here."""

    def heard(self, found: Iterable[Mapped], execs: Iterable[tuple[int, int]]) -> None:
        """Files were mapped, and processes (pid, time) became other programs."""

    def missed(self, since_ns: int, until_ns: int) -> None:
        """Between these times there was more, which is lost."""


def _open(cpu: int) -> int:
    """perf_event_open(2) of all processes on a CPU. Raises OSError."""
    flags = _MMAP | _MMAP2 | _COMM | _COMM_EXEC | _WATERMARK | _SAMPLE_ID_ALL | _USE_CLOCKID
    attribute = struct.pack(
        "<IIQQQQQII", _SOFTWARE, _ATTRIBUTE_BYTES, _DUMMY, 0, _SAMPLE_TIME, 0, flags, 1, 0
    )
    buffer = ctypes.create_string_buffer(attribute, _ATTRIBUTE_BYTES)
    struct.pack_into("<i", buffer, _CLOCKID_AT, _CLOCK_MONOTONIC)
    return perf_event_open(buffer, cpu)


class _CpuRing:
    """The records of one CPU."""

    def __init__(self, cpu: int) -> None:
        self.event = _open(cpu)
        self.newest_ns = 0  # the time of the last record that was read
        page = os.sysconf("SC_PAGE_SIZE")
        self._begin, self._size = page, _DATA_PAGES * page
        try:
            self._map = mmap.mmap(self.event, page + self._size)
        except OSError:
            os.close(self.event)
            raise

    def drain(self) -> Iterator[bytes]:
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

    Raises:
        OSError: The kernel allows no perf events of other processes.
    """

    def __init__(self, cpus: int, hears: Hears | None = None) -> None:
        self.hears = hears or Hears()
        self.found: list[Mapped] = []
        self.lost = False
        self.lock = threading.Lock()
        self.rings: list[_CpuRing] = []
        self._poll = select.poll()
        try:
            for cpu in range(cpus):
                if (ring := _ring_of(cpu)) is not None:
                    self.rings.append(ring)
        except OSError:
            self.close()
            raise
        if not self.rings:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        for ring in self.rings:
            self._poll.register(ring.event, select.POLLIN)

    def wait(self, seconds: float) -> tuple[list[Mapped], bool]:
        """The mappings since the last call, after the first or a timeout; true if some were lost."""
        self._poll.poll(seconds * 1000)
        self.hear()
        with self.lock:
            found, lost = self.found, self.lost
            self.found, self.lost = [], False
        return found, lost

    def hear(self) -> None:
        """Reads the mappings up to now; ``wait`` returns them the next time."""
        with self.lock:
            found: list[Mapped] = []
            execs: list[tuple[int, int]] = []
            missed: list[tuple[int, int]] = []
            for ring in self.rings:
                for record in ring.drain():
                    kind, misc = struct.unpack_from("<IH", record)
                    now = _time_of(record)
                    if kind == _RECORD_LOST:
                        missed.append((ring.newest_ns, now))
                    elif kind == _RECORD_MMAP2:
                        found.append(parse(record))
                    elif kind == _RECORD_COMM and misc & _BY_EXEC:
                        execs.append((struct.unpack_from("<I", record, 8)[0], now))
                    ring.newest_ns = now
            self.found += found
            self.lost |= bool(missed) or len(self.found) > MOST_FOUND
            del self.found[MOST_FOUND:]
            if found or execs:
                self.hears.heard(found, execs)
            for since_ns, until_ns in missed:
                self.hears.missed(since_ns, until_ns)

    def close(self) -> None:
        """Ends it, after reading the mappings up to now."""
        self.hear()
        with self.lock:
            rings, self.rings = self.rings, []
        for ring in rings:
            ring.close()


# (device, inode) and path of the files that were mapped last, by both: a thousand processes map the same ones
_files: dict[tuple[int, int, int, bytes], tuple[tuple[int, int], str]] = {}
_MOST_FILES = 1024


def parse(record: bytes) -> Mapped:
    """A PERF_RECORD_MMAP2 record, header included."""
    pid, _tid, start, length, offset, major, minor, inode = _MMAP2_FIELDS.unpack_from(record, 8)
    key = major, minor, inode, record[72:].split(b"\0", 1)[0]
    if (known := _files.get(key)) is None:
        if len(_files) >= _MOST_FILES:
            _files.clear()
        known = _files[key] = (os.makedev(major, minor), inode), os.fsdecode(key[3])
    return Mapped(pid, (start, start + length), known[0], known[1], offset, _time_of(record))


def _time_of(record: bytes) -> int:
    """The time behind a record."""
    time_ns: int = struct.unpack_from("<Q", record, len(record) - 8)[0]
    return time_ns

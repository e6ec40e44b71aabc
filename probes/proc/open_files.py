"""The file descriptors on which watched threads block: read from /proc, at marks, and reported once.

A descriptor may be closed and opened again as something else, so a known one is read again
after a second. Reading is one readlink, some microseconds, and for a socket the tables of its
network, which may be long. A mark reads 200 at most and for 20 ms, unknown ones first,
then the least recently read, and the rest waits for the next mark.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from probes.arrays import distinct
from probes.proc import syscalls
from probes.proc.sockets import Sockets
from probes.samples import PlacesData
from probes.schema import ALIASED, Kind, Records, select
from probes.source import FILES, Sample

READ_PER_MARK = 200
READING_S = 0.02  # a mark may be late by that; one is read in any case
FRESH_NS = 1_000_000_000
_KEPT = 16384  # descriptors that are remembered; threads beyond it only cost another reading
_OFFCPU = np.uint8(Kind.OFFCPU)  # an enum is numpy's slow path
_LARGEST = 1 << 31  # a larger one is no descriptor, but an error of the call
_DELETED = " (deleted)"


class OpenFiles:
    """Collects the descriptors of slices, and yields their kinds.

    Args:
        machine: The machine whose system call numbers these are, as of ``uname -m``.
    """

    def __init__(self, machine: str) -> None:
        self._of_files = syscalls.of_files(machine)
        self._seen: set[int] = set()  # pid << 32 | descriptor
        self._known: dict[int, tuple[int, str]] = {}  # time of the query, and its file

    def notice(self, records: Records) -> None:
        """Collects the descriptors of a batch."""
        chosen = self._of_files.take(records["op"]) & (records["kind"] == _OFFCPU)
        if chosen.any():
            rows = select(records, chosen).view(ALIASED)
            self._add(rows["pid"], rows["argument"])

    def notice_samples(self, places: PlacesData) -> None:
        """Collects the descriptors of threads that a timer met in a system call."""
        columns = (places.get(name, ()) for name in ("pid", "argument", "syscall"))
        pid, argument, syscall = (np.array(column, np.uint32) for column in columns)
        chosen = self._of_files.take(syscall, mode="clip")
        self._add(pid[chosen], argument[chosen])

    def _add(self, pids: npt.NDArray[np.uint32], arguments: npt.NDArray[np.uint32]) -> None:
        inside = arguments < _LARGEST
        if len(self._seen) < _KEPT:
            keys = pids[inside].astype(np.uint64) << np.uint64(32) | arguments[inside]
            self._seen.update(distinct(keys).tolist())

    def samples(self, states: npt.NDArray[np.void], now_ns: int) -> Iterator[Sample]:
        """The sample of new descriptors, if there are any; ``states`` are the threads at the mark."""
        blocked = self._of_files.take(states["syscall"]) & (states["off_since"] > 0)
        self._add(states["pid"][blocked], states["argument"][blocked])
        fresh = {}
        sockets, until = Sockets(), time.monotonic() + READING_S
        due = self._due(now_ns)
        for place, key in enumerate(due):
            if place and time.monotonic() > until:
                self._seen.update(due[place:])
                break
            what = kind_of(key >> 32, key & 0xFFFFFFFF, sockets)
            if what and self._known.get(key, (0, ""))[1] != what:
                fresh[key] = what
            if what:
                self._known[key] = (now_ns, what)
        if fresh:
            columns = {"pid": [key >> 32 for key in fresh], "fd": [key & 0xFFFFFFFF for key in fresh]}
            yield Sample(FILES, now_ns, {**columns, "what": list(fresh.values())})

    def _due(self, now_ns: int) -> list[int]:
        """Those to read now; they count as no longer seen."""
        if len(self._known) > _KEPT:
            self._known.clear()  # ended processes are not looked for one by one
        never = (-FRESH_NS, "")
        ages = [(self._known.get(key, never)[0], key) for key in self._seen]
        due = sorted(pair for pair in ages if now_ns - pair[0] >= FRESH_NS)
        self._seen = {key for _, key in due[READ_PER_MARK:]}
        return [key for _, key in due[:READ_PER_MARK]]


def kind_of(pid: int, descriptor: int, sockets: Sockets) -> str:
    """The kind of a descriptor of a process now; empty when it is closed or the process is gone."""
    try:
        link = os.readlink(f"/proc/{pid}/fd/{descriptor}")
    except OSError:
        return ""
    kind, _, number = link.partition(":")
    if kind == "socket" and number[1:-1].isdigit():
        return sockets.kind(pid, int(number[1:-1]))
    return describe(link)


def describe(link: str) -> str:
    """The kind of a descriptor by its link in /proc, with a path where it has one.

    The kinds are ``pipe``, ``socket``, ``eventfd``, ``device:PATH``, ``file:PATH`` and ``anon:NAME``;
    ``probes.proc.sockets`` knows more of a socket.
    """
    if link.startswith("/dev/") and not link.startswith(("/dev/shm/", "/dev/hugepages/")):
        return f"device:{link}"
    if link.startswith("/memfd:"):
        return "anon:memfd"
    if link.startswith("/"):
        return f"file:{link.removesuffix(_DELETED)}"
    kind, _, rest = link.partition(":")
    if kind == "anon_inode":
        name = rest.strip("[]").split(":")[0]
        return "eventfd" if name == "eventfd" else f"anon:{name}"
    return kind if kind in ("pipe", "socket") else f"anon:{kind}"

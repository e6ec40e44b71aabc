"""The mappings of a process, by /proc/PID/maps; of an endless list its beginning.

A process can have as many mappings as the kernel allows (vm.max_map_count, 65,530 unless it was raised), each
with a path of any length. So a list is read line by line, and no more of it than ``MOST_LINES`` and
``MOST_BYTES``; and at most ``MOST_MAPPINGS`` of the requested ones are returned. Processes with a longer list
are remembered until they are reported.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from typing import BinaryIO

from probes.files.mmap_events import Mapped

MOST_LINES = 70_000  # more than a kernel allows by itself
MOST_BYTES = 16 << 20
MOST_MAPPINGS = 4096  # a program has a few hundred libraries
LONGEST_LINE = 4096 + 128  # with a path that can be opened
MOST_REPORTED = 64  # processes; a user reads no more sentences of one kind

cut_pids: deque[int] = deque(maxlen=MOST_REPORTED)
reported_pids: set[int] = set()


def read(pid: int, wanted: Callable[[str, str], bool]) -> Iterator[Mapped]:
    """The mappings of a process, in the order of their addresses; none when it has ended.

    Args:
        pid: The process.
        wanted: Which of them, by their rights (``r-xp``) and path (``""`` where there is none): of most
            processes nothing else has to be understood.
    """
    paths: dict[str, str] = {}  # the same text for all mappings of a file
    count = 0
    for line in lines_of(pid):
        columns = line.split(" ", 5)
        if len(columns) < 6 or not wanted(columns[1], path := columns[5].lstrip(" ")):
            continue
        if count >= MOST_MAPPINGS:
            note_cut(pid)
            return
        count += 1
        try:
            start, end = (int(address, 16) for address in columns[0].split("-"))
            major, minor = (int(number, 16) for number in columns[3].split(":"))
            file = os.makedev(major, minor), int(columns[4])
            offset = int(columns[2], 16)
        except (ValueError, OverflowError):  # not as Linux writes it; the others may be
            note_cut(pid)
            continue
        yield Mapped(pid, (start, end), file, paths.setdefault(path, path), offset)


def executable(pid: int) -> list[Mapped]:
    """The mappings with executable code."""
    return list(read(pid, lambda rights, _path: "x" in rights))


def cut() -> Iterator[int]:
    """Processes whose list was longer than its read part, each once."""
    while cut_pids:
        pid = cut_pids.popleft()
        if pid not in reported_pids and len(reported_pids) < MOST_REPORTED:
            reported_pids.add(pid)
            yield pid


def note_cut(pid: int) -> None:
    """Keeps a process whose mappings were cut, to be reported once."""
    if pid not in reported_pids and pid not in cut_pids:
        cut_pids.append(pid)


def lines_of(pid: int) -> Iterator[str]:
    """The lines that are whole, without their ends."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            yield from whole_lines(pid, file)
    except OSError:
        return


def whole_lines(pid: int, file: BinaryIO) -> Iterator[str]:
    """The lines of a file of mappings that are whole, within bounds."""
    left, inside = MOST_BYTES, False
    for _ in range(MOST_LINES):
        line = file.readline(LONGEST_LINE)  # a file may be called anything: only a line's end is escaped
        left -= len(line)
        if not line:
            return
        if left < 0:
            break
        begun, inside = inside, not line.endswith(b"\n")
        if begun or inside:
            note_cut(pid)  # a part of a line whose path is too long to be opened
        else:
            yield line[:-1].decode(errors="surrogateescape")
    note_cut(pid)

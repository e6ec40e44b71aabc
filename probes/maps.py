"""What a process has mapped, by /proc/PID/maps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from probes.mmap_events import Mapped


def read(pid: int, wanted: Callable[[str, str], bool]) -> Iterator[Mapped]:
    """The mappings of a process, in the order of their addresses; none when it has ended.

    Args:
        pid: The process.
        wanted: Which of them, by their rights (``r-xp``) and path (``""`` where there is none): of most
            processes nothing else has to be understood.
    """
    try:
        text = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape")
    except OSError:
        return
    for line in text.split("\n"):  # a file may be called anything: only a line's end is escaped
        columns = line.split(" ", 5)
        if len(columns) < 6 or not wanted(columns[1], path := columns[5].lstrip(" ")):
            continue
        start, end = (int(address, 16) for address in columns[0].split("-"))
        major, minor = (int(number, 16) for number in columns[3].split(":"))
        file = os.makedev(major, minor), int(columns[4])
        yield Mapped(pid, (start, end), file, path, int(columns[2], 16))


def executable(pid: int) -> list[Mapped]:
    """The mappings whose code can be run."""
    return list(read(pid, lambda rights, _path: "x" in rights))

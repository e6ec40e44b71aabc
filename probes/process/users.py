"""The users of processes; subordinate user ids count as their owner's, so that no user has more turns."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final

GONE: Final = -1  # of a process that has ended
SUBORDINATE = Path("/etc/subuid")
_STATUS_BYTES = 4096  # names and groups of a process are in front of its rights


def of(pid: int) -> int:
    """The number of a process's user, by its real user id; ``GONE`` where it has ended.

    The owner of /proc/PID would be root for all users of a setuid program of root's.
    """
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
            _, there, rest = file.read(_STATUS_BYTES).partition(b"\nUid:")
        return one_of(int(rest.split(None, 1)[0])) if there else GONE
    except (OSError, IndexError, ValueError):
        return GONE


def one_of(user: int) -> int:
    """The same for all user ids of a range that /etc/subuid maps to a user."""
    for first, count in subordinate_ranges():
        if first <= user < first + count:
            return first
    return user


@functools.cache
def subordinate_ranges() -> tuple[tuple[int, int], ...]:
    """(first, how many) of each line; root writes the file."""
    try:
        lines = SUBORDINATE.read_text(errors="replace").splitlines()
    except OSError:
        return ()
    rows = (line.split(":") for line in lines)
    return tuple(
        (int(row[1]), int(row[2])) for row in rows if len(row) == 3 and row[1].isdigit() and row[2].isdigit()
    )

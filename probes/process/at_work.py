"""What a process is about: whether it computes, waits or is stopped."""

from __future__ import annotations

import os

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def at_work(pid: int) -> tuple[str, float]:
    """(its state as /proc says, CPU seconds that it has used); X and none where it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return fields[0].decode(), (int(fields[11]) + int(fields[12])) * _TICK_S
    except (OSError, IndexError, ValueError):
        return "X", 0.0

"""Facts of processes and of this machine from /proc."""

from __future__ import annotations

import os
import platform
import pwd
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_COMMAND_LIMIT = 4096


@lru_cache(maxsize=256)
def user_name(uid: int) -> str:
    """The user's name, or the number where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def process_facts(pid: int) -> dict[str, Any] | None:
    """Name, command line, user, parent and start of a process; None when it has gone.

    ``start_ns`` is CLOCK_MONOTONIC as far as the machine was never suspended (procfs counts
    CLOCK_BOOTTIME); it tells processes apart, it is no timestamp.
    """
    folder = Path(f"/proc/{pid}")
    try:
        stat = (folder / "stat").read_text(errors="replace")
        raw = (folder / "cmdline").read_bytes()[:_COMMAND_LIMIT]
        uid = folder.stat().st_uid
    except OSError:
        return None
    name = stat[stat.index("(") + 1 : stat.rindex(")")]
    fields = stat[stat.rindex(")") + 2 :].split()
    return {
        "pid": pid,
        "parent_pid": int(fields[1]),
        "name": name,
        "command": raw.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace"),
        "user": user_name(uid),
        "uid": uid,
        "start_ns": int(fields[19]) * 1_000_000_000 // _TICKS_PER_S,
    }


def threads(pid: int) -> list[int]:
    """Thread ids of a process; empty when it has gone."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def thread_name(pid: int, tid: int) -> str | None:
    """The thread's name, or None when it has gone."""
    try:
        return Path(f"/proc/{pid}/task/{tid}/comm").read_text(errors="replace").rstrip("\n")
    except OSError:
        return None


def machine_facts() -> dict[str, Any]:
    """What a reader of a recording wants to know about the machine."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "host": platform.node(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpus": os.cpu_count(),
        "memory_bytes": memory,
    }


class OwnUse:
    """CPU time and memory of gputop itself."""

    def __init__(self) -> None:
        self._wall_ns = time.monotonic_ns()
        self._cpu_ns = time.process_time_ns()

    def sample(self) -> tuple[float, int]:
        """(percent of one CPU since the last call, resident bytes)."""
        wall_ns, cpu_ns = time.monotonic_ns(), time.process_time_ns()
        percent = 100 * (cpu_ns - self._cpu_ns) / max(wall_ns - self._wall_ns, 1)
        self._wall_ns, self._cpu_ns = wall_ns, cpu_ns
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return percent, pages * os.sysconf("SC_PAGE_SIZE")

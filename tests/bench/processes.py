"""What a process uses, as the kernel counts it."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from probes.proc.procfs import descendants


def _ticks(stat: Path) -> int:
    """User and system time of a process or thread, in clock ticks."""
    fields = stat.read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def use(pid: int) -> dict[str, int]:
    """Clock ticks used by each thread, by its number; the whole process is ''."""
    found = {"": _ticks(Path(f"/proc/{pid}/stat"))}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            found[task.name] = _ticks(task / "stat")
    return found


def gputop_ticks(pid: int) -> int:
    """Clock ticks used by a gputop and by the processes of its own, not by the program that it started."""
    ticks = use(pid)[""]
    for child in [process for task in Path(f"/proc/{pid}/task").iterdir() for process in children(task)]:
        with suppress(FileNotFoundError, ProcessLookupError):  # a helper that has ended meanwhile
            ticks += gputop_ticks(child) if is_gputop(child) else 0
    return ticks


def children(task: Path) -> list[int]:
    """Processes that a thread has started; none of a thread that has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return list(map(int, (task / "children").read_text().split()))
    return []


def is_gputop(pid: int) -> bool:
    """Whether it is a process of gputop's own."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:4]
    return any(word.endswith(b"gputop/process/launcher.py") for word in words)


def rss_bytes(pid: int) -> int:
    """Resident memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmRSS")


def pss_bytes(pid: int) -> int:
    """Resident memory of a process and all below it; what several of them share counts once."""
    found = 0
    for process in (pid, *descendants((pid,))):
        with suppress(FileNotFoundError, ProcessLookupError):
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            found += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return found


def peak_bytes(pid: int) -> int:
    """The most that was resident; 0 of a process that has ended."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def used_percent(pid: int, seconds: float) -> float:
    """What a process uses of a core while one waits."""
    before, began = use(pid)[""], time.monotonic()
    time.sleep(seconds)
    ticks = use(pid)[""] - before
    return ticks * 100 / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)

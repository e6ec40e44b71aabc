"""The processes that ``--pid`` names: whether they can be observed, and which of their children use CUDA."""

from __future__ import annotations

import os
from pathlib import Path

from gputop.errors import CommandError
from gputop.format import escape_text
from probes.code import libraries
from probes.proc.procfs import descendants, process_facts, process_state

_KERNEL_THREAD = 0x00200000  # PF_KTHREAD
_FLAGS = 6  # where they stand in /proc/PID/stat, behind the name
_SHOWN = 4  # children that a sentence names


def check_pids(pids: tuple[int, ...] | None, as_root: str) -> None:
    """Refuses numbers of no process that can be observed.

    Args:
        pids: As typed.
        as_root: What gives ``gputop`` root's rights here: "sudo {}".

    Raises:
        CommandError: There is no such process, it has ended or is hidden; it is a thread.
    """
    for pid in pids or ():
        if not Path(f"/proc/{pid}").exists():
            raise CommandError(_absent(pid, as_root))
        if process_state(pid) in ("Z", "X"):
            raise CommandError(f"{named(pid)} has ended; its parent has not read its exit status yet")
        if _flags(pid) & _KERNEL_THREAD:
            raise CommandError(f"{named(pid)} is a thread of the kernel, which makes no CUDA calls")
        if (leader := _leader(pid)) != pid:
            raise CommandError(f"{pid} is a thread of {named(leader)}: --pid {leader}")


def named(pid: int) -> str:
    """The process with its name, as sentences have it."""
    facts = process_facts(pid)
    return f"process {pid} ({escape_text(str(facts['name']))})" if facts else f"process {pid}"


def without_cuda(pids: tuple[int, ...]) -> str:
    """A sentence when none of these processes maps a CUDA library; "" when one does, or may not be read.

    It names the descendants that do.
    """
    if any(libraries.maps_cuda(pid) or not os.access(f"/proc/{pid}/maps", os.R_OK) for pid in pids):
        return ""
    who = named(pids[0]) if len(pids) == 1 else f"processes {', '.join(map(str, pids))}"
    verb = "maps" if len(pids) == 1 else "map"
    using = children_with_cuda(pids)
    if not using:
        family = "its" if len(pids) == 1 else "their"
        return f"{who} {verb} no CUDA library, nor does any of {family} children"
    children = {pid for pid in using if _parent(pid) in pids}
    kind = "child" if children else "descendant"
    shown = ", ".join(named(pid).removeprefix("process ") for pid in using[:_SHOWN])
    more = f" and {len(using) - _SHOWN} more" if len(using) > _SHOWN else ""
    family = "its" if len(pids) == 1 else "their"
    whose = f"{family} {kind} {shown} does" if len(using) == 1 else f"{family} descendants {shown}{more} do"
    return f"{who} {verb} no CUDA library; {whose}: --pid {','.join(map(str, using))}"


def children_with_cuda(pids: tuple[int, ...]) -> list[int]:
    """The descendants of processes that have a CUDA library mapped."""
    return sorted(pid for pid in descendants(pids) - set(pids) if libraries.maps_cuda(pid))


def _absent(pid: int, as_root: str) -> str:
    try:
        os.kill(pid, 0)
    except PermissionError:
        command = as_root.format(f"gputop --pid {pid}")
        return f"process {pid} belongs to another user, and /proc hides it (hidepid): {command}"
    except (ProcessLookupError, OverflowError):
        pass
    return f"there is no process {pid}: it has ended, or the number is wrong"


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:  # it has ended meanwhile
        return []


def _flags(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[_FLAGS]) if fields else 0


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _leader(pid: int) -> int:
    """The process that a thread belongs to; itself for a process."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return pid
    return int(status.partition("\nTgid:")[2].split(maxsplit=1)[0])

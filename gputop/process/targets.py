"""The processes of ``--pid``: whether they can be observed, and which of their children use CUDA."""

from __future__ import annotations

import os
from pathlib import Path

from gputop.errors import CommandError
from gputop.format import escape_text
from probes.code import libraries
from probes.proc.procfs import descendants, is_kernel_thread, parent, process_facts, process_state

_SHOWN = 4  # children that a sentence names


def check_pids(pids: tuple[int, ...] | None, as_root: str) -> None:
    """Check that the numbers are processes that can be observed.

    Args:
        pids: Numbers from the command line.
        as_root: Command line that runs ``gputop`` as root here: "sudo {}".

    Raises:
        CommandError: A process does not exist, has ended, is hidden, or is a thread.
    """
    for pid in pids or ():
        if not Path(f"/proc/{pid}").exists():
            raise CommandError(_absent(pid, as_root))
        if process_state(pid) in ("Z", "X"):
            raise CommandError(f"{named(pid)} has ended; its parent has not read its exit status yet")
        if is_kernel_thread(pid):
            raise CommandError(f"{named(pid)} is a thread of the kernel, which makes no CUDA calls")
        if (leader := _leader(pid)) != pid:
            raise CommandError(f"{pid} is a thread of {named(leader)}: --pid {leader}")


def named(pid: int) -> str:
    """Return the process with its name, for sentences."""
    facts = process_facts(pid)
    return f"process {pid} ({escape_text(str(facts['name']))})" if facts else f"process {pid}"


def without_cuda(pids: tuple[int, ...]) -> str:
    """Return a sentence if none of these processes maps a CUDA library, else "".

    The sentence names descendants that do. "" also if a process's mappings cannot be read.
    """
    if any(libraries.maps_cuda(pid) or not os.access(f"/proc/{pid}/maps", os.R_OK) for pid in pids):
        return ""
    who = named(pids[0]) if len(pids) == 1 else f"processes {', '.join(map(str, pids))}"
    verb = "maps" if len(pids) == 1 else "map"
    using = children_with_cuda(pids)
    if not using:
        family = "its" if len(pids) == 1 else "their"
        return f"{who} {verb} no CUDA library, nor does any of {family} children"
    children = {pid for pid in using if parent(pid) in pids}
    kind = "child" if children else "descendant"
    shown = ", ".join(named(pid).removeprefix("process ") for pid in using[:_SHOWN])
    more = f" and {len(using) - _SHOWN} more" if len(using) > _SHOWN else ""
    family = "its" if len(pids) == 1 else "their"
    whose = f"{family} {kind} {shown} does" if len(using) == 1 else f"{family} descendants {shown}{more} do"
    return f"{who} {verb} no CUDA library; {whose}: --pid {','.join(map(str, using))}"


def children_with_cuda(pids: tuple[int, ...]) -> list[int]:
    """Return the descendants of processes that have a CUDA library mapped."""
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


def _leader(pid: int) -> int:
    """Return the process that a thread belongs to; itself for a process."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return pid
    return int(status.partition("\nTgid:")[2].split(maxsplit=1)[0])

"""What /proc says of the processes that a test started."""

from __future__ import annotations

from pathlib import Path

from tests.waiting import wait_until


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def command_of(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def state_of(pid: int) -> str:
    """As ps tells it: ``S`` is asleep, ``T`` is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def started_child(pid: int, command: str) -> str:
    """The one child that runs this command, once it does: one that is forked may not have become it yet."""

    def found() -> list[str]:
        return [child for child in children(pid) if command_of(child) == command]

    wait_until(found, f"{pid} to start {command}")
    (child,) = found()
    return child


def with_variable(text: str) -> list[str]:
    """The commands of all processes that hold these words in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (folder / "environ").read_bytes():
                found.append(command_of(folder.name))
        except OSError:  # it ended
            continue
    return found

"""What /proc says of the processes that a test started."""

from __future__ import annotations

from pathlib import Path


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def command_of(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


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

"""The source file of a line, as far as this machine has it: its text, or why it is not shown."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from gputop.engine.lines import Line

MOST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """A file's lines.

    Attributes:
        path: Where it was read.
        lines: Its lines without their ends; none where it could not be read.
        changed_ns: When it was changed last, ns since the epoch.
        problem: Why there are no lines, in a sentence; "" where there are.
    """

    path: str
    lines: tuple[str, ...] = ()
    changed_ns: int = 0
    problem: str = ""


def read_source(line: Line, pid: int | None) -> Source:
    """Reads the file that a line is in.

    Args:
        line: The line; its file is a name that a program or a recording gave.
        pid: The process that runs it now, whose root and folder count; None in a replay.
    """
    if line.file.startswith("<"):
        return Source(line.file, problem="this code comes from no file")
    if line.is_native:
        return Source(
            line.file, problem="native code: its file has functions and addresses, no lines of source"
        )
    problem = "there is no such file on this machine"
    for path in _places(line.file, pid):
        try:
            return _read(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            problem = f"the file cannot be read: {error.strerror}"
        except ValueError:  # a program may call its code anything
            problem = "no file has such a name"
    return Source(line.file, problem=problem)


def _places(file: str, pid: int | None) -> list[Path]:
    if pid is None:
        return [Path(file)]
    if file.startswith("/"):
        return [Path(f"/proc/{pid}/root{file}"), Path(file)]
    return [Path(f"/proc/{pid}/cwd/{file}")]


def _read(path: Path) -> Source:
    """Raises OSError. A recording may name anything: what is no plain file (a device) is not even opened."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        return Source(str(path), problem="this is no plain file")
    if status.st_size > MOST_BYTES:
        return Source(str(path), problem=f"the file has more than {MOST_BYTES >> 20} MiB")
    with path.open("rb") as file:
        shown = os.path.realpath(f"/proc/self/fd/{file.fileno()}")
        text = file.read(MOST_BYTES).decode(errors="replace")
    return Source(shown, tuple(text.split("\n")), status.st_mtime_ns)

"""The source file of a line on this machine: its text, or why it is not shown."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass

from gputop.engine.calls.stack_table import Line
from probes.files import source_texts

_PROBLEMS = {
    errno.ENOEXEC: "this is no plain file",
    errno.EFBIG: f"the file has more than {source_texts.MOST_BYTES >> 20} MiB",
}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file's lines."""

    path: str  # the file that was read
    lines: tuple[str, ...] = ()  # its lines without their ends; none if it could not be read
    changed_ns: int = 0  # its last change, ns since the epoch
    problem: str = ""  # why there are no lines, in a sentence; "" if there are


def read_source(line: Line, pid: int | None) -> SourceFile:
    """Read the file of a line.

    Args:
        line: The line; its file name is from a program or a recording.
        pid: The process that runs it, whose root and folder count; None in a replay.
    """
    if line.file.startswith("<"):
        return SourceFile(line.file, problem="this code comes from no file")
    if line.is_native:
        return SourceFile(
            line.file, problem="native code: its file has functions and addresses, no lines of source"
        )
    if pid is None and not line.file.startswith("/") and not _is_own_folder():
        return SourceFile(
            line.file,
            problem="the recording holds no folder for it, and others may write to this folder: start gputop "
            "in the program's own",
        )
    try:
        text = source_texts.text_of(line.file, pid)
    except FileNotFoundError:
        return SourceFile(line.file, problem="there is no such file on this machine")
    except OSError as error:
        return SourceFile(
            line.file, problem=_PROBLEMS.get(error.errno or 0, f"the file cannot be read: {error.strerror}")
        )
    except ValueError as error:  # a program may use any file name
        return SourceFile(line.file, problem=str(error))
    return SourceFile(text.path, tuple(text.data.decode(errors="replace").split("\n")), text.changed_ns)


def _is_own_folder() -> bool:
    """True if no other user can have put a file into the current folder."""
    try:
        found = os.stat(".")
    except OSError:
        return False
    behind = os.environ.get("SUDO_UID", "")
    mine = {0, os.geteuid(), int(behind) if behind.isdecimal() else 0}
    return found.st_uid in mine and not found.st_mode & stat.S_IWOTH

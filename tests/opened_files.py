"""Files opened as gputop opens those of others, read and closed again."""

from __future__ import annotations

from pathlib import Path

from probes.code import elf, interpreter, libraries
from probes.code.symbols import Functions
from probes.files import untrusted_files


def identity_of(path: Path) -> untrusted_files.Identity:
    """Device and inode of a file."""
    status = path.stat()
    return status.st_dev, status.st_ino


def elf_of(path: Path) -> elf.Library:
    """The exported functions of a library."""
    with untrusted_files.opened(path) as file:
        return elf.read(file)


def probes_of(target: libraries.Target) -> list[libraries.Probe]:
    """What is probed in a library."""
    with untrusted_files.opened(target.path, target.identity) as file:
        return libraries.probes_of(target, file)[0]


def functions_of(path: Path) -> Functions:
    """All functions of a file, which stays open."""
    return Functions(untrusted_files.opened(path))


def interpreter_of(path: Path, shown: str = "") -> interpreter.Interpreter | None:
    """The interpreter in a file."""
    with untrusted_files.opened(path) as file:
        return interpreter.read(file, shown or str(path))

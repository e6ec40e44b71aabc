"""Python interpreters, and whether source lines are available for their programs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gputop.checks.fact import Fact, Section, note, ok
from probes.code import elf, interpreter, libraries, parsing
from probes.code.interpreter import Interpreter
from probes.code.layout import LAYOUTS
from probes.stacks import line_tracker

HIDDEN = "no interpreter's symbols are in it: they are stripped"
GONE = "the file is gone or not readable"
FIX = (
    f"use CPython 3.{min(LAYOUTS)} to 3.{max(LAYOUTS)} on x86-64, with the GIL and its symbols exported, as "
    "distributions and conda have it; of others: py-spy dump --pid PID"
)
FIX_GONE = "start its processes again, or run gputop as root"
_PIDS_SHOWN = 3
_Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter's file and the processes that have it mapped."""

    found: Interpreter
    pids: tuple[int, ...]


@dataclass(slots=True)
class _File:
    read: Interpreter | None  # None: it holds no interpreter
    shown: str
    pids: set[int] = field(default_factory=set)


def find(
    pids: Iterable[int] | None, environment: Mapping[str, str], prefixes: Iterable[Path] = ()
) -> list[Python]:
    """Return the interpreters mapped by these processes; for None by all, and the installed ones too."""
    files: dict[_Identity, _File] = {}
    for pid in libraries.all_pids() if pids is None else pids:
        _look_at(pid, files, chosen=pids is not None)
    if pids is None:
        for path in interpreter.installed(environment, prefixes, None):
            status = path.stat()
            interpreter_file(files, (status.st_dev, status.st_ino), path, str(path))
    return [
        Python(file.read, tuple(sorted(file.pids - {os.getpid()})))
        for file in files.values()
        if file.read is not None
    ]


def _look_at(pid: int, files: dict[_Identity, _File], *, chosen: bool) -> None:
    """Add the interpreters of a process; a file that only has an interpreter's name if there is no other."""
    found: list[_File] = []
    for mapping in line_tracker.candidates(pid, chosen=chosen):
        reached = libraries.file_of(mapping)
        if reached is None:
            shown = Interpreter(mapping.path, (0, 0), GONE)
            found.append(files.setdefault(mapping.file, _File(shown, mapping.path)))
        else:
            found.append(interpreter_file(files, reached[1], reached[0], mapping.path))
    for file in found:
        name = libraries.file_name(file.shown)
        if file.read is None and interpreter.may_be(name) and all(one.read is None for one in found):
            file.read = Interpreter(file.shown, (0, 0), HIDDEN)
        file.pids.add(pid)


def interpreter_file(files: dict[_Identity, _File], identity: _Identity, path: Path, shown: str) -> _File:
    """Return the interpreter in a file, read once."""
    if identity not in files:
        try:
            with parsing.interpreter_at(path, identity, shown) as (_file, read):
                pass
        except elf.ElfError:
            read = None
        except OSError as error:
            read = Interpreter(shown, (0, 0), f"it cannot be read: {error.strerror}")
        files[identity] = _File(read, shown)
    return files[identity]


def python_section(found: Sequence[Python]) -> Section:
    facts: list[Fact] = []
    for one in found:
        version = "CPython {}.{}, ".format(*one.found.version) if one.found.version[0] else ""
        name = f"{one.found.shown} ({version}{_where(one.pids)})"
        if one.found.problem:
            fix = FIX_GONE if one.found.problem == GONE else FIX
            facts.append(note(f"{name}: lines are not known: {one.found.problem}", fix))
        else:
            facts.append(ok(f"{name}: lines of slow calls are known"))
    data = [
        {
            "path": one.found.shown,
            "version": ".".join(map(str, one.found.version)),
            "pids": list(one.pids),
            "problem": one.found.problem,
        }
        for one in found
    ]
    return Section("python", tuple(facts), data)


def _where(pids: Sequence[int]) -> str:
    if not pids:
        return "installed"
    rest = len(pids) - _PIDS_SHOWN
    more = f" and {rest} more" if rest > 0 else ""
    return f"in process {', '.join(map(str, pids[:_PIDS_SHOWN]))}{more}"

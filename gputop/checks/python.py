"""Python: which interpreters are here, and whether the lines of their programs are known."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gputop.checks.fact import Fact, Section, note, ok
from probes import elf, libraries
from probes.frames import interpreter, late


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter's file and the processes that have it mapped."""

    found: interpreter.Interpreter
    pids: tuple[int, ...]


def find(
    pids: Iterable[int] | None, environment: Mapping[str, str], prefixes: Iterable[Path] = ()
) -> list[Python]:
    """Every interpreter that these processes have mapped; for None all processes', and all installed ones."""
    users: dict[Path, set[int]] = {}
    for pid in libraries.all_pids() if pids is None else pids:
        for mapping in late.candidates(pid):
            path = Path(mapping.path)
            if not os.path.exists(path):
                path = Path(f"/proc/{pid}/root{mapping.path}")
            with contextlib.suppress(OSError):  # another user's root is closed to us
                users.setdefault(Path(os.path.realpath(path)), set()).add(pid)
    if pids is None:
        for path in interpreter.installed(environment, prefixes, None):
            users.setdefault(path, set())
    found = []
    for path, processes in users.items():
        with contextlib.suppress(OSError, elf.ElfError):
            read = interpreter.read(path)
            if read is not None:
                found.append(Python(read, tuple(sorted(processes - {os.getpid()}))))
    return found


def python_section(found: Sequence[Python]) -> Section:
    """A line for each interpreter."""
    facts: list[Fact] = []
    for one in found:
        name = f"CPython {one.found.version[0]}.{one.found.version[1]}"
        if one.found.problem:
            facts.append(note(f"{one.found.shown}: lines are not known: {one.found.problem}"))
        else:
            facts.append(ok(f"{one.found.shown} ({name}): lines of costly calls are known"))
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

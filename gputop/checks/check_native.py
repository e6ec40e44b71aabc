"""CUDA programs without Python: whether their functions have names and keep frame pointers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gputop.checks.fact import Fact, Section, note, ok
from probes.code import elf, interpreter, libraries, parsing
from probes.files import untrusted_files

_KEEPS = 0.5  # share of the sampled functions


@dataclass(frozen=True, slots=True)
class ProgramCheck:
    """A program's file."""

    path: str  # path, as its processes see it
    pids: tuple[int, ...]  # its processes
    functions: int  # number of functions with names
    keeping: float  # share of them that keeps a frame pointer, 0 to 1


def find(pids: Iterable[int]) -> list[ProgramCheck]:
    """Return the programs of these processes that are not Python and whose files are readable."""
    users: dict[str, list[int]] = {}
    for pid in sorted(pids):
        with contextlib.suppress(OSError):
            users.setdefault(os.readlink(f"/proc/{pid}/exe"), []).append(pid)
    found = []
    for path, processes in users.items():
        if interpreter.may_be(libraries.file_name(path)):
            continue
        with contextlib.suppress(OSError, elf.ElfError):
            target = libraries.executable(processes[0])
            if target is None:
                continue
            with untrusted_files.opened(target.path, target.identity) as file:
                found.append(ProgramCheck(path, tuple(processes), *parsing.names_in(file, path)))
    return found


def native_section(found: Sequence[ProgramCheck]) -> Section:
    data = [
        {
            "path": one.path,
            "pids": list(one.pids),
            "functions": one.functions,
            "frame_pointers": round(one.keeping, 2),
        }
        for one in found
    ]
    none = note("no program without Python uses CUDA now")
    return Section("native", tuple(map(_fact, found)) or (none,), data)


def _fact(one: ProgramCheck) -> Fact:
    if not one.functions:
        return note(
            f"{one.path}: stripped: offsets only, for addr2line",
            "keep its symbols: link without -s, do not strip",
        )
    if one.keeping < _KEEPS:
        text = f"{one.path}: the function that makes a slow call is known, its callers seldom"
        return note(text, "to see its callers, compile it with -fno-omit-frame-pointer")
    return ok(f"{one.path}: the functions that make slow calls are known, and their callers")

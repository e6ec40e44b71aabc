"""Reads an interpreter's file: its version, its runtime structure, where to probe it."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from probes.code import elf
from probes.code.layout import (
    LAYOUTS,
    NO_FRAME,
    OWN_BYTES,
    OWN_OFFSETS,
    Layout,
    fits,
    free_threaded,
    own_layout,
)
from probes.code.thread_variable import Variable, returned
from probes.files.untrusted_files import File

_NAME = re.compile(r"libpython3(\.\d+)?[a-z]*\.so[\d.]*|python3?(\.\d+)?[a-z]*")
_PYPY = re.compile(r"libpypy3[\d.]*-c\.so[\d.]*|pypy3?[\d.]*(-c)?")
_MINOR = re.compile(r"python3\.(\d+)")
_STATE = "PyGILState_GetThisThreadState"
_SYMBOLS = ("_PyRuntime", "PyCode_Type", "Py_RunMain", "Py_Version", _STATE)
_TP_DEALLOC = 48
_SIZES_3_10 = {672}  # of _PyRuntime; later versions export their number
_COOKIE = b"xdebugpy"  # the first bytes of the runtime structure of 3.13 and later


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter's file."""

    shown: str  # path as its user knows it
    version: tuple[int, int]  # as ``(3, 12)``; (0, 0) when it is not known
    problem: str = ""  # why its lines are unknown; "" when they are known
    layout: Layout | None = None  # where its structures lie; None with a problem
    runtime: int = 0  # address of ``_PyRuntime`` in the file, before it is loaded
    code_type: int = 0  # of ``PyCode_Type``
    run_main: int = 0  # of ``Py_RunMain``; 0 in a program that embeds Python without it
    run_main_offset: int = 0  # its place in the file, for a probe; 0 where there is none
    code_free: int = 0  # of the deallocator of code objects
    free_offset: int = 0  # its place in the file
    # state_module, state_offset: of the variable with a thread's state, as in ``Variable``, from 3.15 on
    state_module: int = 0
    state_offset: int = 0


@functools.lru_cache(4096)  # called for whatever any process of the machine maps
def may_be(name: str) -> bool:
    """True if a file has the name of an interpreter or its library."""
    return _NAME.fullmatch(name) is not None or _PYPY.fullmatch(name) is not None


def read(file: File, shown: str) -> Interpreter | None:
    """The interpreter in a file; None when there is none, as in the small program that loads libpython.

    Raises:
        elf.ElfError, OSError: The file cannot be read.
    """
    return elf.parsed(file, lambda image: _parse(image, shown))


def _parse(image: elf.Image, shown: str) -> Interpreter | None:
    if _PYPY.fullmatch(os.path.basename(shown)):
        return Interpreter(shown, (0, 0), "PyPy keeps its frames in another way")
    found = image.objects(_SYMBOLS)
    runtime = found.get("_PyRuntime")
    if runtime is None:
        return None
    version = _version(image, found, shown)
    name = "CPython {}.{}".format(*version)

    def refused(problem: str) -> Interpreter:
        return Interpreter(shown, version, problem)

    if image.machine != elf.X86_64:
        return refused("lines are known on x86-64 only")
    if version == (0, 0):
        return refused("its version is not known")
    if version[1] not in LAYOUTS:
        return refused(f"{name} is not known: 3.{min(LAYOUTS)} to 3.{max(LAYOUTS)} are")
    layout = LAYOUTS[version[1]]
    own = image.read(runtime.address, OWN_BYTES)
    if own[:8] == _COOKIE and len(own) == OWN_BYTES:
        if free_threaded(own):
            name += " without the GIL"
        if (own[11], own[10]) != version or version[1] not in OWN_OFFSETS:
            return refused(f"it identifies as CPython {own[11]}.{own[10]}")
        from_own = own_layout(own, version[1])
        if from_own is None:
            return refused(f"{name} is not known")
        layout = from_own
        if not fits(layout):
            return refused(f"this {name} keeps its frames in another way")
    if "PyCode_Type" not in found:
        return refused("its symbols are stripped")
    code_type = found["PyCode_Type"].address
    code_free = image.pointer(code_type + _TP_DEALLOC + layout.head)
    free = image.file_offset(code_free)
    if free is None:
        return refused("the deallocator of its code objects is not found")
    state: Variable | None = Variable(0, 0)
    if layout.key == NO_FRAME:
        state = returned(image, found[_STATE].address) if _STATE in found else None
    if state is None:
        return refused("where its threads keep their state is not found in its code")
    run_main = found["Py_RunMain"].address if "Py_RunMain" in found else 0
    start = (run_main and image.file_offset(run_main)) or 0
    return Interpreter(
        shown,
        version,
        "",
        layout,
        runtime.address,
        code_type,
        run_main,
        start,
        code_free,
        free,
        state.module,
        state.offset,
    )


def _version(image: elf.Image, found: Mapping[str, elf.Object], shown: str) -> tuple[int, int]:
    if "Py_Version" in found:
        number = int.from_bytes(image.read(found["Py_Version"].address, 4), "little")
        return number >> 24, number >> 16 & 0xFF
    if found["_PyRuntime"].size in _SIZES_3_10:
        return 3, 10
    match = _MINOR.search(image.soname()) or _MINOR.search(os.path.basename(shown))
    return (3, int(match[1])) if match else (0, 0)


def installed(
    environment: Mapping[str, str], prefixes: Iterable[Path], program: Path | None
) -> Iterator[Path]:
    """Files of interpreters that a command may run in: its own, and those of search paths."""
    programs = [program] if program is not None else []
    folders = [Path(folder) for folder in environment.get("PATH", "").split(":") if folder.startswith("/")]
    for folder in (*folders, *(prefix / "bin" for prefix in prefixes)):
        programs += [folder / name for name in ("python3", "python")]
    places = [Path(folder) for folder in environment.get("LD_LIBRARY_PATH", "").split(":") if folder]
    seen: set[Path] = set()
    for name in programs:
        try:
            real = name.resolve(strict=True)
        except (OSError, RuntimeError):
            continue
        if real not in seen:
            seen.add(real)
            yield real
            places.append(real.parent.parent / "lib")
    for place in dict.fromkeys((*places, Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib64"))):
        for found in sorted(place.glob("libpython3.*.so*")):
            real = Path(os.path.realpath(found))
            if real not in seen:
                seen.add(real)
                yield real

"""ELF files: headers, tables and names that say anything, read as libraries, programs and interpreters."""

from __future__ import annotations

import contextlib
import struct
import sysconfig
import tempfile
from functools import cache
from pathlib import Path
from random import Random

import numpy as np

from probes.api import DRIVER, RUNTIME
from probes.code import elf, interpreter, libraries
from probes.code.layout import OWN_BYTES, OWN_OFFSETS, row_bytes
from probes.code.libraries import Target as Library
from probes.code.symbols import Functions
from probes.files import untrusted_files
from probes.stacks import symbol_lookup
from tests import hostile_elf
from tests.fuzz import mutation
from tests.fuzz.target import Target

_HEAD, _SEGMENT, _SECTION = 64, 56, 64
_SYMBOL = elf.SYMBOL.itemsize
_HEAD_FIELDS = ((16, 2), (18, 2), (24, 8), (32, 8), (40, 8), (54, 2), (56, 2), (58, 2), (60, 2), (62, 2))
_SEGMENT_FIELDS = ((0, 4), (4, 4), *((at, 8) for at in range(8, 56, 8)))
_SECTION_FIELDS = ((0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 8), (40, 4), (44, 4), (48, 8), (56, 8))
_SYMBOL_FIELDS = ((0, 4), (4, 1), (5, 1), (6, 2), (8, 8), (16, 8))
_KINDS = (1, 2, 3, 4, 5, 6, 7, 11, 14, 0x6474E550)
_NAMES = (
    b"\0_PyRuntime\0PyCode_Type\0Py_RunMain\0Py_Version\0PyGILState_GetThisThreadState\0cudaMalloc\0cuLaunchKernel\0"
    b"cudaLaunchKernel\0_ZN4some4partEi\0main\0_dl_debug_state\0"
)
_PADDING, _APART = 4096, 480
_RETURNS = bytes.fromhex("488d3d00010000 e800000000 488b8028000000 c3")  # a variable of the thread
_MOST_BYTES = 60_000
_PLACES = 12  # of a file that are looked up


@cache
def _seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "made"
        made = [
            hostile_elf.write(path, symbols=9, names=_NAMES, kind=kind, padding=_PADDING).read_bytes()
            for kind in (hostile_elf.DYNSYM, hostile_elf.SYMTAB)
        ]
    named = [_named(data) for data in made]
    folder = Path(sysconfig.get_path("stdlib")) / "lib-dynload"
    real = sorted((path.stat().st_size, path) for path in folder.glob("*.so"))
    return [
        *named,
        *(_interpreter(data, minor) for data in named for minor in OWN_OFFSETS),
        *(path.read_bytes() for _, path in real[:3]),
    ]


def _named(data: bytes) -> bytes:
    """Each symbol with a name of its own, each somewhere else."""
    changed, names = bytearray(data), [place + 1 for place, byte in enumerate(_NAMES[:-1]) if byte == 0]
    for row, at in enumerate(_symbols_at(data)):
        struct.pack_into("<I", changed, at, names[row % len(names)])
        struct.pack_into("<QQ", changed, at + 8, len(data) - _PADDING + _APART * row, 672 if row == 0 else 16)
    struct.pack_into("<QQ", changed, _HEAD + 32, len(data), len(data))  # the segment has all of the file
    return bytes(changed)


def _interpreter(data: bytes, minor: int) -> bytes:
    """With what an interpreter's file has, and a runtime structure that says of itself what later ones do."""
    changed = bytearray(data)
    runtime, code_type, run_main, version, state = range(
        len(data) - _PADDING, len(data) - _PADDING + 5 * _APART, _APART
    )
    own = np.zeros(OWN_BYTES // 8, "<u8")
    own[:2] = int.from_bytes(b"xdebugpy", "little"), 0x030000F0 | minor << 16
    own[3:] = np.arange(OWN_BYTES // 8 - 3) % 9 * 8
    changed[runtime : runtime + OWN_BYTES] = own.tobytes()
    struct.pack_into("<Q", changed, code_type + 48, run_main)
    struct.pack_into("<I", changed, version, 0x030000F0 | minor << 16)
    changed[state : state + len(_RETURNS)] = _RETURNS
    return bytes(changed)


def _symbols_at(data: bytes) -> list[int]:
    """Where in the file its symbols are."""
    found: list[int] = []
    with contextlib.suppress(struct.error):
        offset, (count,) = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)
        for row in range(min(count, 64)):
            kind = struct.unpack_from("<I", data, offset + row * _SECTION + 4)[0]
            at, size = struct.unpack_from("<QQ", data, offset + row * _SECTION + 24)
            if kind in (hostile_elf.DYNSYM, hostile_elf.SYMTAB):
                found += range(at, min(at + size, len(data) - _SYMBOL), _SYMBOL)
    return found


def _mutate(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        what = random.randrange(10)
        if what < 8 and len(changed) >= _HEAD and (field := _field(changed, what, random)) is not None:
            at, size = field
            old = int.from_bytes(changed[at : at + size], "little")
            kind = what in (2, 3, 4) and size == 4 and random.random() < 0.5
            value = random.choice(_KINDS) if kind else _number(old, len(changed), random)
            changed[at : at + size] = mutation.packed(value, size)
        else:
            changed = bytearray(mutation.some_bytes(bytes(changed), random))
    return bytes(changed[:_MOST_BYTES])


def _number(old: int, size: int, random: Random) -> int:
    near = size + random.randrange(-100, 100), random.randrange(size + 1)
    return random.choice((mutation.number(old, random), *near))


def _field(data: bytearray, what: int, random: Random) -> tuple[int, int] | None:
    """(place, bytes) of a number of the headers or tables, or of what they lead to."""
    segments, sections = struct.unpack_from("<QQ", data, 32)
    ph_count, sh_count = struct.unpack_from("<H", data, 56)[0], struct.unpack_from("<H", data, 60)[0]
    fields, base = _HEAD_FIELDS, 0
    if what in (1, 2) and ph_count:
        fields, base = _SEGMENT_FIELDS, segments + _SEGMENT * random.randrange(min(ph_count, 64))
    elif what in (3, 4) and sh_count:
        fields, base = _SECTION_FIELDS, sections + _SECTION * random.randrange(min(sh_count, 64))
    elif what == 5 and (symbols := _symbols_at(bytes(data))):
        fields, base = _SYMBOL_FIELDS, random.choice(symbols)
    elif what in (6, 7):  # in what a segment shows: notes, the dynamic section, unwind tables, the runtime
        start, size = (
            segments + _SEGMENT * random.randrange(max(min(ph_count, 64), 1)),
            random.choice((1, 4, 8)),
        )
        if start + 40 > len(data):
            return None
        begin, long = (
            struct.unpack_from("<Q", data, start + 8)[0],
            struct.unpack_from("<Q", data, start + 32)[0],
        )
        fields, base = ((0, size),), begin + random.randrange(max(min(long, len(data)), 1)) // size * size
    at, size = random.choice(fields)
    return (base + at, size) if base + at + size <= len(data) else None


# -- reading it --------------------------------------------------------------------------------------


def _run(data: bytes, folder: Path) -> None:
    path = folder / "libcudart.so.12"
    path.write_bytes(data)
    with untrusted_files.opened(path) as file:
        for kind in (
            Library(path, str(path), file.identity, layer, 12, static=static)
            for layer, static in ((RUNTIME, False), (DRIVER, False), (RUNTIME, True))
        ):
            with contextlib.suppress(elf.ElfError):
                libraries.probes_of(kind, file)
        for shown in ("/usr/bin/python3.13", "/usr/lib/libpython3.12.so.1.0", "/x/program"):
            with contextlib.suppress(elf.ElfError):
                found = interpreter.read(file, shown)
                if found is not None and found.layout is not None:
                    _as_the_kernel_is_told(found)
    _functions(path)


def _as_the_kernel_is_told(found: interpreter.Interpreter) -> None:
    assert found.layout is not None
    row_bytes(
        found.layout,
        runtime=found.runtime,
        code_type=found.code_type,
        run_main=found.run_main,
        state_module=found.state_module,
        state_offset=found.state_offset,
        code_free=found.code_free,
    )


def _functions(path: Path) -> None:
    try:
        functions = Functions(untrusted_files.opened(path))
    except elf.ElfError:
        return
    try:
        functions.keeping()
        size = path.stat().st_size
        places = [(place * size // _PLACES, exact) for place in range(_PLACES) for exact in (False, True)]
        for found in functions.answers(places):
            if found is not None and symbol_lookup.checked_answer(list(found)) is None:
                raise AssertionError("an answer that is not taken for one")
        _each(functions)
    finally:
        functions.close()


def _each(functions: Functions) -> None:
    for address in functions.begins[:_PLACES].tolist():
        with contextlib.suppress(elf.ElfError):
            found = functions.function(int(address))
            if found is not None and len(found[0]) > elf.LONGEST_NAME:
                raise AssertionError("a name that is longer than any")


TARGET = Target(_seeds, _mutate, _run)

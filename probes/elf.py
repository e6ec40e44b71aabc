"""What gputop needs of an ELF file: exported functions with their file offsets, soname, build id."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4
_SHT_DYNSYM, _SHT_NOTE = 11, 7
_DT_STRTAB, _DT_SYMTAB, _DT_SONAME, _DT_STRSZ = 5, 6, 14, 10
_STT_FUNC = 2
_NT_GNU_BUILD_ID = 3
MACHINES = {62: "x86_64", 183: "aarch64"}


class ElfError(Exception):
    """The file is not an ELF library that can be probed."""


@dataclass(frozen=True, slots=True)
class Library:
    """An ELF file's exported functions.

    Attributes:
        functions: Symbol name -> file offset of its first instruction.
        soname: DT_SONAME, or "".
        build_id: GNU build id in hex, or "".
        machine: x86_64, aarch64 or the ELF machine number.
    """

    functions: dict[str, int]
    soname: str
    build_id: str
    machine: str


class _Image:
    def __init__(self, data: mmap.mmap | bytes) -> None:
        self.data = data
        if len(data) < 64 or data[:4] != b"\x7fELF" or data[4] != 2 or data[5] != 1:
            raise ElfError("not a 64-bit little-endian ELF file")
        self.machine = struct.unpack_from("<H", data, 18)[0]
        ph_offset, sh_offset = struct.unpack_from("<QQ", data, 32)
        ph_size, ph_count, sh_size, sh_count = struct.unpack_from("<HHHH", data, 54)
        self.segments = [
            struct.unpack_from("<IIQQQQQQ", data, ph_offset + ph_size * row) for row in range(ph_count)
        ]
        self.sections = [
            struct.unpack_from("<IIQQQQIIQQ", data, sh_offset + sh_size * row) for row in range(sh_count)
        ]

    def file_offset(self, address: int) -> int | None:
        for kind, _flags, offset, start, _physical, in_file, _in_memory, _align in self.segments:
            if kind == _PT_LOAD and start <= address < start + in_file:
                return int(address - start + offset)
        return None

    def string(self, table: int, size: int, offset: int) -> str:
        if not 0 <= offset < size:
            return ""
        end = self.data.find(b"\0", table + offset, table + size)
        return self.data[table + offset : end].decode(errors="replace") if end >= 0 else ""

    def dynamic_symbols(self) -> tuple[int, int, int, int]:
        """(file offset of the symbols, count, file offset of their strings, size of the strings)."""
        for section in self.sections:
            if section[1] == _SHT_DYNSYM and section[9]:
                strings = self.sections[section[6]]
                return section[4], section[5] // section[9], strings[4], strings[5]
        raise ElfError("no dynamic symbols")

    def soname(self) -> str:
        tags: dict[int, int] = {}
        for kind, _flags, offset, _address, _physical, size, _memory, _align in self.segments:
            if kind == _PT_DYNAMIC:
                for position in range(offset, offset + size, 16):
                    tag, value = struct.unpack_from("<QQ", self.data, position)
                    tags.setdefault(tag, value)
        table = self.file_offset(tags.get(_DT_STRTAB, 0))
        if table is None or _DT_SONAME not in tags:
            return ""
        return self.string(table, tags.get(_DT_STRSZ, 0), tags[_DT_SONAME])

    def build_id(self) -> str:
        for kind, _flags, offset, _address, _physical, size, _memory, _align in self.segments:
            position = offset
            while kind == _PT_NOTE and position + 12 <= offset + size:
                name_size, desc_size, note = struct.unpack_from("<III", self.data, position)
                desc = position + 12 + (name_size + 3 & ~3)
                if note == _NT_GNU_BUILD_ID:
                    return self.data[desc : desc + desc_size].hex()
                position = desc + (desc_size + 3 & ~3)
        return ""


def read(path: Path) -> Library:
    """Reads the exported functions of a shared library or executable.

    Raises:
        ElfError: Not an ELF file, or damaged, or without dynamic symbols.
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise ElfError("an empty file") from error
        with data:
            try:
                return _parse(_Image(data))
            except (struct.error, IndexError) as error:
                raise ElfError("a damaged ELF file") from error


def _parse(image: _Image) -> Library:
    start, count, strings, strings_size = image.dynamic_symbols()
    functions: dict[str, int] = {}
    for row in range(count):
        name, info, _other, section, value, _size = struct.unpack_from(
            "<IBBHQQ", image.data, start + 24 * row
        )
        if info & 0xF != _STT_FUNC or section == 0:
            continue
        offset = image.file_offset(value)
        if offset is not None:
            functions[image.string(strings, strings_size, name)] = offset
    machine = MACHINES.get(image.machine, str(image.machine))
    return Library(functions, image.soname(), image.build_id(), machine)

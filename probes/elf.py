"""What gputop needs of an ELF file: functions with their places in the file, soname, build id."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4
_SHT_SYMTAB, _SHT_RELA, _SHT_DYNSYM = 2, 4, 11
_DT_STRTAB, _DT_SYMTAB, _DT_SONAME, _DT_STRSZ = 5, 6, 14, 10
_STT_FUNC = 2
_NT_GNU_BUILD_ID = 3
SYMBOL: np.dtype[np.void] = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_RELOCATION: np.dtype[np.void] = np.dtype([("offset", "<u8"), ("info", "<u8"), ("addend", "<i8")])
_RELATIVE = 8  # R_X86_64_RELATIVE
X86_64 = 62
MACHINES = {X86_64: "x86_64", 183: "aarch64"}


class ElfError(Exception):
    """The file is not an ELF library that can be probed."""


@dataclass(frozen=True, slots=True)
class Library:
    """An ELF file's functions.

    Attributes:
        functions: Symbol name -> file offset of its first instruction.
        soname: DT_SONAME, or "".
        build_id: GNU build id in hex, or "".
        machine: x86_64, aarch64 or the ELF machine number.
        sizes_at: File offset of a function -> bytes of its code; 0 where the file does not say.
    """

    functions: dict[str, int]
    soname: str
    build_id: str
    machine: str
    sizes_at: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Object:
    """A symbol of any type: its address before the file is loaded somewhere, and its size."""

    address: int
    size: int


class Image:
    """An ELF file in memory.

    Raises:
        ElfError: It is none, or not one of 64 bits.
    """

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
        """Where in the file an address comes from."""
        for kind, _flags, offset, start, _physical, in_file, _in_memory, _align in self.segments:
            if kind == _PT_LOAD and start <= address < start + in_file:
                return int(address - start + offset)
        return None

    def address(self, offset: int) -> int | None:
        """The address that a place in the file has before it is loaded somewhere."""
        for kind, _flags, begin, start, _physical, in_file, _in_memory, _align in self.segments:
            if kind == _PT_LOAD and begin <= offset < begin + in_file:
                return int(offset - begin + start)
        return None

    def string(self, table: int, size: int, offset: int) -> str:
        """A text of a table of strings."""
        if not 0 <= offset < size:
            return ""
        end = self.data.find(b"\0", table + offset, table + size)
        return self.data[table + offset : end].decode(errors="replace") if end >= 0 else ""

    def read(self, address: int, size: int) -> bytes:
        """What the file has at an address; empty where it has nothing."""
        offset = self.file_offset(address)
        return b"" if offset is None else bytes(self.data[offset : offset + size])

    def pointer(self, address: int) -> int:
        """The address that a pointer in the file will hold, as if the file were loaded at 0."""
        for section in self.sections:
            if section[1] == _SHT_RELA and section[4] + section[5] <= len(self.data):
                count = section[5] // _RELOCATION.itemsize
                rows = np.frombuffer(self.data, _RELOCATION, count, section[4]).copy()
                rows = rows[(rows["offset"] == address) & (rows["info"] & 0xFFFFFFFF == _RELATIVE)]
                if len(rows):
                    return int(rows["addend"][0])
        return int.from_bytes(self.read(address, 8), "little")

    def objects(self, names: Collection[str]) -> dict[str, Object]:
        """Those of these symbols that are defined here and exported, or else local."""
        found: dict[str, Object] = {}
        for kind in (_SHT_DYNSYM, _SHT_SYMTAB):
            for symbols, strings, size in self.symbols(kind):
                text = bytes(self.data[strings : strings + size])
                for name in names:
                    place = text.find(b"\0" + name.encode() + b"\0") + 1
                    rows = symbols[(symbols["name"] == place) & (symbols["section"] != 0)]
                    if place and len(rows):
                        found.setdefault(name, Object(int(rows["value"][0]), int(rows["size"][0])))
        return found

    def symbols(self, kind: int) -> Iterator[tuple[npt.NDArray[np.void], int, int]]:
        """(symbols, file offset of their strings, size of the strings) of each table of that kind."""
        for section in self.sections:
            if section[1] == kind and section[9]:
                strings = self.sections[section[6]]
                if section[4] + section[5] > len(self.data):
                    raise ElfError("a damaged ELF file")
                count = section[5] // SYMBOL.itemsize
                # a copy: views of the file would keep it from being closed
                table = np.frombuffer(self.data, SYMBOL, count, section[4]).copy()
                yield table, strings[4], strings[5]

    def soname(self) -> str:
        """DT_SONAME, or empty."""
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
        """The GNU build id in hex, or empty."""
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
    return _read(path, (_SHT_DYNSYM,), "")


def read_defined(path: Path, prefix: str) -> Library:
    """Reads the functions of a file whose names begin so, exported or not; none where it is stripped.

    Raises:
        ElfError: Not an ELF file, or damaged.
        OSError: The file cannot be read.
    """
    return _read(path, (_SHT_SYMTAB, _SHT_DYNSYM), prefix)


def contains(path: Path, text: bytes) -> bool:
    """Whether a file holds these bytes. Raises OSError."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(text) >= 0


def _read(path: Path, tables: tuple[int, ...], prefix: str) -> Library:
    with path.open("rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise ElfError("an empty file") from error
        with data:
            try:
                return _parse(Image(data), tables, prefix)
            except (struct.error, IndexError, ValueError, OverflowError) as error:
                raise ElfError("a damaged ELF file") from error


def _parse(image: Image, kinds: tuple[int, ...], prefix: str) -> Library:
    functions: dict[str, int] = {}
    sizes: dict[int, int] = {}
    tables = [table for kind in kinds for table in image.symbols(kind)]
    if not tables and not prefix:
        raise ElfError("no dynamic symbols")
    for symbols, strings, strings_size in tables:
        for row in _beginning(image, _functions(symbols), strings, strings_size, prefix.encode()):
            offset = image.file_offset(int(row["value"]))
            name = image.string(strings, strings_size, int(row["name"]))
            if offset is not None and name.startswith(prefix):
                functions[name] = offset
                sizes[offset] = int(row["size"])
    machine = MACHINES.get(image.machine, str(image.machine))
    return Library(functions, image.soname(), image.build_id(), machine, sizes)


def _functions(symbols: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Those that are defined here; local ones too, as linkers make what is hidden in a static library."""
    defined: npt.NDArray[np.void] = symbols[(symbols["info"] & 0xF == _STT_FUNC) & (symbols["section"] != 0)]
    return defined


def _beginning(
    image: Image, symbols: npt.NDArray[np.void], strings: int, size: int, prefix: bytes
) -> npt.NDArray[np.void]:
    """Symbols whose names may begin with ``prefix``: an executable can have a million others."""
    if not prefix or not len(symbols):
        return symbols
    text = np.frombuffer(image.data[strings : strings + size], np.uint8)
    first = symbols["name"] < size
    for place, letter in enumerate(prefix):
        at = np.minimum(symbols["name"].astype(np.int64) + place, max(size - 1, 0))
        first &= text[at] == letter
    return symbols[first]

"""Reads ELF files: functions with their places in the file, soname, build id."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from probes.files.untrusted_files import File

_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4
_SHT_SYMTAB, _SHT_RELA, _SHT_DYNSYM = 2, 4, 11
_DT_STRTAB, _DT_SONAME, _DT_STRSZ = 5, 14, 10
_STT_FUNC = 2
_NT_GNU_BUILD_ID = 3
SYMBOL: np.dtype[np.void] = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_RELOCATION: np.dtype[np.void] = np.dtype([("offset", "<u8"), ("info", "<u8"), ("addend", "<i8")])
_RELATIVE = 8  # R_X86_64_RELATIVE
X86_64 = 62
MACHINES = {X86_64: "x86_64", 183: "aarch64"}

# Far above any known library, and little enough to read: a file may claim anything
MOST_SEGMENTS = 512  # a large one has 14
MOST_SECTIONS = 8192  # 45
MOST_SYMBOLS = 2_000_000  # of one table; libtorch_cuda has 600,000
MOST_FUNCTIONS = 100_000  # whose names are read; libnccl has 3,000, libcuda 5,000
MOST_TEXT = 32 << 20  # bytes of these names; they may overlap in the file
MOST_STRINGS = 64 << 20  # bytes of names of a table
MOST_RELOCATIONS = 64 << 20  # bytes of all tables together; CPython's have 600 KB
LONGEST_NAME = 4096
MOST_SEARCHED = 1 << 30  # bytes that are searched for a text
_LAST, _FARTHEST = (1 << 64) - 1, 1 << 63  # an address; a place in a file is before this one
_DYNAMIC_BYTES, _NOTE_BYTES = 1 << 16, 1 << 16

T = TypeVar("T")


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
        sizes_at: File offset of a function -> bytes of its code; 0 where the file has none.
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
    """An ELF file, read as it is needed.

    Raises:
        ElfError: Not an ELF file of 64 bits, or with more of something than any real one.
    """

    def __init__(self, file: File) -> None:
        self.file = file
        head = file.read(0, 64)
        if len(head) < 64 or head[:4] != b"\x7fELF" or head[4] != 2 or head[5] != 1:
            raise ElfError("not a 64-bit little-endian ELF file")
        self.machine = struct.unpack_from("<H", head, 18)[0]
        ph_offset, sh_offset = struct.unpack_from("<QQ", head, 32)
        ph_size, ph_count, sh_size, sh_count = struct.unpack_from("<HHHH", head, 54)
        if ph_count > MOST_SEGMENTS or sh_count > MOST_SECTIONS:
            raise ElfError(f"{ph_count} segments and {sh_count} sections are more than a library has")
        self.segments = self._rows("<IIQQQQQQ", ph_offset, ph_size, ph_count)
        self.sections = self._rows("<IIQQQQIIQQ", sh_offset, sh_size, sh_count)
        self._loaded = [segment for segment in self.segments if segment[0] == _PT_LOAD]

    def _rows(self, form: str, offset: int, size: int, count: int) -> list[tuple[int, ...]]:
        least = struct.calcsize(form)
        if count and size < least:
            raise ElfError("a damaged ELF file")
        data = self.bytes_at(offset, size * count)
        return [struct.unpack_from(form, data, size * row) for row in range(count)]

    def bytes_at(self, offset: int, size: int) -> bytes:
        """Exactly ``size`` bytes of the file. Raises ElfError where it has fewer."""
        data = self.file.read(offset, size)
        if len(data) != size:
            raise ElfError("a damaged ELF file")
        return data

    def numbers(self, form: str, offset: int) -> tuple[int, ...]:
        """Numbers at a place of the file, in a format of ``struct``. Raises ElfError."""
        return struct.unpack(form, self.bytes_at(offset, struct.calcsize(form)))

    def file_offset(self, address: int) -> int | None:
        """The place in the file of an address; None where the file has none."""
        for _kind, _flags, offset, start, _physical, in_file, _in_memory, _align in self._loaded:
            if start <= address < start + in_file:
                return int(address - start + offset)
        return None

    def file_offsets(self, addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """The places of many addresses, -1 for None: as long as it takes with one segment."""
        spans = [
            (segment[3], min(segment[3] + segment[5], _LAST), segment[2])
            for segment in self._loaded
            if segment[3] < _LAST
        ]
        # where a segment begins or ends another one may count; in between all are of the first that holds it
        bounds = np.array(sorted({0, _LAST, *(edge for span in spans for edge in span[:2])}), np.uint64)
        shift = np.zeros(len(bounds), np.uint64)  # by which the place in the file lies behind the address
        inside = np.zeros(len(bounds), np.bool_)
        for start, end, offset in reversed(spans):
            covered = slice(*np.searchsorted(bounds, np.array([start, end], np.uint64)).tolist())
            shift[covered], inside[covered] = (offset - start) & _LAST, offset + end - start < _FARTHEST
        part = np.searchsorted(bounds, addresses, side="right") - 1
        return np.where(inside[part], (addresses + shift[part]).astype(np.int64), -1)

    def address(self, offset: int) -> int | None:
        """The address of a place in the file, before the file is loaded."""
        for _kind, _flags, begin, start, _physical, in_file, _in_memory, _align in self._loaded:
            if begin <= offset < begin + in_file:
                return int(offset - begin + start)
        return None

    def string(self, table: int, size: int, offset: int) -> str:
        """A text of a string table; "" where it has none of a sensible length."""
        if not 0 <= offset < size:
            return ""
        text, end, _rest = self.file.read(table + offset, min(size - offset, LONGEST_NAME)).partition(b"\0")
        return text.decode(errors="replace") if end else ""

    def read(self, address: int, size: int) -> bytes:
        """The file's bytes at an address; empty where it has none."""
        offset = self.file_offset(address)
        return b"" if offset is None else self.file.read(offset, size)

    def pointer(self, address: int) -> int:
        """The address that a pointer in the file will hold, as if the file were loaded at 0."""
        room = MOST_RELOCATIONS
        for section in self.sections:
            if section[1] == _SHT_RELA:
                room -= section[5]
                if room < 0:
                    raise ElfError("more relocations than a library has")
                count = section[5] // _RELOCATION.itemsize
                rows = np.frombuffer(self.bytes_at(section[4], count * _RELOCATION.itemsize), _RELOCATION)
                rows = rows[(rows["offset"] == address) & (rows["info"] & 0xFFFFFFFF == _RELATIVE)]
                if len(rows):
                    return int(rows["addend"][0])
        return int.from_bytes(self.read(address, 8), "little")

    def objects(self, names: Collection[str]) -> dict[str, Object]:
        """The symbols of these names that are defined here: exported ones, or else local ones."""
        found: dict[str, Object] = {}
        for kind in (_SHT_DYNSYM, _SHT_SYMTAB):
            for symbols, strings, size in self.symbols(kind):
                text = self.strings(strings, size)
                for name in names:
                    place = text.find(b"\0" + name.encode() + b"\0") + 1
                    rows = symbols[(symbols["name"] == place) & (symbols["section"] != 0)]
                    if place and len(rows):
                        found.setdefault(name, Object(int(rows["value"][0]), int(rows["size"][0])))
        return found

    def strings(self, offset: int, size: int) -> bytes:
        """A string table. Raises ElfError where it is larger than ``MOST_STRINGS``."""
        if size > MOST_STRINGS:
            raise ElfError(f"{size >> 20} MB of names are more than a library has")
        return self.bytes_at(offset, size)

    def symbols(self, kind: int) -> Iterator[tuple[npt.NDArray[np.void], int, int]]:
        """(symbols, file offset of their strings, size of the strings) of the table of a kind, if any.

        A file has at most one of a kind (System V ABI, chapter 4); of several the first counts.
        """
        for section in self.sections:
            if section[1] == kind and section[9]:
                if section[6] >= len(self.sections):
                    raise ElfError("a damaged ELF file")
                strings = self.sections[section[6]]
                count = section[5] // SYMBOL.itemsize
                if count > MOST_SYMBOLS:
                    raise ElfError(f"{count} symbols are more than a library has")
                table = np.frombuffer(self.bytes_at(section[4], count * SYMBOL.itemsize), SYMBOL)
                yield table, strings[4], strings[5]
                return

    def table_bytes(self) -> int:
        """Bytes of the file's symbol tables."""
        return sum(section[5] for section in self.sections if section[1] in (_SHT_SYMTAB, _SHT_DYNSYM))

    def soname(self) -> str:
        tags: dict[int, int] = {}
        for kind, _flags, offset, _address, _physical, size, _memory, _align in self.segments:
            if kind == _PT_DYNAMIC:
                data = self.file.read(offset, min(size, _DYNAMIC_BYTES))
                for tag, value in struct.iter_unpack("<QQ", data[: len(data) & ~15]):
                    tags.setdefault(tag, value)
        table = self.file_offset(tags.get(_DT_STRTAB, 0))
        if table is None or _DT_SONAME not in tags:
            return ""
        return self.string(table, tags.get(_DT_STRSZ, 0), tags[_DT_SONAME])

    def build_id(self) -> str:
        """The GNU build id in hex, or empty."""
        for kind, _flags, offset, _address, _physical, size, _memory, _align in self.segments:
            data = self.file.read(offset, min(size, _NOTE_BYTES)) if kind == _PT_NOTE else b""
            position = 0
            while position + 12 <= len(data):
                name_size, desc_size, note = struct.unpack_from("<III", data, position)
                desc = position + 12 + (name_size + 3 & ~3)
                if note == _NT_GNU_BUILD_ID:
                    return data[desc : desc + min(desc_size, 64)].hex()
                position = desc + (desc_size + 3 & ~3)
        return ""


def parsed(file: File, parse: Callable[[Image], T]) -> T:
    """``parse`` of a file; any damage to it is an ElfError. Raises OSError, too."""
    try:
        return parse(Image(file))
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise ElfError("a damaged ELF file") from error


def read(file: File) -> Library:
    """The exported functions of a shared library or executable.

    Raises:
        ElfError: Not an ELF file, or damaged, or without dynamic symbols.
        OSError: The file cannot be read.
    """
    return parsed(file, lambda image: _parse(image, (_SHT_DYNSYM,), ""))


def read_defined(file: File, prefix: str) -> Library:
    """The functions of a file whose names begin with ``prefix``, exported or not; none where it is stripped.

    Raises:
        ElfError: Not an ELF file, or damaged.
        OSError: The file cannot be read.
    """
    return parsed(file, lambda image: _parse(image, (_SHT_SYMTAB, _SHT_DYNSYM), prefix))


def contains(file: File, text: bytes) -> bool:
    """True if a file has these bytes in its first gigabyte. Raises OSError."""
    return any(text in data for data in file.chunks(MOST_SEARCHED, len(text) - 1))


def _parse(image: Image, kinds: tuple[int, ...], prefix: str) -> Library:
    functions: dict[str, int] = {}
    sizes: dict[int, int] = {}
    room = MOST_TEXT
    tables = [table for kind in kinds for table in image.symbols(kind)]
    if not tables and not prefix:
        raise ElfError("no dynamic symbols")
    for symbols, strings, strings_size in tables:
        text = image.strings(strings, strings_size)
        rows = _beginning(text, _functions(symbols), prefix.encode())
        if len(rows) > MOST_FUNCTIONS:
            raise ElfError(f"{len(rows)} functions are more than a library has")
        offsets = image.file_offsets(rows["value"])
        rows, offsets = rows[offsets >= 0], offsets[offsets >= 0]
        for offset, size, name_at in zip(
            offsets.tolist(), rows["size"].tolist(), rows["name"].tolist(), strict=True
        ):
            end = text.find(b"\0", name_at, name_at + LONGEST_NAME)
            if end > name_at:
                room -= end - name_at
                if room < 0:
                    raise ElfError("longer names than a library has")
                name = text[name_at:end].decode(errors="replace")
                functions[name] = offset
                sizes[offset] = size
    machine = MACHINES.get(image.machine, str(image.machine))
    return Library(functions, image.soname(), image.build_id(), machine, sizes)


def _functions(symbols: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Functions defined here, local ones too: linkers make those of hidden ones in a static library."""
    defined: npt.NDArray[np.void] = symbols[(symbols["info"] & 0xF == _STT_FUNC) & (symbols["section"] != 0)]
    return defined


def _beginning(text: bytes, symbols: npt.NDArray[np.void], prefix: bytes) -> npt.NDArray[np.void]:
    """Symbols whose names begin with ``prefix``: an executable can have a million others."""
    if not prefix or not len(symbols):
        return symbols
    letters = np.frombuffer(text, np.uint8)
    if not len(letters):
        return symbols[:0]
    first = symbols["name"].astype(np.int64) + len(prefix) <= len(letters)
    for place, letter in enumerate(prefix):
        at = np.minimum(symbols["name"].astype(np.int64) + place, len(letters) - 1)
        first &= letters[at] == letter
    return symbols[first]

"""The functions of a program's or library's file, by address: names, places, callers."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from probes.arrays import distinct
from probes.code import elf
from probes.code.framepointers import Caller, caller_at
from probes.files.untrusted_files import File

_SYMTAB, _DYNSYM = 2, 11
_FUNCTIONS = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
_SAMPLED = 200  # functions
_X86_CALL_SHIFTS = (48, 40, 32, 16, 8)
_BL, _BLR = (0xFC000000, 0x94000000), (0xFFFFFC1F, 0xD63F0000)


# address, name ("" for none), where the function begins, value of its Caller
Found = tuple[int, str, int, str]


class Functions:
    """An ELF file's functions. The file stays open until ``close``.

    Args:
        file: The file; it is this object's from here on, also where it raises.

    Raises:
        OSError: It cannot be read.
        elf.ElfError: It is none, or damaged.
    """

    def __init__(self, file: File) -> None:
        self._file = file
        try:
            self._version = file.version
            self._image = elf.parsed(file, lambda image: image)
            self._read()
        except (struct.error, IndexError, ValueError, OverflowError) as error:
            file.close()
            raise elf.ElfError("a damaged ELF file") from error
        except BaseException:
            file.close()
            raise

    @property
    def unchanged(self) -> bool:
        """True if the file was not written again: a new one does not match what was mapped."""
        return self._file.version == self._version

    def _read(self) -> None:
        parts: list[npt.NDArray[np.void]] = []
        tables: list[tuple[int, int]] = []
        for kind in (_DYNSYM, _SYMTAB):  # an exported name goes before a hidden one of the same function
            for symbols, strings, size in self._image.symbols(kind):
                kept = np.isin(symbols["info"] & 0xF, _FUNCTIONS) & (symbols["section"] != 0)
                part = symbols[kept & (symbols["size"] > 0)].copy()
                part["section"] = len(tables)
                parts.append(part)
                tables.append((strings, size))
        rows = np.concatenate(parts) if parts else np.zeros(0, elf.SYMBOL)
        order = np.argsort(rows["value"], kind="stable")
        rows = rows[order]
        self.begins, first = np.unique(rows["value"], return_index=True)
        rows = rows[first]
        self._tables = tables
        self._size, self._name = rows["size"].copy(), rows["name"].copy()
        self._table = rows["section"].astype(np.uint8)

    def __len__(self) -> int:
        return len(self.begins)

    def address(self, offset: int) -> int | None:
        """The address of a place in the file, before the file is loaded."""
        return self._image.address(offset)

    def function(self, address: int) -> tuple[str, int] | None:
        """(linker's name, where it begins) of the function there; None where no symbol covers it."""
        row = int(np.searchsorted(self.begins, np.uint64(address), side="right")) - 1
        if row < 0 or address >= int(self.begins[row]) + int(self._size[row]):
            return None
        strings, size = self._tables[int(self._table[row])]
        name = self._image.string(strings, size, int(self._name[row]))
        return (name, int(self.begins[row])) if name else None

    def answers(self, places: Iterable[tuple[int, bool]]) -> list[Found | None]:
        """The address, function and caller of each place.

        Args:
            places: (offset in the file, exact): where a thread was, else where a call returns to.
        """
        return [self._answer(offset, exact=exact) for offset, exact in places]

    def _answer(self, offset: int, *, exact: bool) -> Found | None:
        try:
            place = self.address(offset)
            if place is None or not (exact or self.is_behind_call(place)):
                return None
            inside = place if exact else place - 1  # a call may be the last instruction of its function
            function = self.function(inside)
            caller = self.caller(inside, function[1] if function else None, interrupted=exact)
        except (OSError, elf.ElfError, struct.error, IndexError, ValueError, OverflowError):  # it is damaged
            return None
        name, begin = function or ("", 0)
        return place, name, begin, caller.value

    def keeping(self) -> float:
        """The share of functions that keep a frame pointer in their middle, of a sample."""
        rows = distinct(np.linspace(0, len(self) - 1, min(len(self), _SAMPLED)).astype(np.int64)).tolist()
        middles = [(int(self.begins[row]) + int(self._size[row]) // 2, int(self.begins[row])) for row in rows]
        kept = [self.caller(middle, begin) is Caller.NEXT for middle, begin in middles]
        return sum(kept) / max(len(kept), 1)

    def is_behind_call(self, address: int) -> bool:
        """True if the instruction before an address is a call."""
        code = self._image.read(address - 8, 8)
        if len(code) < 8:
            return False
        word = int.from_bytes(code, "little")
        if self._image.machine != elf.X86_64:
            last = word >> 32
            return any(last & mask == call for mask, call in (_BL, _BLR))
        return code[3] == 0xE8 or any(word >> shift & 0x38FF == 0x10FF for shift in _X86_CALL_SHIFTS)

    def caller(self, address: int, function: int | None, *, interrupted: bool = False) -> Caller:
        """As ``framepointers.caller_at``."""
        return caller_at(self._image, address, function, interrupted=interrupted)

    def close(self) -> None:
        self._file.close()

"""Which functions keep a frame pointer, so that the next frame of the chain is their caller's.

By the exception tables (.eh_frame), which nearly all code has; without them by the first instructions. x86-64
and arm64. What is not understood counts as "no".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from probes.code import elf

_PT_GNU_EH_FRAME = 0x6474E550
_PC_RELATIVE_S4, _UNSIGNED_4, _TABLE_RELATIVE_S4 = 0x1B, 0x03, 0x3B
_ENTRY = np.dtype([("begin", "<i4"), ("description", "<i4")])
_PUSH_MOV = (b"\x55\x48\x89\xe5", b"\x55\x48\x8b\xec")  # push %rbp; mov %rsp,%rbp
_ENDBR64 = b"\xf3\x0f\x1e\xfa"
_SAME, _UNDEFINED = "same", "undefined"
_LONGEST, _DEEPEST = 1 << 16, 64  # bytes of a record, states that it keeps; real ones: 3 KB and 2


class Caller(Enum):
    """What is known of the caller of a frame."""

    NEXT = "it is the next frame of the chain"
    NONE = "there is none: a program or a thread begins here"
    UNKNOWN = "no frame pointer leads to it"


@dataclass(frozen=True, slots=True)
class _Machine:
    frame: int  # numbers of registers, as DWARF counts them
    stack: int
    returns: int
    size: int = 8


_MACHINES = {elf.X86_64: _Machine(6, 7, 16), 183: _Machine(29, 31, 30)}


@dataclass(slots=True)
class _Row:
    """The rules at an instruction: where the caller's stack begins, and from there its registers."""

    base: tuple[int, int] | None = None
    saved: dict[int, int | str] = field(default_factory=dict)

    def copy(self) -> _Row:
        return _Row(self.base, dict(self.saved))


class _DamagedError(Exception):
    """The tables are malformed."""


def caller_at(image: elf.Image, address: int, function: int | None, *, interrupted: bool = False) -> Caller:
    """The caller of the code at an address.

    Args:
        image: The file.
        address: An instruction, by the file's addresses; of a frame that called another, in the call.
        function: Where the function begins; None when that is not known.
        interrupted: The address may be anywhere, also where the frame is being left.
    """
    machine = _MACHINES.get(image.machine)
    if machine is None:
        return Caller.UNKNOWN
    try:
        row = _row_at(image, address)
    except (struct.error, IndexError, ValueError, OverflowError, OSError, elf.ElfError, _DamagedError):
        return Caller.UNKNOWN
    if row is None:
        kept = not interrupted and _begins_with_frame(image, address, function)
        return Caller.NEXT if kept else Caller.UNKNOWN
    if row.saved.get(machine.returns) == _UNDEFINED:
        return Caller.NONE
    frame = row.saved.get(machine.frame)
    if image.machine == elf.X86_64:
        return Caller.NEXT if row.base == (machine.frame, 16) and frame == -16 else Caller.UNKNOWN
    returns = row.saved.get(machine.returns)
    keeps = isinstance(frame, int) and isinstance(returns, int) and returns == frame + machine.size
    return Caller.NEXT if keeps else Caller.UNKNOWN


def _begins_with_frame(image: elf.Image, address: int, function: int | None) -> bool:
    if function is None or image.machine != elf.X86_64:
        return False
    code = image.read(function, 8).removeprefix(_ENDBR64)
    return code.startswith(_PUSH_MOV) and address - function > len(_ENDBR64) + 4


class _Bytes:
    """Numbers one after the other."""

    def __init__(self, image: elf.Image, begin: int, end: int) -> None:
        if end - begin > _LONGEST:
            raise _DamagedError
        self._base, self._data = begin, image.bytes_at(begin, end - begin)
        self.at, self.end = begin, end

    def number(self, form: str) -> int:
        size = struct.calcsize(form)
        if not self._base <= self.at <= self.end - size:
            raise _DamagedError
        self.at += size
        value: int = struct.unpack_from(form, self._data, self.at - size - self._base)[0]
        return value

    def unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self.number("<B")
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 63:
                raise _DamagedError

    def signed(self) -> int:
        begin = self.at
        value = self.unsigned()
        bits = 7 * (self.at - begin)
        return value - (1 << bits) if value >> (bits - 1) & 1 else value


def _row_at(image: elf.Image, address: int) -> _Row | None:
    """The rules at an address; None where no table has it."""
    place = _description(image, address)
    if place is None:
        return None
    description = _record(image, place)
    cie_at = description.at
    common = _record(image, cie_at - description.number("<I"))
    if common.number("<I") != 0:
        raise _DamagedError
    common.number("<B")  # version
    augmentation = bytearray()
    while byte := common.number("<B"):
        augmentation.append(byte)
    code_unit, data_unit = common.unsigned(), common.signed()
    common.unsigned()  # the register of the return address
    if not augmentation.startswith(b"z"):
        raise _DamagedError
    behind = common.unsigned()
    behind += common.at
    encoding = _PC_RELATIVE_S4
    for letter in augmentation[1:].decode("latin-1"):
        if letter == "R":
            encoding = common.number("<B")
        elif letter == "P":
            _skip_pointer(common, common.number("<B"))
        elif letter == "L":
            common.number("<B")
        elif letter == "S":
            raise _DamagedError  # a signal's frame: its caller was interrupted
    common.at = behind
    if encoding != _PC_RELATIVE_S4:
        raise _DamagedError
    place = image.address(description.at)
    if place is None:
        raise _DamagedError
    begin = place + description.number("<i")
    size = description.number("<I")
    if not begin <= address < begin + size:
        return None
    skip = description.unsigned()
    description.at += skip
    row = _Row()
    _run(common, row, (code_unit, data_unit), begin, address, None)
    return _run(description, row, (code_unit, data_unit), begin, address, row.copy())


def _skip_pointer(data: _Bytes, encoding: int) -> None:
    sizes = {0x00: "<Q", 0x03: "<I", 0x04: "<Q", 0x0B: "<i", 0x0C: "<q"}
    if encoding & 0x0F not in sizes:
        raise _DamagedError
    data.number(sizes[encoding & 0x0F])


def _record(image: elf.Image, offset: int) -> _Bytes:
    (length,) = image.numbers("<I", offset)
    if not 0 < length < 0xFFFFFFFF:
        raise _DamagedError
    return _Bytes(image, offset + 4, offset + 4 + length)


def _description(image: elf.Image, address: int) -> int | None:
    """Where in the file the description of an address may be, by the sorted table of the header."""
    for kind, _flags, offset, start, _physical, size, _memory, _align in image.segments:
        if kind != _PT_GNU_EH_FRAME or size < 12:
            continue
        version, _pointer, count_form, table_form = image.numbers("<BBBB", offset)
        if (version, count_form, table_form) != (1, _UNSIGNED_4, _TABLE_RELATIVE_S4):
            return None
        (count,) = image.numbers("<I", offset + 8)
        low, high = 0, min(count, (size - 12) // _ENTRY.itemsize)
        while low < high:
            middle = (low + high) // 2
            if image.numbers("<i", offset + 12 + 8 * middle)[0] + start <= address:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return None
        place = image.numbers("<i", offset + 12 + 8 * (low - 1) + 4)[0] + start
        return image.file_offset(place)
    return None


def _run(data: _Bytes, row: _Row, units: tuple[int, int], at: int, until: int, initial: _Row | None) -> _Row:
    """Executes the instructions up to an address; ``row`` is changed."""
    code_unit, data_unit = units
    kept: list[_Row] = []
    while data.at < data.end:
        byte = data.number("<B")
        operation, low = byte & 0xC0, byte & 0x3F
        if operation == 0x40 or byte in (0x02, 0x03, 0x04):
            step = low if operation else data.number({2: "<B", 3: "<H", 4: "<I"}[byte])
            at += step * code_unit
            if at > until:
                break
        elif operation == 0x80:
            row.saved[low] = data.unsigned() * data_unit
        elif operation == 0xC0 or byte == 0x06:
            register = low if operation else data.unsigned()
            rule = initial.saved.get(register) if initial else None
            row.saved.pop(register, None)
            if rule is not None:
                row.saved[register] = rule
        elif byte in (0x00, 0x2D):
            pass
        elif byte in (0x05, 0x11, 0x2F):
            register = data.unsigned()
            offset = data.signed() if byte == 0x11 else data.unsigned()
            row.saved[register] = offset * data_unit * (-1 if byte == 0x2F else 1)
        elif byte == 0x07:
            row.saved[data.unsigned()] = _UNDEFINED
        elif byte == 0x08:
            row.saved[data.unsigned()] = _SAME
        elif byte == 0x0A:
            if len(kept) >= _DEEPEST:
                raise _DamagedError
            kept.append(row.copy())
        elif byte == 0x0B:
            before = kept.pop()
            row.base, row.saved = before.base, before.saved
        elif byte in (0x0C, 0x12):
            register = data.unsigned()
            row.base = register, data.signed() * data_unit if byte == 0x12 else data.unsigned()
        elif byte == 0x0D and row.base is not None:
            row.base = data.unsigned(), row.base[1]
        elif byte in (0x0E, 0x13) and row.base is not None:
            row.base = row.base[0], data.signed() * data_unit if byte == 0x13 else data.unsigned()
        elif byte == 0x2E:
            data.unsigned()
        elif byte in (0x0F, 0x10, 0x16):
            if byte != 0x0F:
                row.saved[data.unsigned()] = "expression"
            else:
                row.base = None
            data.at += data.unsigned()
        else:
            raise _DamagedError
    return row

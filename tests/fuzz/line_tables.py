"""Line tables and what else the kernel copies out of a program's memory: code objects and stacks."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path
from random import Random
from types import CodeType
from typing import Any

import msgpack  # type: ignore[import-untyped, unused-ignore]
import numpy as np

from probes.code.interpreter import Interpreter
from probes.code.layout import (
    CODE_DTYPE,
    CODE_RECORD,
    FILE_BYTES,
    FRAME_DTYPE,
    LAYOUTS,
    MAX_FRAMES,
    MAX_NATIVES,
    NAME_BYTES,
    OBJECT_BYTES,
    STACK_DTYPE,
    STACK_RECORD,
    TABLE_BYTES,
    TABLE_PARTS,
)
from probes.stacks.linetable import line_at, whole_entries
from probes.stacks.mappings import Mappings
from probes.stacks.resolver import Resolver
from tests.fuzz import mutation
from tests.fuzz.target import Target

_SERIAL, _CODE = 77, 0x7F00_0000_1000
_LONGEST = TABLE_BYTES * TABLE_PARTS
_MOST_STACKS = 8
_ROWS = sorted(LAYOUTS)
_ASCII = 1 << 2 | 1 << 5 | 1 << 6
_ENTRIES = (
    b"\x80\x00",
    b"\xf7\x42\x40\x40\x40\x40\x40\x00",
    b"\xf8",
    b"\xe8\x7f\x7f\x7f\x7f\x7f\x7f",
    b"\xff\x80",
)


def _text(n: int) -> str:
    return "".join(f" x = n + {k}; y = [x * n\n, n]\n" + "\n" * (k % 90) for k in range(n))


def _compiled(lines: int) -> CodeType:
    made = compile("def f(n):\n" + _text(lines), "f.py", "exec")
    return next(const for const in made.co_consts if isinstance(const, CodeType))


@cache
def _seeds() -> list[bytes]:
    """Maps of the fields of a code object, and of the stacks that are in it."""
    made = []
    for minor, lines in itertools.product(_ROWS, (1, 40)):
        code = _compiled(lines)
        table = code.co_linetable if minor != 10 else bytes(range(2, 200))
        made.append(
            {
                "row": _ROWS.index(minor),
                "table": table,
                "file": b"/app/train.py",
                "file_length": 13,
                "file_state": _ASCII,
                "name": b"step",
                "name_length": 4,
                "name_state": _ASCII,
                "object": LAYOUTS[minor].first_line * b"\0" + b"\x29\0\0\0",
                "table_bytes": len(table),
                "at": [0, 2, 10, 2 * len(table), 1 << 20],
                "stacks": 3,
                "natives": [],
            }
        )
    return [msgpack.packb(one) for one in made]


def _mutate(data: bytes, random: Random) -> bytes:
    try:
        said = msgpack.unpackb(data)
        if random.random() < 0.4:
            said["table"] = _table(said["table"], random)
            return bytes(msgpack.packb(said))
        key = random.choice(list(said))
        value = said[key]
        if isinstance(value, int):
            said[key] = mutation.number(value, random)
        elif isinstance(value, bytes):
            said[key] = mutation.some_bytes(value, random)
        else:
            said[key] = [mutation.number(7, random) for _ in range(random.choice((1, 5, 64)))]
        return bytes(msgpack.packb(said))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, msgpack.UnpackException):
        return _seeds()[random.randrange(len(_seeds()))]


def _table(table: bytes, random: Random) -> bytes:
    match random.randrange(4):
        case 0:
            return mutation.some_bytes(table, random)
        case 1:
            return table + random.choice(_ENTRIES) * random.choice((1, 50))
        case 2:
            return (random.choice(_ENTRIES) * _LONGEST)[: random.choice((_LONGEST, 5000))]
    return table[: random.randrange(len(table) + 1)] + random.choice(_ENTRIES) + table[:40]


# -- reading it --------------------------------------------------------------------------------------


def _run(data: bytes, _folder: Path) -> None:
    try:
        said = msgpack.unpackb(data)
        table, row, at = bytes(said["table"])[:_LONGEST], _u32(said["row"]), list(said["at"])[:MAX_FRAMES]
        records = [*_code_records(said, table, row), *_stack_records(said, row, at)]
        first = int(said["file_length"])
    except (ValueError, TypeError, KeyError, OverflowError, msgpack.UnpackException):
        return  # of this the kernel makes no record
    _lines(table, first, at)
    interpreters = [Interpreter("python", (3, minor), layout=LAYOUTS[minor]) for minor in _ROWS]
    resolver = Resolver(interpreters, Mappings(lambda _pid: None))
    for stack in resolver.consume(iter(records)):
        for file, line, name in stack.frames:
            if not 0 <= line < 1 << 31 or len(file) > FILE_BYTES + 1 or len(name) > NAME_BYTES + 1:
                raise AssertionError(f"{len(file)} {line} {len(name)} is no frame")
        msgpack.packb([list(frame) for frame in stack.frames], unicode_errors="replace")
    resolver.forget(5)


def _lines(table: bytes, first: int, offsets: list[int]) -> None:
    for minor in (10, 11):
        whole = whole_entries(table, minor)
        if not table.startswith(whole):
            raise AssertionError("whole entries are no beginning of the table")
        for offset in offsets[:4]:
            line = line_at(table, first, offset, minor)
            if line is not None and not 0 < line < 1 << 31:
                raise AssertionError(f"line {line}")


def _u32(value: Any) -> int:
    return int(value) & 0xFFFFFFFF


def _padded(data: Any, size: int) -> np.void:
    return np.void(bytes(data)[:size].ljust(size, b"\0"))


def _code_records(said: dict[str, Any], table: bytes, row: int) -> list[bytes]:
    """As the kernel sends them: it makes the head, the program all that the head quotes."""
    made = []
    for at in range(0, max(len(table), 1), TABLE_BYTES):
        part, head = table[at : at + TABLE_BYTES], np.zeros(1, CODE_DTYPE)
        head["kind"], head["pid"], head["serial"], head["code"] = CODE_RECORD, 5, _SERIAL, _CODE
        head["row"], head["table_at"], head["part"] = row, at, len(part)
        for name in ("table_bytes", "file_length", "file_state", "name_length", "name_state"):
            head[name] = _u32(said[name])
        head["file"], head["name"] = _padded(said["file"], FILE_BYTES), _padded(said["name"], NAME_BYTES)
        head["object"] = _padded(said["object"], OBJECT_BYTES)
        made.append(head.tobytes() + part)
    return made


def _stack_records(said: dict[str, Any], row: int, at: list[int]) -> list[bytes]:
    made = []
    natives = [int(address) & (1 << 64) - 1 for address in said["natives"]][:MAX_NATIVES]
    layout = LAYOUTS[_ROWS[row]] if row < len(_ROWS) else LAYOUTS[12]
    for number in range(min(int(said["stacks"]), _MOST_STACKS)):
        head, frames = np.zeros(1, STACK_DTYPE), np.zeros(len(at), FRAME_DTYPE)
        head["kind"], head["pid"], head["serial"], head["id"] = STACK_RECORD, 5, _SERIAL, number
        head["count"], head["row"], head["native_count"] = len(at), row, len(natives)
        head["natives"][0, : len(natives)] = natives
        frames["code"] = _CODE
        for place, offset in enumerate(at):
            base = 0 if layout.heap else _CODE + layout.first_instruction
            frames["instruction"][place] = (base + int(offset)) & (1 << 64) - 1
        made.append(head.tobytes() + frames.tobytes())
    return made


TARGET = Target(_seeds, _mutate, _run)

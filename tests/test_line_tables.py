"""From what the kernel sends to lines: tables of this Python, whole and cut; records in any order."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Iterator
from types import CodeType

import numpy as np
import pytest

from probes.code.interpreter import Interpreter
from probes.code.layout import (
    CODE_DTYPE,
    CODE_RECORD,
    FRAME_DTYPE,
    LAYOUTS,
    STACK_DTYPE,
    STACK_RECORD,
    TABLE_BYTES,
    TABLE_PARTS,
)
from probes.stacks import resolver
from probes.stacks.linetable import line_at, whole_entries
from probes.stacks.mappings import Mappings
from probes.stacks.native_frames import Frame, NativeFrames, NotYet
from probes.stacks.resolver import Resolver, Stack
from tests.waiting import until_good
from tests.yardstick import turn_s

MINOR = sys.version_info.minor
ASCII, WIDE = (
    1 << 2 | 1 << 5 | 1 << 6,
    2 << 2 | 1 << 5,
)  # of a string object: bytes of a character, compact, ASCII
CODE, SERIAL = 0x7F00_0000_1000, 77


# -- tables --------------------------------------------------------------------------------------


def code(lines: int) -> CodeType:
    """A function of so many lines, with gaps and steps backwards."""
    body = "".join(f"x = n + {n}; y = [x * n\n, n][{n % 2}]\n" + "\n" * (n % 90) for n in range(lines))
    made = compile("def f(n):\n" + textwrap.indent(body, " "), "f.py", "exec")
    return next(const for const in made.co_consts if isinstance(const, CodeType))


def right(made: CodeType) -> Iterator[tuple[int, int | None]]:
    for start, end, line in made.co_lines():
        yield from ((offset, line) for offset in range(start, end, 2))


def test_every_instruction_has_the_line_that_python_says() -> None:
    made = code(30)
    for offset, line in right(made):
        assert line_at(made.co_linetable, made.co_firstlineno, offset, MINOR) == line


def test_a_table_that_is_cut_anywhere_shows_the_right_line_or_none() -> None:
    made = code(12)
    table, lines = made.co_linetable, list(right(made))
    for length in range(len(table)):
        cut = whole_entries(table[:length], MINOR)
        assert len(table[:length]) - len(cut) < 12, "an entry is lost, not more"
        for offset, line in lines[length % 5 :: 7]:
            assert line_at(cut, made.co_firstlineno, offset, MINOR) in (line, None)


# -- records -------------------------------------------------------------------------------------


def text(name: str) -> tuple[bytes, int, int]:
    if name.isascii():
        return name.encode(), len(name), ASCII
    return name.encode("utf-16-le"), len(name), WIDE


def code_record(table: bytes = bytes([0x80 | 11 << 3 | 7, 0, 0]), **changes: object) -> bytes:
    """Of a function at CODE whose only line is the 42nd."""
    head = np.zeros(1, CODE_DTYPE)
    file, length, state = text(str(changes.pop("file", "/app/train.py")))
    head["kind"], head["pid"], head["serial"], head["code"] = CODE_RECORD, 5, SERIAL, CODE
    head["table_bytes"], head["part"] = len(table), len(table)
    head["file_length"], head["file_state"], head["file"] = (
        length,
        state,
        np.void(file[-512:].ljust(512, b"\0")),
    )
    head["name_length"], head["name_state"], head["name"] = 1, ASCII, np.void(b"f".ljust(256, b"\0"))
    blob = bytearray(256)
    blob[LAYOUTS[12].first_line : LAYOUTS[12].first_line + 4] = (41).to_bytes(4, "little")
    head["object"] = np.void(bytes(blob))
    for name, value in changes.items():
        head[name] = value
    return head.tobytes() + table


def stack_record(number: int, generation: int = 0, at: int = 0, natives: int = 0) -> bytes:
    head, frame = np.zeros(1, STACK_DTYPE), np.zeros(1, FRAME_DTYPE)
    head["kind"], head["pid"], head["serial"], head["id"], head["count"] = STACK_RECORD, 5, SERIAL, number, 1
    head["native_count"] = natives
    frame["code"], frame["generation"] = CODE, generation
    frame["instruction"] = CODE + LAYOUTS[12].first_instruction + at
    return head.tobytes() + frame.tobytes()


@pytest.fixture
def subject() -> Resolver:
    nothing_mapped = Mappings(lambda pid: None)
    return Resolver([Interpreter("python", (3, 12), layout=LAYOUTS[12])], nothing_mapped)


def told(subject: Resolver, *records: bytes) -> list[Stack]:
    return list(subject.consume(iter(records)))


def test_a_stack_waits_for_its_code_and_no_longer(subject: Resolver) -> None:
    assert told(subject, stack_record(1), stack_record(2)) == []
    found = told(subject, code_record())
    assert [(stack.id, stack.frames) for stack in found] == [
        (1, (("/app/train.py", 42, "f"),)),
        (2, (("/app/train.py", 42, "f"),)),
    ]
    assert told(subject, code_record()) == [], "each is told once"


def test_a_stack_waits_for_the_last_part_of_a_table(subject: Resolver) -> None:
    table = bytes([0x80 | 10 << 3 | 7, 0, 0]) * 2 + bytes([0x80 | 11 << 3 | 7, 0, 0])
    first = code_record(table[:3], table_bytes=len(table))
    rest = code_record(table[3:], table_bytes=len(table), table_at=3)
    assert told(subject, first, stack_record(1, at=40)) == []
    (stack,) = told(subject, rest)
    assert stack.frames == (("/app/train.py", 42, "f"),)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Frame]:
    """The native frames of each stack, once there are any: until then their file is being read."""
    found: list[Frame] = []

    def frames(_self: NativeFrames, *_of: object, **_how: object) -> tuple[Frame, ...]:
        if not found:
            raise NotYet
        return tuple(found)

    monkeypatch.setattr(NativeFrames, "frames", frames)
    return found


def test_a_stack_waits_for_the_symbols_of_a_file(subject: Resolver, read: list[Frame]) -> None:
    assert told(subject, code_record(), stack_record(1, natives=2)) == []
    assert subject.waits
    assert list(subject.complete(lambda: True)) == []
    read.append(("/lib/libcopy.so", 0, "copy+0x41"))
    (stack,) = subject.complete(lambda: True)
    assert stack.frames == (*read, ("/app/train.py", 42, "f"))
    assert not subject.waits


def test_what_takes_the_place_of_a_stacks_code_while_it_waits_for_symbols_does_not_take_its_lines(
    subject: Resolver, read: list[Frame]
) -> None:
    """Code that is made and freed in a loop has the same address each time."""
    each = ((code_record(generation=made), stack_record(made, made, natives=2)) for made in range(30))
    assert told(subject, *(record for pair in each for record in pair)) == []
    read.append(("/lib/libcopy.so", 0, "copy+0x41"))
    found = list(subject.complete(lambda: True))
    assert [stack.id for stack in found] == list(range(30))
    assert {stack.frames for stack in found} == {(*read, ("/app/train.py", 42, "f"))}


def test_what_takes_the_place_of_a_stacks_code_while_it_waits_for_other_code_does_not_take_its_lines(
    subject: Resolver,
) -> None:
    elsewhere = CODE + 0x1000
    head, rows = np.zeros(1, STACK_DTYPE), np.zeros(2, FRAME_DTYPE)
    head["kind"], head["pid"], head["serial"], head["id"], head["count"] = STACK_RECORD, 5, SERIAL, 1, 2
    rows["code"] = CODE, elsewhere
    rows["instruction"] = rows["code"] + LAYOUTS[12].first_instruction
    assert told(subject, code_record(), head.tobytes() + rows.tobytes()) == []
    assert told(subject, *(code_record(generation=made, file="/other.py") for made in range(1, 30))) == []
    (stack,) = told(subject, code_record(code=elsewhere, file="/app/caller.py"))
    assert stack.frames == (("/app/train.py", 42, "f"), ("/app/caller.py", 42, "f"))


def test_code_of_another_generation_is_other_code(subject: Resolver) -> None:
    assert told(subject, code_record(generation=1), stack_record(1, generation=2)) == []


def test_a_table_longer_than_all_parts_shows_no_line_behind_them(subject: Resolver) -> None:
    entry = bytes([0x80 | 14 << 3 | 7, 0x42, 0x40, 0x40, 0x40, 0x40, 0x00])  # one step, in six bytes
    room = TABLE_BYTES * TABLE_PARTS
    last, cut = divmod(room, len(entry))
    assert cut, "the last entry is told in part"
    table = entry * (last + 1)
    parts = [
        code_record(table[at : min(at + TABLE_BYTES, room)], table_bytes=len(table), table_at=at)
        for at in range(0, room, TABLE_BYTES)
    ]
    before, behind = told(subject, *parts, stack_record(1, at=16 * (last - 1)), stack_record(2, at=16 * last))
    assert before.frames[0][1] != 0
    assert behind.frames == (("/app/train.py", 0, "f"),)


def test_of_a_long_name_the_end_is_kept(subject: Resolver) -> None:
    for folder in ("d", "目"):
        record = code_record(file=f"/{folder * 600}/train.py")
        (stack,) = told(subject, record, stack_record(1))
        assert stack.frames[0][0].startswith("…" + folder)
        assert stack.frames[0][0].endswith(f"{folder}/train.py")


def test_stacks_whose_code_never_comes_are_let_go(subject: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "MOST_PENDING", 10)
    assert told(subject, *(stack_record(number, generation=number) for number in range(30))) == []
    found = told(subject, *(code_record(generation=number) for number in range(30)))
    assert [stack.id for stack in found] == list(range(20, 30))


MOST_TURNS = 200_000_000  # two seconds


@pytest.mark.timed
def test_the_end_of_the_longest_table_is_found_in_no_time(subject: Resolver) -> None:
    """Each entry as short as it can be, and each frame of a stack asks for the last of them."""
    room = TABLE_BYTES * TABLE_PARTS
    for entry in (b"\x80", b"\xf7\x42\x40\x40\x40\x40\x40\x00"):
        table = entry * (room // len(entry))

        def turns(table: bytes = table) -> float:
            begun = time.process_time()
            assert all(line_at(table, 1, 1 << 40, 11) is None for _ in range(64))
            return (time.process_time() - begun) / turn_s()

        assert until_good(turns, lambda found: found < MOST_TURNS) < MOST_TURNS


def test_a_table_that_begins_in_the_middle_of_an_entry_is_read_as_one() -> None:
    assert line_at(b"\x5b\x80", 7, 2, 11) == 7 + 1
    assert line_at(b"", 7, 0, 11) is None
    assert line_at(b"\x02", 7, 0, 10) is None

"""Lists of mappings, line by line: what is taken of them, and where they are cut so that it is reported."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator

import pytest

from probes.files import maps

PID = 4242
LIB = (
    "7f0000001000-7f0000003000 r-xp 00002000 fd:01 1234                       /usr/lib/a b/libx.so (deleted)"
)


@pytest.fixture(autouse=True)
def forgets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(maps, "reported_pids", set())
    maps.cut_pids.clear()
    yield
    maps.cut_pids.clear()


def taken(monkeypatch: pytest.MonkeyPatch, *lines: str) -> list[maps.Mapped]:
    monkeypatch.setattr(maps, "lines_of", lambda _pid: iter(lines))
    return maps.executable(PID)


def test_a_mapping_is_its_addresses_its_file_and_the_place_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = taken(monkeypatch, LIB)
    assert found == maps.Mapped(
        PID,
        (0x7F0000001000, 0x7F0000003000),
        (os.makedev(0xFD, 1), 1234),
        "/usr/lib/a b/libx.so (deleted)",
        0x2000,
    )


def test_what_has_too_few_columns_or_no_rights_to_run_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    short = LIB.split("1234")[0] + "1234"
    assert len(taken(monkeypatch, short, LIB.replace("r-xp", "r--p"), "", "x", LIB)) == 1
    assert list(maps.cut()) == []


def test_so_many_are_handed_out_and_that_there_were_more_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "MOST_MAPPINGS", 3)
    assert len(taken(monkeypatch, *[LIB] * 3)) == 3
    assert list(maps.cut()) == []
    assert len(taken(monkeypatch, *[LIB] * 4)) == 3
    assert list(maps.cut()) == [PID]


def lines(text: bytes) -> list[str]:
    return list(maps.whole_lines(PID, io.BytesIO(text)))


def test_lines_are_read_up_to_their_number_and_the_next_one_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maps, "MOST_LINES", 3)
    assert lines(b"a\nb\n") == ["a", "b"]
    assert list(maps.cut()) == []
    assert lines(b"a\nb\nc\nd\n") == ["a", "b", "c"]
    assert list(maps.cut()) == [PID]


def test_lines_are_read_up_to_their_bytes_and_not_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "MOST_BYTES", 6)
    assert lines(b"ab\ncd\n") == ["ab", "cd"]
    assert list(maps.cut()) == []
    assert lines(b"ab\ncd\ne\n") == ["ab", "cd"]
    assert list(maps.cut()) == [PID]


def test_a_line_longer_than_a_path_can_be_is_left_out_whole_and_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maps, "LONGEST_LINE", 8)
    assert lines(b"first\n" + b"x" * 20 + b"\nlast\n") == ["first", "last"]
    assert list(maps.cut()) == [PID]
    assert lines(b"1234567\n") == ["1234567"], "with its end it is as long as one may be"


def test_a_process_is_told_once_and_so_many_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "MOST_REPORTED", 3)
    for pid in (1, 2, 1, 3, 4):
        maps.note_cut(pid)
    assert list(maps.cut()) == [1, 2, 3]
    maps.note_cut(1)
    maps.note_cut(5)
    assert list(maps.cut()) == []


def test_a_process_that_is_noted_again_and_again_pushes_no_other_out() -> None:
    maps.note_cut(1)
    for _ in range(200):
        maps.note_cut(2)
    assert list(maps.cut()) == [1, 2]


def test_one_byte_too_many_is_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "MOST_BYTES", 6)
    assert lines(b"ab\ncd\n\n") == ["ab", "cd"]
    assert list(maps.cut()) == [PID]


def test_a_process_that_has_ended_has_no_mappings() -> None:
    assert maps.executable(1 << 23) == []
    assert list(maps.cut()) == []

"""Opening a session file: a refusal is a sentence, the header has two copies, closing ends it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from replay import reader
from replay.coding import file_format as fmt
from replay.coding.file_format import SessionError
from replay.reader import SessionReader
from tests.cli_support import write_recording


def opened() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_closing_gives_the_file_back_once(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "kept")
    before = opened()
    session = SessionReader(path)
    assert opened() == before + 1
    session.close()
    assert opened() == before
    session.close()
    assert opened() == before
    assert list(session.items()) == []


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(13, "Permission denied"), "use its owner's account or sudo"),
        (OSError(5, "Input/output error"), "cannot be read"),
        (ValueError("embedded null byte"), "cannot be read"),
    ],
)
def test_what_cannot_be_opened_is_a_sentence(
    error: Exception, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_recording(tmp_path / "kept")

    def refuse(*_words: object, **_more: object) -> int:
        raise error

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(SessionError, match=said):
        SessionReader(path)


def test_a_first_copy_of_the_header_that_is_no_data_is_passed_over(tmp_path: Path) -> None:
    """Its checksum is right, so somebody wrote it so; the map before it is still the header."""
    path = write_recording(tmp_path / "kept")
    data = path.read_bytes()
    place = data.index(fmt.MARKER)
    chunk = fmt.parse_prefix(data[place : place + fmt.MAX_PREFIX_BYTES], place)
    assert chunk is not None
    assert chunk.kind == fmt.HEADER
    header = SessionReader(path).header
    for body in (b"no zlib", b"x\x9c\x03\x00\x00\x00\x00\x01"):
        made = fmt.pack_chunk(fmt.HEADER, chunk.t_first, chunk.t_last, chunk.count, body)
        path.write_bytes(data[:place] + made + data[chunk.end :])
        assert SessionReader(path).header == header


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (1500, "1.5 kB"), (20_480, "20.5 kB")],
)
def test_sizes_are_reported_sized_up_to_a_thousand(count: int, said: str) -> None:
    assert reader.sized(count) == said


def test_a_key_of_the_header_that_is_no_text_is_no_damage(tmp_path: Path) -> None:
    """Another recorder may number what it adds."""
    path = tmp_path / "made"
    data = write_recording(tmp_path / "kept").read_bytes()
    header = dict(SessionReader(tmp_path / "kept").header)
    packed = fmt.pack({**header, 7: "seven"})
    place = data.index(fmt.MARKER)
    chunk = fmt.parse_prefix(data[place : place + fmt.MAX_PREFIX_BYTES], place)
    assert chunk is not None
    path.write_bytes(packed + data[chunk.end :])
    assert SessionReader(path).header[7] == "seven"

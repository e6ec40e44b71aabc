"""Which chunks of a file are found: by its index, by the pieces of one, and from front to back."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replay import scan
from replay.coding import file_format as fmt
from replay.index import Entries
from replay.scan import Scan, ScannedFile, index_of, pieces_of

HEAD = b"the header"
START = len(HEAD)
Open = Callable[[bytes], ScannedFile]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens files with some content behind the header."""
    descriptors: list[int] = []

    def file(content: bytes) -> ScannedFile:
        path = tmp_path / "file"
        path.write_bytes(HEAD + content)
        descriptors.append(os.open(path, os.O_RDONLY))
        return ScannedFile(descriptors[-1])

    yield file
    for descriptor in descriptors:
        os.close(descriptor)


def note(time: int) -> bytes:
    """A chunk, larger than two of the smallest that there can be."""
    return fmt.pack_chunk("note", time, time, 1, bytes(2 * fmt.SMALLEST_CHUNK))


A, B, C = note(1), note(2), note(3)
AT_A, AT_B = START, START + len(A)


def entries(*offsets: int) -> Entries:
    """Chunks at these places."""
    found = Entries()
    for offset in offsets:
        found.add("note", 1, 2, offset)
    return found


def index(*offsets: int, kind: str = fmt.INDEX, **more: int) -> bytes:
    """An index, or a piece of one, that names these chunks."""
    return fmt.pack_chunk(kind, 0, 0, len(offsets), entries(*offsets).pack(**more))


def closed(chunks: bytes, last: bytes, behind: bytes = b"") -> bytes:
    """A file whose trailer names the last of its chunks as the index."""
    return chunks + last + behind + fmt.pack_trailer(START + len(chunks))


def named(found: Entries | None) -> list[int] | None:
    """Where the chunks are said to lie."""
    return None if found is None else found.offset.tolist()


def test_the_index_of_a_closed_file_names_its_chunks(opened: Open) -> None:
    assert named(index_of(opened(closed(A + B, index(AT_A, AT_B))), START)) == [AT_A, AT_B]
    assert named(index_of(opened(closed(b"", index())), START)) == []


@pytest.mark.parametrize(
    "content",
    [
        closed(A, index(AT_A), behind=B),
        closed(A, index(AT_A, kind="a note")),
        closed(A, index(AT_A, kind="note")),
        closed(A, index()),
        closed(A, index(*range(AT_A, AT_A + 5))),
        closed(A, index(START - 1, AT_A)),
        closed(A, index(AT_A, at=AT_B, before=0)),
        closed(A, index(AT_A))[:-1],
        closed(A, index(AT_A)[:-1]),
        closed(A, b"")[: -fmt.TRAILER_BYTES] + fmt.pack_trailer(START - 1),
    ],
    ids=[
        "more chunks behind it",
        "no index but a kind before it in the alphabet",
        "no index but a kind after it in the alphabet",
        "none of the chunks before it",
        "more chunks than there is room for",
        "a chunk within the header",
        "only a piece of an index",
        "no whole trailer",
        "no whole index",
        "a place within the header",
    ],
)
def test_an_index_that_cannot_be_right_is_not_relied_on(opened: Open, content: bytes) -> None:
    assert index_of(opened(content), START) is None


FIRST = index(AT_A, at=AT_B, before=0)
AT_SECOND_CHUNK = AT_B + len(FIRST)
AT_SECOND = AT_SECOND_CHUNK + len(B)
ROOM = (AT_SECOND - AT_B) // fmt.SMALLEST_CHUNK  # for so many chunks at most between the two pieces


def in_pieces(*offsets: int, before: int = AT_B, at: int = AT_SECOND, kind: str = fmt.INDEX) -> bytes:
    """Two chunks, a piece of the index after each; the second says this."""
    return A + FIRST + B + index(*offsets, at=at, before=before, kind=kind)


WHOLE = in_pieces(AT_SECOND_CHUNK)


@pytest.mark.parametrize("torn", [b"", C[:-1]])
def test_the_pieces_of_an_index_name_the_chunks_before_them(
    opened: Open,
    monkeypatch: pytest.MonkeyPatch,
    torn: bytes,
) -> None:
    for window in [*range(len(fmt.MARKER), 40), 200, 1 << 20]:
        monkeypatch.setattr(scan, "WINDOW_BYTES", window)
        found, end = pieces_of(opened(WHOLE + torn), START)
        assert (named(found), end) == ([AT_A, AT_SECOND_CHUNK], START + len(WHOLE))


def test_behind_sixteen_thousand_places_that_look_like_one_no_piece_is_looked_for(opened: Open) -> None:
    """Each costs a read: a hostile file is full of them."""
    few, many = ((1 << 14) + beside for beside in (-1, 1))
    assert named(pieces_of(opened(WHOLE + few * fmt.MARKER), START)[0]) == [AT_A, AT_SECOND_CHUNK]
    assert named(pieces_of(opened(WHOLE + many * fmt.MARKER), START)[0]) == []


def test_a_piece_without_chunks_is_a_piece(opened: Open) -> None:
    content = in_pieces()
    found, end = pieces_of(opened(content), START)
    assert (named(found), end) == ([AT_A], START + len(content))


@pytest.mark.parametrize(
    "content",
    [
        in_pieces(AT_A, AT_SECOND_CHUNK),
        in_pieces(AT_SECOND_CHUNK, at=AT_SECOND + 1),
        in_pieces(AT_SECOND_CHUNK, before=AT_A),
        in_pieces(START - 1, AT_SECOND_CHUNK, before=0),
        in_pieces(*range(AT_SECOND_CHUNK, AT_SECOND_CHUNK + ROOM + 1)),
        WHOLE[:-1] + bytes([WHOLE[-1] ^ 1]),
        A + B,
    ],
    ids=[
        "a chunk that the piece before it has",
        "a piece that was moved",
        "no piece before it",
        "a chunk within the header",
        "more chunks than there is room for",
        "a damaged piece",
        "no piece",
    ],
)
def test_without_a_piece_to_rely_on_nothing_is_known(opened: Open, content: bytes) -> None:
    found, end = pieces_of(opened(content), START)
    assert (named(found), end) == ([], START)


@pytest.mark.parametrize("kind", ["a note", "note"])
def test_what_is_no_index_is_no_piece_either(opened: Open, kind: str) -> None:
    found, end = pieces_of(opened(in_pieces(AT_SECOND_CHUNK, kind=kind)), START)
    assert (named(found), end) == ([AT_A], AT_SECOND_CHUNK)


DAMAGED = A[:-1] + b"\1"


@pytest.mark.parametrize("window", [len(fmt.MARKER), 20, 200, 1 << 20])
@pytest.mark.parametrize(
    "between",
    [b"x", bytes(300), fmt.MARKER, fmt.MARKER[:-1], DAMAGED, DAMAGED * 2, fmt.pack_trailer(START) + b"x"],
)
def test_behind_damage_the_next_chunk_is_found(
    opened: Open, monkeypatch: pytest.MonkeyPatch, between: bytes, window: int
) -> None:
    monkeypatch.setattr(scan, "WINDOW_BYTES", window)
    known = between[:0] if not between.startswith(fmt.pack_trailer(START)) else fmt.pack_trailer(START)
    found = Scan(opened(A + between + B), START)
    assert found.entries.offset.tolist() == [AT_A, AT_B + len(between)]
    assert sum(length for _offset, length in found.gaps) == len(between) - len(known)
    assert found.gaps[0][0] == AT_B + len(known)
    assert not found.closed


def test_a_file_that_breaks_off_has_a_gap_until_its_end(opened: Open) -> None:
    found = Scan(opened(A + B[:-1]), START)
    assert found.entries.offset.tolist() == [AT_A]
    assert found.gaps == [(AT_B, len(B) - 1)]


def test_a_file_is_closed_by_a_trailer_at_its_end(opened: Open) -> None:
    for more in range(len(A), 2 * len(A)):
        one = fmt.pack_chunk("note", 1, 1, 1, bytes(more))
        assert Scan(opened(one + fmt.pack_trailer(START)), START).closed, more
    assert not Scan(opened(A + fmt.pack_trailer(START) + B), START).closed
    assert not Scan(opened(A), START).closed


def test_an_index_is_no_chunk_of_the_session(opened: Open) -> None:
    found = Scan(opened(A + index(AT_A) + B), START)
    assert found.entries.offset.tolist() == [AT_A, AT_B + len(index(AT_A))]
    assert found.gaps == []


def test_a_body_that_is_not_all_there_is_damaged_whatever_its_checksum_says(opened: Open) -> None:
    """The file may have shrunk since it was opened."""
    file, body = opened(b"body"), b"body"
    for length, whole in ((4, True), (5, False), (3, False)):
        chunk = fmt.Chunk(START, "note", 1, 1, 1, 0, length, zlib.crc32(body))
        assert (file.body(chunk) == body) == whole

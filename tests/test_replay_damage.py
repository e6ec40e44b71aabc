"""A torn, damaged or hostile file gives fewer items and says so; it never does harm."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgpack  # type: ignore[import-untyped, unused-ignore]
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.playback.player import frame_at
from probes.source import Item, Sample
from replay.coding import file_format as fmt
from replay.coding.decoding import decode_records
from replay.coding.encoding import Encoder
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests.session_data import HEADER, flat, read, realistic, session, write

HEADER_BYTES = 500  # of the files made here, both copies


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("small") / "s"
    return write(path, session(realistic(300), ticks=3)).read_bytes()


def survivors(path: Path, data: bytes) -> tuple[list[Item], list[str]] | None:
    """Items and problems of a file with this content; None when it was refused."""
    path.write_bytes(data)
    try:
        reader = SessionReader(path)
    except fmt.SessionError:
        return None
    try:
        items = list(reader.items())
        for mark in range(len(reader.marks)):
            last = list(reader.items_until(mark, 0, 0))[-1]
            assert isinstance(last, Sample)
            assert last.kind == "mark"
        return items, reader.problems
    finally:
        reader.close()


def in_order(part: list[Item], whole: list[Item]) -> bool:
    """Whether ``part`` is ``whole`` with items left out."""
    rest: Iterator[Item] = iter(whole)
    for item in part:
        for candidate in rest:
            if isinstance(item, Sample) or isinstance(candidate, Sample):
                if item is candidate or (
                    isinstance(item, Sample) and isinstance(candidate, Sample) and item == candidate
                ):
                    break
            elif item.tobytes() == candidate.tobytes():
                break
        else:
            return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("apart", [7, pytest.param(1, marks=pytest.mark.long)])
def test_a_file_cut_anywhere_keeps_what_is_whole(apart: int, tmp_path: Path) -> None:
    tiny = write(tmp_path / "tiny", session(realistic(10), ticks=2)).read_bytes()
    whole = survivors(tmp_path / "whole", tiny)
    assert whole is not None
    expected = [flat([item]) for item in whole[0]]
    counts = []
    for end in (*range(0, len(tiny), apart), len(tiny) - 1):
        result = survivors(tmp_path / "cut", tiny[:end])
        if result is None:
            assert end < HEADER_BYTES, "only a file without its header is refused"
            continue
        items, problems = result
        assert problems
        assert [flat([item]) for item in items] == expected[: len(items)]
        counts.append(len(items))
    assert counts == sorted(counts)
    assert counts[-1] == len(whole[0]), "without the index nothing is lost"


def test_the_problem_names_the_cause(tmp_path: Path, small: bytes) -> None:
    torn = survivors(tmp_path / "a", small[: len(small) // 2])
    assert torn is not None
    assert torn[1][0].startswith("the last ")
    assert "incomplete (the recorder was killed, or the file was cut)" in torn[1][0]
    index_offset = fmt.parse_trailer(small[-fmt.TRAILER_BYTES :])
    killed = survivors(tmp_path / "b", small[:index_offset])
    assert killed is not None
    assert killed[1][0].startswith("the recorder did not finish the file")


@pytest.mark.slow
@given(st.data())
def test_flipped_bits_lose_only_their_chunk(
    tmp_path_factory: pytest.TempPathFactory, small: bytes, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp()
    whole = survivors(folder / "whole", small)
    assert whole is not None
    damaged = bytearray(small)
    flips = data.draw(st.lists(st.integers(0, len(small) * 8 - 1), min_size=1, max_size=4))
    for bit in flips:
        damaged[bit // 8] ^= 1 << bit % 8
    result = survivors(folder / "flipped", bytes(damaged))
    if result is None:
        assert min(flips) < HEADER_BYTES * 8
        return
    items, problems = result
    assert in_order(items, whole[0])
    if min(flips) > HEADER_BYTES * 8 or len(flips) == 1:
        assert len(items) >= len(whole[0]) - len(flips)
    if len(items) < len(whole[0]):
        assert problems


@pytest.mark.parametrize("indexed", [True, False])
def test_bytes_lost_or_added_lose_one_chunk(tmp_path: Path, small: bytes, indexed: bool) -> None:
    end = len(small) if indexed else fmt.parse_trailer(small[-fmt.TRAILER_BYTES :])
    whole = survivors(tmp_path / "whole", small)
    assert whole is not None
    middle = len(small) // 2
    for changed in (
        small[:middle] + small[middle + 40 : end],
        small[:middle] + b"\0" * 333 + small[middle:end],
        small[:middle] + fmt.MARKER * 20 + small[middle:end],
    ):
        result = survivors(tmp_path / "changed", changed)
        assert result is not None
        assert in_order(result[0], whole[0])
        assert len(result[0]) >= len(whole[0]) - 2
        assert "damaged and skipped" in result[1][0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\x7fELF" + bytes(200), "is not a gputop session"),
        (b"\x80", "is not a gputop session"),
        (msgpack.packb({"format": "gputop.session"}), "is damaged"),
        (msgpack.packb({"format": "gputop.session", "major": "1", "minor": 0}), "is damaged"),
        (msgpack.packb({"format": "gputop.session", "major": 1, "minor": 0})[:-3], "ends within its header"),
        (b"\x82\xa6format\xaegputop.session\xa1x" + b"\x91" * 5000, "header"),
        (b"\x82\xa6format\xaegputop.session\xa1x\xdd\xff\xff\xff\xff", "header"),
        (b"\x82\xa6format\xaegputop.session\xa1x\xdb\xff\xff\xff\xff", "header"),
        (b"\x82\xa6format\xaegputop.session\x90\x90", "is damaged"),
    ],
)
def test_what_is_no_session_is_refused_in_a_sentence(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "s"
    path.write_bytes(content)
    with pytest.raises(fmt.SessionError, match=words) as caught:
        SessionReader(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_newer_major_version_is_refused_and_a_newer_minor_read(tmp_path: Path, small: bytes) -> None:
    head = {"format": "gputop.session", "major": 2, "minor": 0}
    (tmp_path / "new").write_bytes(msgpack.packb(head))
    with pytest.raises(fmt.SessionError, match=r"newer gputop \(format 2\.0, this one reads 1\.x\): upgrade"):
        SessionReader(tmp_path / "new")
    unpacker = msgpack.Unpacker()
    unpacker.feed(small)
    header = unpacker.unpack()
    rest = small[unpacker.tell() :]
    later = fmt.pack_chunk("hologram", 5, 6, 1, zlib.compress(msgpack.packb({"new": [1]})))
    result = survivors(tmp_path / "minor", msgpack.packb({**header, "minor": 9, "more": [1]}) + later + rest)
    assert result is not None
    assert result[0][0] == Sample("hologram", 5, {"new": [1]})


def test_a_column_of_the_future_is_skipped() -> None:
    records = realistic(50)
    columns = msgpack.unpackb(Encoder().encode(records))
    columns.append(["colour", "<u8", ["rainbow", 7]])
    assert decode_records(msgpack.packb(columns), len(records)).tobytes() == records.tobytes()


BOMB = zlib.compress(bytes(50 << 20), 9)


@pytest.mark.parametrize(
    "node",
    [
        ["z", "<u8", BOMB],
        ["raw", "<u8", b"short"],
        ["raw", "|O", b"12345678" * 100],
        ["planes", []],
        ["planes", [["const", 1]] * 9],
        ["planes", 7],
        ["sparse", 100, ["const", 0], ["const", 1]],
        ["sparse", 2**40, ["const", 255], ["const", 1]],
        ["dict", 2**40, ["const", 0], ["const", 1]],
        ["dict", 3, ["const", 3], ["const", 1]],
        ["dict", 3, ["const", -1], ["const", 1]],
        "nowhere",
        [],
        None,
        7,
        {"const": 1},
    ],
)
def test_hostile_columns_are_damage(node: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_records(msgpack.packb([["t_end", "<u8", node]]), 100)


def test_hostile_nesting_is_damage() -> None:
    deep: list[object] = ["const", 1]
    for _ in range(300):
        deep = ["add", 1, deep]
    wide: object = ["const", 1]
    for _ in range(8):
        wide = ["planes", [wide] * 8] if len(msgpack.packb(wide)) < 100_000 else wide
    for node in (deep, wide):
        with pytest.raises(ValueError, match="nested too deeply"):
            decode_records(msgpack.packb([["t_end", "<u8", node]]), 100)


@pytest.mark.parametrize("count", [0, -1, fmt.MAX_RECORDS + 1, 2**32 - 1])
def test_hostile_counts_are_damage(count: int) -> None:
    with pytest.raises(ValueError, match="a chunk of"):
        decode_records(msgpack.packb([]), count)


def test_hostile_chunks_are_skipped(tmp_path: Path) -> None:
    head = msgpack.packb({"format": "gputop.session", "major": 1, "minor": 0})
    bodies = [
        ("names", 1, BOMB),
        ("names", 1, zlib.compress(b"\x91" * 100_000)),
        ("names", 1, zlib.compress(b"\xdd\xff\xff\xff\xff")),
        ("names", 1, zlib.compress(b"\xd6\xff\0\0\0\0")),
        ("names", 1, zlib.compress(msgpack.packb([1]))),
        ("names", 1, b"no zlib"),
        ("records", 2**32 - 1, msgpack.packb([["t_end", "<u8", ["const", 1]]])),
        ("mark", 1, b""),
    ]
    data = head + b"".join(fmt.pack_chunk(kind, 1, 1, count, body) for kind, count, body in bodies)
    result = survivors(tmp_path / "s", data + fmt.pack_chunk("note", 1, 1, 1, zlib.compress(b"\x80")))
    assert result is not None
    assert result[0] == [Sample("note", 1, {})]
    assert len(result[1]) == len(bodies) + 1


def test_a_file_made_of_false_starts_is_read_in_time(tmp_path: Path) -> None:
    head = msgpack.packb({"format": "gputop.session", "major": 1, "minor": 0})
    # Every prefix is intact and claims the megabytes that follow it as its body.
    one = fmt.pack_chunk("note", 1, 1, 1, b"")
    count = 20_000
    prefixes = []
    for _ in range(50):
        chunk = bytearray(fmt.pack_chunk("note", 1, 1, 1, bytes(len(one) * count)))[: len(one)]
        prefixes.append(bytes(chunk))
    result = survivors(tmp_path / "s", head + b"".join(prefixes) * (count // 25))
    assert result is not None
    assert result[0] == []


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=400))
def test_any_bytes_after_a_header_do_no_harm(tmp_path_factory: pytest.TempPathFactory, tail: bytes) -> None:
    head = msgpack.packb({"format": "gputop.session", "major": 1, "minor": 0})
    result = survivors(tmp_path_factory.getbasetemp() / "any", head + tail)
    assert result is not None
    assert bool(result[1]) or not tail


def test_an_index_that_lies_is_not_believed(tmp_path: Path, small: bytes) -> None:
    whole = survivors(tmp_path / "whole", small)
    assert whole is not None
    offset = fmt.parse_trailer(small[-fmt.TRAILER_BYTES :])
    assert offset is not None
    for lie in (0, 5, offset - 1, offset + 1, 2**63, 2**64 - 1):
        result = survivors(tmp_path / "s", small[: -fmt.TRAILER_BYTES] + fmt.pack_trailer(lie))
        assert result is not None
        assert flat(result[0]) == flat(whole[0])
    numbers = np.arange(3, dtype="<i8") - 2**62
    for steps in (numbers, numbers + 2**62, numbers * 0 + 10**9):
        columns = dict.fromkeys(("t_first", "t_last", "offset"), steps.tobytes())
        body = zlib.compress(msgpack.packb({"kinds": ["note"], "kind": bytes(6), **columns}))
        index = fmt.pack_chunk("index", 0, 0, 3, body)
        result = survivors(tmp_path / "s", small[:offset] + index + fmt.pack_trailer(offset))
        assert result is not None
        assert flat(result[0]) == flat(whole[0])


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "s", session(realistic(3000)))
    reader = SessionReader(path)
    items = reader.items()
    next(items)
    os.truncate(path, 200)
    assert list(items) == []
    assert reader.problems


def test_a_moment_that_the_disk_no_longer_gives_is_shown_empty_and_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "s", session(realistic(3000)))
    reader = SessionReader(path)
    last = len(reader.marks) - 1
    os.truncate(path, 200)
    frame = frame_at(reader, last)
    assert (frame.time_ns, frame.processes) == (reader.marks[last], ())
    assert frame.wall_ns - frame.time_ns == HEADER["clock"]["realtime_ns"] - HEADER["clock"]["monotonic_ns"]
    assert any("damaged and skipped" in problem for problem in frame.problems)


def test_a_file_that_is_still_written_is_readable(tmp_path: Path) -> None:
    writer = SessionWriter(tmp_path / "s", HEADER)
    items = session(realistic(500))
    for item in items:
        writer.write(item)
    assert flat(read(tmp_path / "s")) == flat(items)
    writer.close()


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name, words in (("fifo", "not a regular file"), ("", "not a regular file"), ("none", "no file")):
        with pytest.raises(fmt.SessionError, match=words):
            SessionReader(tmp_path / name)

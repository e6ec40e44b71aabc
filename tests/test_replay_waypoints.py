"""A long file is opened and sought in by reading a part of it that does not grow with its length."""

from __future__ import annotations

import gc
import os
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.engine.engine import Engine
from gputop.playback.player import frame_at
from probes.source import MARK, NAMES, PROCESS, Item, Sample
from replay.coding import file_format as fmt
from replay.index import Entries
from replay.past.growing_index import GrowingIndex
from replay.reader import SessionReader
from replay.scan import Scan, ScannedFile, index_of
from replay.seek_points import Spacing
from replay.writer import SessionWriter
from tests.session_data import HEADER, flat, realistic, session

RECORDINGS = Path(__file__).parent.parent / "recordings"
OFTEN = Spacing(chunks=6, bytes=1 << 20, facts=3)


def copied(recording: Path, path: Path) -> SessionReader:
    """A recording written anew, with as many snapshots and pieces of the index as there can be."""
    reader = SessionReader(recording)
    writer = SessionWriter(path, reader.header, spacing=OFTEN)
    for item in reader.items():
        writer.write(item)
    writer.close()
    reader.close()
    return SessionReader(path)


def unfinished(data: bytes) -> bytes:
    """The file of a recorder that was killed: without index and trailer."""
    return data[: fmt.parse_trailer(data[-fmt.TRAILER_BYTES :])]


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small file with many pieces of the index and many snapshots."""
    return made(tmp_path_factory.mktemp("dense") / "s", 6)


def made(path: Path, ticks: int) -> Path:
    """So many ticks, each with facts."""
    writer = SessionWriter(path, HEADER, spacing=OFTEN)
    for number, item in enumerate(session(realistic(2 * ticks), ticks)):
        writer.write(Sample(PROCESS, number, {"pid": number, "name": f"p{number}"}))
        if not (isinstance(item, Sample) and item.kind == NAMES):  # which has another shape here
            writer.write(item)
    writer.close()
    return path


def read(path: Path) -> tuple[list[Item], list[str]]:
    """All items, and what is wrong with the file."""
    reader = SessionReader(path)
    try:
        return list(reader.items()), reader.problems
    finally:
        reader.close()


def kinds_in(data: bytes) -> list[str]:
    """The kinds of all chunks."""
    found, place = [], data.find(fmt.MARKER)
    while place >= 0:
        chunk = fmt.parse_prefix(data[place : place + fmt.MAX_PREFIX_BYTES], place)
        found += [chunk.kind] if chunk is not None else []
        place = data.find(fmt.MARKER, place + 1)
    return found


@pytest.mark.parametrize("name", ["storm", "dataloader-workers"])
@pytest.mark.slow
@pytest.mark.mainly("dataloader-workers")
def test_a_frame_by_a_snapshot_is_the_frame_of_reading_everything(name: str, tmp_path: Path) -> None:
    reader = copied(RECORDINGS / f"{name}.msgpack", tmp_path / "copy")
    assert kinds_in((tmp_path / "copy").read_bytes()).count(fmt.SNAPSHOT) >= 2
    engine = Engine(reader.header)
    frames = [engine.frame() for item in reader.items() if engine.feed(item)]
    assert frames == [frame_at(reader, index) for index in range(len(reader.marks))]
    reader.close()


def test_what_a_long_file_reports_is_the_same_with_and_without_waypoints(tmp_path: Path) -> None:
    original = SessionReader(RECORDINGS / "dataloader.msgpack")
    copy = copied(RECORDINGS / "dataloader.msgpack", tmp_path / "copy")
    assert flat(list(original.items())) == flat(list(copy.items()))
    assert not copy.problems
    original.close()
    copy.close()


def test_a_killed_recorders_file_is_opened_from_its_newest_piece_of_the_index(
    dense: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = read(dense)
    data = unfinished(dense.read_bytes())
    (tmp_path / "killed").write_bytes(data)
    bodies: list[int] = []
    body = ScannedFile.body

    def counted(self: ScannedFile, chunk: fmt.Chunk) -> bytes | None:
        bodies.append(chunk.offset)
        return body(self, chunk)

    monkeypatch.setattr(ScannedFile, "body", counted)
    reader = SessionReader(tmp_path / "killed")
    marks, pieces = len(reader.marks), kinds_in(data).count(fmt.INDEX)
    assert pieces >= 3
    assert len(bodies) <= 1 + pieces + marks + OFTEN.chunks * 3, "not all chunks are read"
    assert flat(list(reader.items())) == flat(whole)
    assert reader.problems[0].startswith("the recorder did not finish the file")
    reader.close()


@pytest.mark.parametrize("apart", [11, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.slow
def test_wherever_it_is_cut_a_file_yields_the_intact_chunks(apart: int, tmp_path: Path) -> None:
    small = made(tmp_path / "small", 3)
    data = small.read_bytes()
    assert kinds_in(unfinished(data)).count(fmt.INDEX) >= 1
    assert kinds_in(data).count(fmt.SNAPSHOT) >= 1
    whole, _ = read(small)
    expected = [flat([item]) for item in whole]
    ends = sorted(chunk_ends(data))
    near = {end + by for end in ends for by in (-1, 0, 1)} & {*range(ends[0], len(data))}
    for cut in sorted(near | {*range(ends[0], len(data), apart)}):
        (tmp_path / "cut").write_bytes(data[:cut])
        items, problems = read(tmp_path / "cut")
        assert [flat([item]) for item in items] == expected[: len(items)]
        assert len(items) == sum(end <= cut for end in item_ends(data)), f"cut at {cut}"
        assert problems


def chunk_ends(data: bytes) -> Iterator[int]:
    """Where each chunk ends."""
    for chunk in chunks(data):
        yield chunk.end


def item_ends(data: bytes) -> list[int]:
    """Where each chunk ends that is an item."""
    inner = {fmt.HEADER, fmt.INDEX, fmt.SNAPSHOT}
    return [chunk.end for chunk in chunks(data) if chunk.kind not in inner]


def chunks(data: bytes) -> Iterator[fmt.Chunk]:
    """All chunks."""
    place = data.find(fmt.MARKER)
    while place >= 0:
        chunk = fmt.parse_prefix(data[place : place + fmt.MAX_PREFIX_BYTES], place)
        assert chunk is not None
        yield chunk
        place = data.find(fmt.MARKER, chunk.end)


@pytest.mark.slow
@pytest.mark.parametrize("ended", [True, False])
def test_a_flipped_bit_costs_its_chunk_at_most(ended: bool, dense: Path, tmp_path: Path) -> None:
    data = dense.read_bytes() if ended else unfinished(dense.read_bytes())
    whole = flat(read(dense)[0])
    rng = random.Random(7)
    first = next(chunk_ends(data))
    for _ in range(40):
        bit = rng.randrange(first * 8, len(data) * 8)
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        (tmp_path / "flipped").write_bytes(damaged)
        reader = SessionReader(tmp_path / "flipped")
        items = list(reader.items())
        for mark in range(len(reader.marks)):
            last = list(reader.items_until(mark, 0, 0))[-1]
            assert isinstance(last, Sample)
            assert last.kind == MARK
        reader.close()
        left = flat(items)
        assert len(read(dense)[0]) - len(items) <= 1
        assert [one for one in left if not isinstance(one, bytes)] == [
            one for one in whole if not isinstance(one, bytes) and one in left
        ]


def test_a_file_into_which_bytes_were_put_is_read_from_the_front(dense: Path, tmp_path: Path) -> None:
    data, whole = unfinished(dense.read_bytes()), read(dense)[0]
    middle = list(chunk_ends(data))[len(whole) // 2]
    (tmp_path / "moved").write_bytes(data[:middle] + b"\0" * 77 + data[middle:])
    items, problems = read(tmp_path / "moved")
    assert flat(items) == flat(whole)
    assert problems[0] == f"77 bytes at offset {middle} are damaged and skipped"


@pytest.mark.slow
def test_a_seek_in_a_file_with_many_facts_reads_few_of_them(tmp_path: Path) -> None:
    read_for_seek = []
    for length in (2_000, 20_000):
        writer = SessionWriter(tmp_path / "s", HEADER)
        for number in range(length):
            pid, time_ns = 100 + number % 50, number * 1_000_000
            writer.write(Sample(PROCESS, time_ns, {"pid": pid, "name": "sh", "exited_ns": None}))
            writer.write(Sample(PROCESS, time_ns, {"pid": pid, "exited_ns": time_ns}))
            if number % 100 == 99:
                writer.write(Sample(MARK, time_ns, {}))
        writer.close()
        reader = SessionReader(tmp_path / "s")
        last = len(reader.marks) - 1
        read_for_seek.append(len(list(reader.items_until(last, 1 << 62, 1 << 62))))
        reader.close()
    assert max(read_for_seek) < 2_000


@pytest.mark.long
def test_ten_thousand_flipped_bits_cost_their_chunks_at_most(dense: Path, tmp_path: Path) -> None:
    data, whole = dense.read_bytes(), read(dense)[0]
    rng = random.Random(11)
    path = tmp_path / "flipped"
    for number in range(10_000):
        damaged = bytearray(data if number % 2 else unfinished(data))
        flips = rng.choice((1, 1, 2, 5))
        for bit in (rng.randrange(len(damaged) * 8) for _ in range(flips)):
            damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        items, refused = taken(path)
        assert len(items) >= len(whole) - flips or str(path) in refused, f"round {number}"


def taken(path: Path) -> tuple[list[Item], str]:
    """The items, or why there are none."""
    try:
        return read(path)[0], ""
    except fmt.SessionError as error:
        return [], str(error)


def test_a_clock_that_steps_costs_nothing(tmp_path: Path) -> None:
    writer = SessionWriter(tmp_path / "s", HEADER, spacing=OFTEN)
    walls = [1_700_000_000, 1_700_000_001, 1_600_000_000, 1_700_000_003]
    for number, wall in enumerate(walls, 1):
        writer.write(Sample(PROCESS, number, {"pid": number, "name": f"p{number}"}))
        writer.write(Sample(MARK, number * 1_000_000_000, {"wall_ns": wall * 1_000_000_000}))
    writer.close()
    reader = SessionReader(tmp_path / "s")
    assert reader.marks.tolist() == [number * 1_000_000_000 for number in range(1, 5)], "a clock of its own"
    assert frame_at(reader, 2).wall_ns == 1_600_000_000 * 1_000_000_000
    assert not reader.problems
    reader.close()


def test_the_index_of_a_closed_file_names_every_chunk_that_is_in_it(dense: Path) -> None:
    file = ScannedFile(os.open(dense, os.O_RDONLY))
    try:
        header = file.chunk_at(Scan(file, 0).entries.offset[0])
        assert header is not None
        index, found = index_of(file, header.end), Scan(file, header.end).entries
    finally:
        os.close(file.descriptor)
    assert index is not None
    told = [row for row in rows(found) if row[0] != fmt.INDEX]
    assert rows(index) == told
    assert len(told) > 10 * OFTEN.chunks


def rows(entries: Entries) -> list[tuple[str, int, int, int]]:
    """(kind, first, last, offset) of each chunk."""
    kinds = (entries.kinds[number] for number in entries.kind)
    return list(zip(kinds, entries.t_first, entries.t_last, entries.offset, strict=True))


@pytest.mark.slow
@pytest.mark.long
def test_of_chunks_that_the_file_names_nothing_stays_in_memory() -> None:
    """Half a million chunks, as a shell that forks hundreds of times a second makes in half an hour."""
    index, size = GrowingIndex(Spacing()), 0
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(500_000):
            index.add(PROCESS, number, number, size)
            size += 250
            if number % 100 == 99:
                size += len(index.piece(size, number) or b"")
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


def test_a_file_whose_pieces_were_overwritten_has_no_index_that_says_otherwise(tmp_path: Path) -> None:
    writer = SessionWriter(tmp_path / "s", HEADER, spacing=OFTEN)
    for item in session(realistic(12), 6):
        writer.write(item)
    place = (tmp_path / "s").read_bytes().index(b"index")
    with open(tmp_path / "s", "r+b") as file:
        file.seek(place + 40)
        file.write(b"gone")
    writer.close()
    reader = SessionReader(tmp_path / "s")
    assert reader.problems
    reader.close()

"""What was recorded is what is replayed: the same items, in the same order, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped, unused-ignore]
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.schema import ALIASED, RECORD, STRIDE_BYTES, Records, empty
from probes.source import Sample
from replay.coding.chunker import CHUNK_RECORDS
from replay.coding.decoding import decode_records
from replay.coding.encoding import Encoder
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests.session_data import HEADER, flat, noise, read, realistic, session, write

RECORDINGS = Path(__file__).resolve().parents[1] / "recordings"


@pytest.mark.parametrize("records", [realistic(20_000), noise(3000), empty(500), noise(1), realistic(3)])
def test_a_replay_yields_what_was_recorded(tmp_path: Path, records: Records) -> None:
    items = session(records)
    path = write(tmp_path / "s.msgpack", items)
    assert flat(read(path)) == flat(items)
    reader = SessionReader(path)
    assert reader.problems == []
    assert {key: reader.header[key] for key in HEADER} == HEADER
    assert reader.marks.tolist() == [i.time_ns for i in items if isinstance(i, Sample) and i.kind == "mark"]


shapes_of_columns = st.sampled_from(["zero", "constant", "few", "steps", "sparse", "noise", "edge"])
columns = st.fixed_dictionaries(dict.fromkeys(RECORD.names or (), shapes_of_columns))


@pytest.mark.slow
@settings(deadline=None, max_examples=120)
@given(columns, st.integers(1, 700), st.integers(0, 2**32))
def test_every_mix_of_columns_survives(shapes: dict[str, str], count: int, seed: int) -> None:
    r = np.random.default_rng(seed)
    records = empty(count)
    for name, shape in shapes.items():
        dtype = RECORD[name]
        info = np.iinfo(dtype)
        wild = np.frombuffer(r.bytes(count * dtype.itemsize), dtype)
        made: dict[str, Any] = {
            "zero": np.zeros(count, dtype),
            "constant": np.full(count, wild[0]),
            "few": wild[r.integers(0, min(count, 5), count)],
            "steps": (r.integers(0, 3, count).cumsum() % 127).astype(dtype),
            "sparse": np.where(r.random(count) < 0.1, wild, np.zeros(1, dtype)),
            "noise": wild,
            "edge": r.choice(np.array([info.min, info.max], dtype), count),
        }
        records[name] = made[shape]
    body = Encoder().encode(records)
    assert decode_records(body, count).tobytes() == records.tobytes()


def test_thousands_of_handles_are_distinguished_though_many_share_a_slot() -> None:
    count = CHUNK_RECORDS
    r = np.random.default_rng(5)
    records = realistic(count)[:count]
    handles = r.integers(1, 2**63, count // 4 - 1, np.uint64)
    records["stream"] = np.concatenate([handles, r.choice(handles, count - len(handles))])
    body = Encoder().encode(records)
    nodes = {name: node for name, _dtype, node in msgpack.unpackb(body)}
    assert nodes["stream"][:2] == ["dict", len(np.unique(handles))]
    assert decode_records(body, count).tobytes() == records.tobytes()


def test_lost_records_and_racing_cpus_keep_their_numbers() -> None:
    records = realistic(3000)
    r = np.random.default_rng(2)
    kept = records[np.sort(r.choice(len(records), 4000, replace=False))]
    racing = kept[np.argsort(np.arange(4000) + r.integers(0, 40, 4000), kind="stable")]
    racing["seq"] += np.uint32(2**32 - 2000)  # wraps on the way
    assert decode_records(Encoder().encode(racing), 4000).tobytes() == racing.tobytes()


def test_the_caller_may_reuse_its_array(tmp_path: Path) -> None:
    records = realistic(200)
    expected = records.tobytes()
    writer = SessionWriter(tmp_path / "s", HEADER)
    writer.write(records)
    records["t_end"] = 7
    writer.close()
    assert flat(read(tmp_path / "s")) == [expected]


def test_records_come_with_aliases_padding_or_gaps(tmp_path: Path) -> None:
    records = realistic(200)
    strided = np.dtype(
        {
            "names": list(RECORD.names or ()),
            "formats": [RECORD[name] for name in RECORD.names or ()],
            "offsets": [RECORD.fields[name][1] for name in RECORD.names or ()] if RECORD.fields else [],
            "itemsize": STRIDE_BYTES,
        }
    )
    padded = np.zeros(len(records), strided)
    for name in RECORD.names or ():
        padded[name] = records[name]
    write(tmp_path / "s", [records.view(ALIASED), padded, np.repeat(records, 2)[::2]])
    assert flat(read(tmp_path / "s")) == [records.tobytes() * 3]


def test_a_seek_yields_the_facts_and_the_window(tmp_path: Path) -> None:
    items = session(realistic(8000), ticks=8)
    reader = SessionReader(write(tmp_path / "s", items))
    since = int(reader.marks[4]) + 1
    got = list(reader.items_until(5, since, since))
    assert got[-1] == Sample("mark", int(reader.marks[5]), {"lost": [0, 0, 5, 0, 0]})
    kinds = [item.kind for item in got if isinstance(item, Sample)]
    assert kinds == ["apis", *["names"] * 5, "gpus", "names", "mark"]
    first = next(item for item in got if not isinstance(item, Sample))
    assert first["t_end"].max() >= since
    assert flat(list(reader.items_between(4, 5))) == flat(items[1 + 5 * 5 : 1 + 6 * 5])
    assert flat([*reader.items_between(-1, 3), *reader.items_between(3, 8)]) == flat(items)
    for wrong in (-1, 8):
        with pytest.raises(IndexError):
            reader.items_until(wrong, 0, 0)


def test_any_msgpack_library_reads_the_file(tmp_path: Path) -> None:
    items = session(realistic(2000))
    path = write(tmp_path / "s", items)
    with path.open("rb") as stream:
        objects = list(msgpack.Unpacker(stream))
    assert objects[0]["format"] == "gputop.session"
    assert [chunk[6] for chunk in objects[1:5]] == ["header", "apis", "records", "gpus"]
    assert objects[-2][6] == "index"
    assert len(objects[-1]) == 16


def test_a_long_batch_is_cut_and_put_together_again(tmp_path: Path) -> None:
    records = realistic(2 * CHUNK_RECORDS)
    write(tmp_path / "s", [records])
    sizes = [len(item) for item in read(tmp_path / "s") if not isinstance(item, Sample)]
    assert max(sizes) == CHUNK_RECORDS
    assert flat(read(tmp_path / "s")) == [records.tobytes()]


@pytest.mark.parametrize("private", [False, True])
def test_nothing_to_record_is_no_problem(tmp_path: Path, private: bool) -> None:
    path = write(tmp_path / "s", [])
    assert read(path) == []
    assert SessionReader(path).marks.tolist() == []
    assert SessionReader(path).problems == []
    write(path, [empty(0), Sample("mark", 5, {}), empty(0)], private=private)
    assert read(path) == [Sample("mark", 5, {})]


def test_text_that_is_no_unicode_becomes_text(tmp_path: Path) -> None:
    write(tmp_path / "s", [Sample("names", 1, {"7": "a\udcffb", "deep": [{"x": None, "y": 1.5, 3: True}]})])
    (sample,) = read(tmp_path / "s")
    assert sample == Sample("names", 1, {"7": "a?b", "deep": [{"x": None, "y": 1.5, 3: True}]})


def test_a_sample_too_large_becomes_a_problem(tmp_path: Path) -> None:
    write(tmp_path / "s", [Sample("names", 1, {"7": "a" * (3 << 20)}), Sample("records", 1, {})])
    kinds = [item.kind for item in read(tmp_path / "s") if isinstance(item, Sample)]
    assert kinds == ["problem", "problem"]


@pytest.mark.parametrize("name", ["dataloader", "numpy-sync"])
def test_small_chunks_take_less_than_when_the_recordings_of_the_repository_were_made(
    tmp_path: Path, name: str
) -> None:
    old = RECORDINGS / f"{name}.msgpack"
    reader = SessionReader(old)
    writer = SessionWriter(tmp_path / "new", reader.header)
    items = list(reader.items())
    reader.close()
    for item in items:
        writer.write(item)
    writer.close()
    assert flat(read(tmp_path / "new")) == flat(items)
    assert (tmp_path / "new").stat().st_size < 0.9 * old.stat().st_size

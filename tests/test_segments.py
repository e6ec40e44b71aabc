"""A recording in segments: each stands alone, and all of them together are the recording that was not cut."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from gputop.api import stretches, totals
from gputop.api.functions import explain, stats
from gputop.api.session import Session
from gputop.documents.fields import document
from gputop.engine.stats_output import stats_to_json
from gputop.engine.tally import Tally
from probes.source import MARK, Item, Sample
from replay.coding.file_format import SessionError
from replay.items import FACTS
from replay.reader import SessionReader
from replay.segments import SegmentLimits, SegmentsReader, SegmentWriter, segment_names
from tests.session_data import flat, loaded

FOLDER = Path(__file__).parent.parent / "recordings"
RECORDINGS = ["dataloader", "dataloader-workers", "storm"]


def cut(name: str, path: Path, *, marks: int = 3, private: bool = False) -> list[Item]:
    """Writes a recording in segments of so many marks; returns its items."""
    header, items = loaded(name)
    now = [0]
    limits = SegmentLimits(span_ns=marks)
    writer = SegmentWriter(str(path), header, limits, private=private, sums=Tally, clock=lambda: now[0])
    for item in items:
        now[0] += isinstance(item, Sample) and item.kind == MARK
        writer.write(item)
    writer.close()
    return items


@pytest.mark.parametrize("name", RECORDINGS)
@pytest.mark.slow
def test_segments_are_read_as_the_recording_that_was_not_cut(name: str, tmp_path: Path) -> None:
    items = cut(name, tmp_path / "cut")
    assert len(segment_names(str(tmp_path / "cut"))) >= 5
    reader = SegmentsReader(tmp_path / "cut")
    assert flat(list(reader.items())) == flat(items)
    assert not reader.problems
    reader.close()


@pytest.mark.parametrize("marks", [1, 2])
def test_each_segment_can_be_shown_wherever_the_recording_ends(marks: int, tmp_path: Path) -> None:
    items = cut("storm", tmp_path / "cut", marks=marks)
    (ends,) = {sum(isinstance(one, Sample) and one.kind == MARK for one in items)}
    names = segment_names(str(tmp_path / "cut"))
    assert len(names) == -(-ends // marks)
    for name in names:
        reader = SessionReader(tmp_path / "cut" / name)
        assert len(reader.marks)
        reader.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDINGS)
@pytest.mark.mainly("dataloader-workers", "dataloader")
def test_totals_and_answer_of_segments_are_those_of_one_file(name: str, tmp_path: Path) -> None:
    cut(name, tmp_path / "cut")
    path = FOLDER / f"{name}.msgpack"
    assert stats_to_json(stats(tmp_path / "cut")) == stats_to_json(stats(path))
    assert document(explain(tmp_path / "cut")) == document(explain(path))
    with Session(tmp_path / "cut") as one, Session(path) as other:
        assert list(one.frames()) == list(other.frames())
        assert one.frame_at(2.0) == other.frame_at(2.0)


def test_a_long_recording_in_segments_is_added_up_in_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut("dataloader", tmp_path / "cut")
    last = sorted((tmp_path / "cut").iterdir())[-1]
    last.write_bytes(last.read_bytes()[:-40])  # its recorder was killed: no totals
    monkeypatch.setattr(totals, "LONG_BYTES", 1)
    monkeypatch.setattr(totals, "SEGMENT_BYTES", 20_000)
    found = stats(tmp_path / "cut")
    assert found.processes == stats(FOLDER / "dataloader.msgpack").processes
    assert any(f"{last.name}: " in problem for problem in found.problems)


@pytest.mark.slow
def test_a_long_recording_in_segments_is_explained_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut("dataloader-workers", tmp_path / "cut")
    whole = explain(FOLDER / "dataloader-workers.msgpack")
    monkeypatch.setattr(stretches, "NEED", 1 << 14)
    monkeypatch.setattr(stretches, "LEAST_PART", 40_000)
    report = explain(tmp_path / "cut", memory_bytes=1 << 30)
    assert "parts were analysed and joined" in report.notes[0]
    assert report.idle.lower == whole.idle.lower
    assert (report.span_ns, report.outside_ns) == (whole.span_ns, whole.outside_ns)


@pytest.mark.slow
def test_each_segment_stands_alone(tmp_path: Path) -> None:
    items = cut("dataloader-workers", tmp_path / "cut")
    names = {
        sample.data["pid"]: sample.data["name"]
        for sample in items
        if isinstance(sample, Sample) and sample.kind == "process" and sample.data.get("name")
    }
    events = 0
    ends = []
    for path in sorted((tmp_path / "cut").iterdir()):
        with Session(path) as session:
            found = session.totals()
            events += found.events
            assert found.lost.events == 0
            assert {one.name for one in found.processes if one.calls} <= set(names.values())
            ends.append((session.start_ns, session.start_ns + session.duration_ns))
        explain(path)
    assert events == sum(len(item) for item in items if not isinstance(item, Sample))
    assert [end for _, end in ends[:-1]] == [start for start, _ in ends[1:]], "no gap between two"


def test_a_segment_that_is_missing_or_damaged_is_reported(tmp_path: Path) -> None:
    cut("dataloader", tmp_path / "cut", marks=2)
    files = sorted((tmp_path / "cut").iterdir())
    files[2].unlink()
    files[4].write_bytes(b"nothing of a session")
    reader = SegmentsReader(tmp_path / "cut")
    assert any("the segment before 00004.gputop is missing" in text for text in reader.problems)
    assert any("a segment is left out" in text for text in reader.problems)
    marks = reader.marks.tolist()
    assert all(low < high for low, high in pairwise(marks))
    facts = [item.kind for item in reader.items() if isinstance(item, Sample) and item.kind in FACTS]
    assert facts.count("apis") == 3, "who comes behind a gap tells again what is known"
    reader.close()


def test_only_the_newest_segments_are_kept_where_that_is_wanted(tmp_path: Path) -> None:
    header, items = loaded("dataloader")
    now = [0]
    limits = SegmentLimits(span_ns=2, keep=3)
    writer = SegmentWriter(str(tmp_path / "cut"), header, limits, clock=lambda: now[0])
    for item in items:
        now[0] += isinstance(item, Sample) and item.kind == MARK
        writer.write(item)
    writer.close()
    left = segment_names(str(tmp_path / "cut"))
    assert len(left) == 3
    assert left[0] > "00003"
    on_disk = sum(path.stat().st_size for path in (tmp_path / "cut").iterdir())
    assert writer.size_bytes == pytest.approx(on_disk, rel=0.05)
    with Session(tmp_path / "cut") as session:
        assert not session.problems
        assert session.duration_ns < stats(FOLDER / "dataloader.msgpack").duration_ns
        assert {one.name for one in session.processes if one.calls} == {"python"}
    assert explain(tmp_path / "cut").findings[0].cause == "C12"


def test_private_names_are_the_same_in_all_segments(tmp_path: Path) -> None:
    cut("dataloader-workers", tmp_path / "cut", private=True)
    called: dict[int, set[str]] = {}
    for path in sorted((tmp_path / "cut").iterdir()):
        reader = SessionReader(path)
        assert reader.header["private"] is True
        for sample in reader.samples("client"):
            called.setdefault(sample.data["pid"], set()).add(sample.data["name"])
        reader.close()
    assert called
    assert all(len(names) == 1 for names in called.values())


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    cut("dataloader", tmp_path / "cut")
    with pytest.raises(SessionError, match="holds something already"):
        SegmentWriter(str(tmp_path / "cut"), {}, SegmentLimits(size=1 << 20))
    (tmp_path / "file").write_text("a file")
    with pytest.raises(SessionError, match="is a file, and segments need a folder"):
        SegmentWriter(str(tmp_path / "file"), {}, SegmentLimits(size=1 << 20))


@pytest.mark.slow
def test_a_folder_without_segments_and_one_of_two_recordings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="a folder without segments"):
        SegmentsReader(tmp_path)
    cut("dataloader", tmp_path / "one")
    cut("storm", tmp_path / "two")
    (tmp_path / "two" / "00001.gputop").rename(tmp_path / "one" / "00099.gputop")
    with pytest.raises(SessionError, match="segments of several recordings"):
        SegmentsReader(tmp_path / "one")


def test_a_segment_ends_at_the_first_mark_at_its_size(tmp_path: Path) -> None:
    header, items = loaded("storm")
    writer = SegmentWriter(str(tmp_path / "cut"), header, SegmentLimits(size=200_000))
    for item in items:
        writer.write(item)
    writer.close()
    sizes = [path.stat().st_size for path in sorted((tmp_path / "cut").iterdir())]
    assert len(sizes) >= 3
    assert min(sizes[:-1]) >= 200_000
    assert writer.size_bytes == pytest.approx(sum(sizes), rel=0.02)
    assert writer.events == sum(len(item) for item in items if not isinstance(item, Sample))
    assert json.dumps(stats_to_json(stats(tmp_path / "cut")))

"""A recording that went on after it was ingested counts as it is now, and once."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.fleet.ingest import ingest
from gputop.fleet.lake.lake_tables import COLUMNS
from probes.source import MARK, Item, Sample
from replay.segments import SegmentLimits, SegmentWriter
from tests.conftest import needed
from tests.fleet_jobs import CPU, Job, record
from tests.fleet_lakes import asked, content
from tests.split_recording import read, write

NUMBERS = {"own_pid": 77}  # of who recorded: with the boot and the begin no other recording has them


@pytest.fixture(autouse=True)
def _lake_packages() -> None:
    needed("duckdb")
    needed("pyarrow")


JOB = Job(1, late=1, ms=9, how=CPU, steps=200)


def ranks(folder: Path, **header: object) -> list[Path]:
    """Recordings of the ranks of a job, one of them late."""
    return record(folder, JOB, **header)


def taken(*files: Path, into: Path) -> dict[str, list[tuple[object, ...]]]:
    """What is in a lake after another run."""
    ingest([*map(str, files)], str(into), 1)
    return content(into)


def begin_of(path: Path, share: float) -> None:
    """What there was of a recording after a part of its marks."""
    header, items = read(path)
    marks = [place for place, item in enumerate(items) if isinstance(item, Sample) and item.kind == MARK]
    write(path, header, items[: marks[int(share * len(marks))] + 1])


def in_segments(folder: Path, header: dict[str, object], items: list[Item]) -> list[Path]:
    """The same recording in segments of three marks."""
    now = [0]
    writer = SegmentWriter(str(folder), header, SegmentLimits(span_ns=3), clock=lambda: now[0])
    for item in items:
        now[0] += isinstance(item, Sample) and item.kind == MARK
        writer.write(item)
    writer.close()
    return sorted(folder.iterdir())


def test_what_was_ingested_while_it_was_written_is_replaced_in_every_table(tmp_path: Path) -> None:
    files = ranks(tmp_path, **NUMBERS)
    truth = taken(*files, into=tmp_path / "truth")
    assert all(truth[table] for table in COLUMNS if table != "problems")
    whole = files[1].read_bytes()
    for part in (0.4, 0.7):
        begin_of(files[1], part)
        grown = taken(*files, into=tmp_path / "lake")
        assert len(grown["sessions"]) == len(files)
        assert grown["sessions"] != truth["sessions"]
        files[1].write_bytes(whole)
    assert taken(*files, into=tmp_path / "lake") == truth


@pytest.mark.long
def test_what_was_torn_when_it_was_ingested_is_no_problem_any_more(tmp_path: Path) -> None:
    (path, *_others) = ranks(tmp_path, **NUMBERS)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1000])
    assert len(taken(path, into=tmp_path / "lake")["problems"]) == 1
    path.write_bytes(whole)
    assert taken(path, into=tmp_path / "lake")["problems"] == []


@pytest.mark.long
def test_what_is_ingested_in_another_order_counts_as_far_as_it_ever_went(tmp_path: Path) -> None:
    files = ranks(tmp_path, **NUMBERS)
    truth = taken(*files, into=tmp_path / "lake")
    begin_of(files[1], 0.5)
    assert taken(*files, into=tmp_path / "lake") == truth


@pytest.mark.long
def test_another_segment_makes_no_second_session_also_where_the_first_ones_were_removed(
    tmp_path: Path,
) -> None:
    segments = in_segments(tmp_path / "cut", *read(ranks(tmp_path, **NUMBERS)[0]))
    assert len(segments) >= 3
    last, lake = segments[-1].read_bytes(), tmp_path / "lake"
    segments[-1].unlink()
    first = taken(tmp_path / "cut", into=lake)["sessions"]
    segments[-1].write_bytes(last)
    second = taken(tmp_path / "cut", into=lake)["sessions"]
    segments[0].unlink()
    third = taken(tmp_path / "cut", into=lake)["sessions"]
    assert [len(rows) for rows in (first, second, third)] == [1, 1, 1]
    assert first != second
    assert second == third, "what was removed was there when it was looked at"


def test_segments_that_are_named_one_by_one_are_parts_of_which_each_counts(tmp_path: Path) -> None:
    segments = in_segments(tmp_path / "cut", *read(ranks(tmp_path, **NUMBERS)[0]))
    found = taken(*segments, into=tmp_path / "lake")
    assert {row[1] for row in found["sessions"]} == {*map(str, segments)}


@pytest.mark.long
def test_where_nothing_says_who_recorded_it_each_content_counts(tmp_path: Path) -> None:
    """Private and imported recordings: two of them may begin alike."""
    files = ranks(tmp_path)
    taken(*files, into=tmp_path / "lake")
    begin_of(files[1], 0.5)
    taken(*files, into=tmp_path / "lake")
    assert asked(tmp_path / "lake", "SELECT count(*) FROM sessions") == [(len(files) + 1,)]

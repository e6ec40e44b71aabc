"""Totals of a recording do not depend on where it is cut, nor on who adds it up."""

from __future__ import annotations

import itertools
import os
import pickle
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.api import totals
from gputop.api.functions import stats
from gputop.api.session import Session
from gputop.engine.session_totals import Stats, collect, finish
from gputop.engine.stats_output import stats_to_json
from gputop.engine.tally import Tally, tally
from gputop.parts.mapreduce import Segment, reduced, segments_of, work_on
from gputop.parts.process_pool import PartError, ProcessEndedError, ProcessPool
from probes.schema import RECORD
from probes.source import Item, Sample
from replay.coding import file_format as fmt
from replay.items import FACTS
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests.bench import explain as recording
from tests.each_recording import NAMES as EACH
from tests.session_data import loaded

FOLDER = Path(__file__).parent.parent / "recordings"


def merged(header: dict[str, object], items: list[Item], cuts: list[int]) -> Stats:
    """The totals of the parts between some cuts, joined."""
    borders = [0, *sorted(cuts), len(items)]
    whole = Tally()
    for low, high in itertools.pairwise(borders):
        part = items[low:high]
        sums = pickle.loads(pickle.dumps(tally(part)))
        whole.merge(sums.payload())
        for item in part:  # facts, and what is open, are not part of the sums
            if isinstance(item, Sample):
                whole.consume(item)
    return finish(header, whole)


@pytest.mark.parametrize("name", EACH)
def test_totals_of_parts_are_those_of_the_whole(name: str) -> None:
    header, items = loaded(name)
    whole = stats_to_json(collect(header, items))
    for count in (2, 7):
        cuts = [len(items) * part // count for part in range(1, count)]
        assert stats_to_json(merged(header, items, cuts)) == whole


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(st.data())
@pytest.mark.long
def test_totals_do_not_depend_on_where_a_recording_is_cut(data: st.DataObject) -> None:
    header, items = loaded("dataloader-workers")
    cuts = data.draw(st.lists(st.integers(0, len(items)), max_size=6))
    assert stats_to_json(merged(header, items, cuts)) == stats_to_json(collect(header, items))


def copy(name: str, path: Path) -> None:
    """The recording as a recorder writes it that adds up."""
    header, items = loaded(name)
    writer = SessionWriter(path, header, sums=Tally())
    for item in items:
        writer.write(item)
    writer.close()


@pytest.mark.parametrize("name", EACH)
def test_totals_at_the_end_of_a_file_are_those_of_its_records(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy(name, tmp_path / "copy")
    kinds: set[str] = set()
    body = totals.SessionReader.item_at

    def seen(self: SessionReader, row: int, allowance: object) -> object:
        kinds.add(self._table.kinds[self._table.kind[row]])
        return body(self, row, allowance)  # type: ignore[arg-type]

    with Session(tmp_path / "copy") as session:
        monkeypatch.setattr(SessionReader, "item_at", seen)
        told, asked = stats_to_json(session.totals()), set(kinds)
    assert told == stats_to_json(stats(FOLDER / f"{name}.msgpack"))
    assert asked <= FACTS | {fmt.TOTALS, "open", "mark"}, "no record is read"


def test_totals_of_a_damaged_file_are_those_of_what_is_left(tmp_path: Path) -> None:
    copy("dataloader", tmp_path / "copy")
    data = bytearray((tmp_path / "copy").read_bytes())
    end = fmt.parse_trailer(bytes(data[-fmt.TRAILER_BYTES :]))
    (tmp_path / "cut").write_bytes(data[:end])
    assert stats(tmp_path / "cut").events == stats(FOLDER / "dataloader.msgpack").events
    assert any("did not finish" in problem for problem in stats(tmp_path / "cut").problems)


def test_a_long_file_is_added_up_in_processes_and_a_short_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = FOLDER / "dataloader-workers.msgpack"
    whole = stats_to_json(stats(path))
    monkeypatch.setattr(totals, "LONG_BYTES", 1)
    monkeypatch.setattr(totals, "SEGMENT_BYTES", 40_000)
    started: list[int] = []
    monkeypatch.setattr(totals, "reduced", lambda *words: [started.append(1), reduced(*words)][1])
    assert stats_to_json(stats(path)) == whole
    assert started


def test_segments_hold_each_mark_once() -> None:
    for marks, count in ((1, 1), (1, 4), (10, 3), (23, 23), (5, 100)):
        segments = segments_of("f", marks, count)
        assert [segment.after_mark for segment in segments[1:]] == [one.until_mark for one in segments[:-1]]
        assert (segments[0].after_mark, segments[-1].until_mark) == (-1, marks)


class Dying:
    """Work whose process dies."""

    def map(self, segment: Segment) -> int:
        """Its end, in whichever process it is."""
        os._exit(len(segment.path))

    def merge(self, earlier: int, later: int) -> int:
        """Never happens."""
        return earlier + later

    def finish(self, whole: int) -> int:
        """Never happens."""
        return whole


def test_a_part_that_needs_nothing_of_those_before_it_does_not_wait_for_them() -> None:
    """What the next part must know is there before this one is looked at, which would end this process."""
    assert next(work_on(Dying(), Segment("f", -1, 1), b"")) == b""


def test_a_process_that_dies_takes_no_other_work_with_it() -> None:
    with ProcessPool(2) as pool:
        alive, dead = pool.submit(sorted, "ba"), pool.submit(os._exit, 3)
        with pytest.raises(ProcessEndedError, match=r"has ended \(3\)"):
            dead.result()
        assert alive.result() == ["a", "b"]
        assert pool.submit(sorted, "dc").result() == ["c", "d"]


@pytest.mark.long
@pytest.mark.slow
def test_a_part_is_added_up_without_holding_all_of_it(tmp_path: Path) -> None:
    events = recording.write(tmp_path / "long.msgpack", 24_000)
    with closing(SessionReader(tmp_path / "long.msgpack")) as reader:
        marks = len(reader.marks)
    tracemalloc.start()
    try:
        part = totals.Totals({}, Tally()).map(Segment(str(tmp_path / "long.msgpack"), -1, marks))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert part.sums.events >= events
    assert peak < events * RECORD.itemsize / 3


def test_a_process_that_dies_is_told_in_a_sentence() -> None:
    work = totals.Totals({}, Tally())
    with pytest.raises(PartError, match="there is no file"):
        reduced(work, [Segment("/nowhere", -1, 1)], 1)
    with pytest.raises(PartError, match="has ended"):
        reduced(Dying(), [Segment("f", -1, 1)], 1)

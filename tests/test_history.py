"""The live history: the same frames as the live ones, the oldest out first, kept as a valid session file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import gputop
from gputop.analysis.evidence.gatherer import Gatherer
from gputop.engine.engine import Engine
from gputop.engine.facts import Facts
from gputop.engine.frame import Frame
from gputop.engine.session_totals import collect
from gputop.engine.stats_output import stats_to_json
from gputop.engine.tally import Tally, tally
from gputop.playback.player import frame_at
from probes.source import Sample
from replay.past.history import PARTS, History
from replay.past.history_reader import HistoryReader
from replay.past.keep_history import HistoryCopy
from replay.reader import SessionReader
from replay.state_snapshot import FactBook
from replay.writer import SessionWriter
from tests import items as made
from tests.history_session import TICK, session


def written(history: History, marks: int, **more: int) -> list[Frame]:
    """The frames of the live engine while the history is written."""
    engine, frames = Engine(history.header), []
    for item in session(marks, **more):
        history.write(item)
        if engine.feed(item):
            frames.append(engine.frame())
    return frames


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    """A history of 16 s."""
    made_here = History(made.HEADER, span_ns=16 * made.SECOND, directory=str(tmp_path))
    yield made_here
    made_here.close()


def test_the_files_have_no_name_and_are_nobody_elses(history: History, tmp_path: Path) -> None:
    written(history, 4)
    assert list(tmp_path.iterdir()) == []
    assert os.fstat(history.parts[0].file.fileno()).st_mode & 0o777 == 0o600


def test_frames_from_the_history_are_the_live_ones(history: History) -> None:
    frames = written(history, 40)
    reader = HistoryReader(history)
    assert reader.first == 0
    assert reader.marks.tolist() == [frame.time_ns for frame in frames]
    for index in (0, 7, 20, 39):
        assert frame_at(reader, index) == frames[index]
    engine = Engine(reader.header)
    assert [engine.frame() for item in reader.items() if engine.feed(item)] == frames


def test_the_oldest_goes_first_and_what_was_known_then_stays(history: History) -> None:
    frames = written(history, 160)
    assert 16 <= history.span_ns / made.SECOND <= 16 * (1 + 1 / PARTS)
    reader = HistoryReader(history)
    assert reader.marks[0] == history.start_ns + TICK
    assert reader.header["start_ns"] == history.start_ns
    past = len(frames) - len(reader.marks)
    for index in (12, len(reader.marks) - 1):
        shown, live = frame_at(reader, index), frames[past + index]
        assert shown.processes == live.processes
        assert shown.calls_per_second == live.calls_per_second > 0
        assert shown.window_ns == live.window_ns


def test_the_limit_in_bytes_holds(tmp_path: Path) -> None:
    history = History(made.HEADER, limit_bytes=50_000, directory=str(tmp_path))
    largest = 0
    for item in session(200, calls=10):
        history.write(item)
        largest = max(largest, sum(os.fstat(part.file.fileno()).st_size for part in history.parts))
    assert 50_000 * 0.6 < largest <= 50_000
    assert history.problem == ""
    history.close()


def test_a_reader_keeps_its_numbers_while_the_history_goes_on(history: History) -> None:
    items = list(session(200))
    half = len(items) // 2
    for item in items[:half]:
        history.write(item)
    reader = HistoryReader(history)
    marks = reader.marks.tolist()
    for item in items[half:]:
        history.write(item)
    assert reader.refresh()
    assert reader.marks.tolist()[: len(marks)] == marks
    assert reader.marks[-1] == made.START + 200 * TICK
    assert reader.first > 0
    assert len(list(reader.items_between(reader.first, len(reader.marks) - 1)))
    assert all(isinstance(item, Sample) for item in reader.items_between(0, 1)), "records are gone"
    assert reader.problems == []


def test_a_full_disk_costs_the_oldest_and_then_all_of_it_but_not_the_session(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(history, 40)
    write, full = os.pwrite, [3]

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        if full[0]:
            full[0] -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data, offset)

    parts = len(history.parts)
    monkeypatch.setattr(os, "pwrite", pwrite)
    history.write(made.process(7))
    assert len(history.parts) == parts - 3
    assert "shorter" in history.problem
    assert "No space left on device" in history.problem
    full[0] = 100
    history.write(made.process(8))
    assert history.parts == []
    assert history.size_bytes == 0
    assert "no stepping back" in history.problem
    history.write(made.mark(41, made.START + 41 * TICK))
    assert len(HistoryReader(history).marks) == 0


def kept(history: History, path: Path, *, whole: bool = True, private: bool = False) -> SessionWriter:
    """A recording that goes on beside the history."""
    copy = HistoryCopy(history, whole=whole)
    writer = SessionWriter(path, copy.header, private=private)
    copy.copy_into(writer, private=private)
    return writer


def test_kept_from_its_beginning_it_is_the_recording_that_was_not_made(
    history: History, tmp_path: Path
) -> None:
    items = list(session(40))
    for item in items[:60]:
        history.write(item)
    writer = kept(history, tmp_path / "kept.gputop")
    for item in items[60:]:
        history.write(item)
    writer.close()
    plain = SessionWriter(tmp_path / "plain.gputop", made.HEADER)
    for item in items:
        plain.write(item)
    plain.close()
    assert (tmp_path / "kept.gputop").read_bytes() == (tmp_path / "plain.gputop").read_bytes()


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("private", [True, False])
def test_what_is_kept_of_a_cut_history_stands_alone(
    history: History, tmp_path: Path, *, whole: bool, private: bool
) -> None:
    items = list(session(200, lost=5))
    half = len(items) // 2
    for item in items[:half]:
        history.write(item)
    writer = kept(history, tmp_path / "kept.gputop", whole=whole, private=private)
    for item in items[half:]:
        history.write(item)
    engine = Engine(made.HEADER)
    frames = [engine.frame() for item in items if engine.feed(item)]
    writer.close()
    reader = SessionReader(tmp_path / "kept.gputop")
    assert reader.problems == []
    assert reader.header["start_ns"] < int(reader.marks[0])
    span = (int(reader.marks[-1]) - int(reader.marks[0])) / made.SECOND
    assert span > 38 if whole else span <= 26
    last = frame_at(reader, len(reader.marks) - 1)
    assert last.calls_per_second == frames[-1].calls_per_second
    assert [row.pid for row in last.processes] == [row.pid for row in frames[-1].processes]
    assert last.lost.events == 0, "lost before the file begins"


@pytest.mark.parametrize("late", [0, 60, 700])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("private", [True, False])
@pytest.mark.mainly("True-True-0", "True-False-60", "False-True-60", "False-False-0")
def test_what_is_recorded_beside_the_history_ends_with_its_totals(
    history: History, tmp_path: Path, *, late: int, whole: bool, private: bool
) -> None:
    """From the first item on (--record), or later with or without the past (key R)."""
    items = list(session(200, lost=5))
    for item in items[:late]:
        history.write(item)
    copy = HistoryCopy(history, whole=whole)
    writer = SessionWriter(tmp_path / "kept", copy.header, private=private, sums=Tally())
    copy.copy_into(writer, private=private)
    for item in items[late:-3]:
        history.write(item)
    history.tee(None)  # what the history has gathered and not packed yet is not in the file
    writer.close()
    reader = SessionReader(tmp_path / "kept")
    told = reader.totals()
    assert told is not None
    found, read = Tally(), tally(reader.items())
    found.merge(told[0])
    assert found.payload() == read.payload()
    assert stats_to_json(gputop.stats(tmp_path / "kept")) == stats_to_json(
        collect(reader.header, reader.items())
    )


def test_the_first_numbers_of_a_cut_recording_are_no_losses(history: History, tmp_path: Path) -> None:
    written(history, 160, lost=5)
    kept(history, tmp_path / "kept.gputop").close()
    reader = SessionReader(tmp_path / "kept.gputop")
    gatherer = Gatherer(reader.header)
    for item in reader.items():
        gatherer.feed(item)
    assert gatherer.counted_lost == 0
    assert gatherer.losses.records == 0
    whole = Gatherer(made.HEADER)
    for item in session(8):
        if not (isinstance(item, np.ndarray) and int(item["seq"][0]) == 4):
            whole.feed(item)
    assert whole.losses.records == 3


def test_a_recording_that_fails_leaves_the_history(history: History, tmp_path: Path) -> None:
    written(history, 8)
    writer = kept(history, tmp_path / "kept.gputop")
    writer.close()
    history.write(made.mark(9, made.START + 9 * TICK))
    assert "closed" in history.tee_failure
    assert len(HistoryReader(history).marks) == 9


def test_facts_reported_again_are_the_same_facts() -> None:
    told = [
        made.apis(),
        made.process(10, exited_ns=made.START + 5, exit_code=1),
        made.process(10, made.START + 9, name="its number was used again"),
        made.process(11, cuda_devices=[0]),
        Sample("process", made.START + 2, {"pid": 11, "called": True}),
        made.names(made.START, {11: "old"}),
        made.names(made.START + 1, {11: "new", 12: "worker"}),
        Sample("files", made.START, {"pid": [11], "fd": [3], "what": ["pipe"]}),
        Sample("frames", made.START, {"pid": [11], "stack": [7], "frames": [[["a.py", 3, "f"]]]}),
        Sample("problem", made.START, {"text": "not to be seen", "about": "x"}),
        Sample("problem", made.START, {"text": "", "about": "x"}),
        Sample("problem", made.START, {"text": "no lines"}),
        Sample("note", made.START, {"text": "attached"}),
    ]
    halves = FactBook(), FactBook()
    for place, sample in enumerate(told):
        halves[place >= 6].consume(sample)
    halves[0].absorb(halves[1])
    first, second = Facts(), Facts()
    for sample in told:
        first.consume(sample)
    for sample in halves[0].samples(made.START):
        second.consume(sample)
    assert second.processes == first.processes
    assert second.problems(None) == first.problems(None) == ("no lines",)
    assert second.notes() == first.notes()
    assert [second.thread_name(tid) for tid in (11, 12)] == ["new", "worker"]
    assert second.stacks.frames(7) == first.stacks.frames(7) != ()

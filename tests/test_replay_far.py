"""A far jump in a long recording reads what it shows, not all that was before it; what that costs is said."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.analysis import live
from gputop.analysis.live import ReplayExplainer
from gputop.analysis.window import FIRST_LOOK, LATE, WINDOW_NS
from probes.source import MARK, Item, Sample
from replay.reader import SessionReader
from tests import long_session
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
RECORDING = Path(__file__).resolve().parents[1] / "recordings" / "dataloader-workers.msgpack"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of two minutes."""
    made = tmp_path_factory.mktemp("far") / "long"
    long_session.write(RECORDING, made, 90_000)
    return made


@pytest.fixture
def reader(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SessionReader]:
    monkeypatch.setattr(live, "FAR_BYTES", 50_000)
    found = SessionReader(path)
    yield found
    found.close()


def test_a_far_jump_says_what_the_last_seconds_say(
    reader: SessionReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = len(reader.marks) - 20
    jumped = ReplayExplainer(reader).verdict_at(index).report
    monkeypatch.setattr(live, "FAR_BYTES", 1 << 60)
    whole = ReplayExplainer(reader).verdict_at(index).report
    assert jumped.notes[0] == LATE
    assert LATE not in whole.notes
    assert [row.cause for row in jumped.findings] == [row.cause for row in whole.findings]
    assert jumped.idle.lower <= whole.idle.lower
    assert jumped.idle.middle == pytest.approx(whole.idle.middle, rel=0.02)
    assert jumped.lost_events == whole.lost_events == 0
    assert jumped.start_ns == whole.start_ns
    # a jump proves less, and what is proved names proved moments: the worst is the same
    assert jumped.findings[0].moments_ns[0] == whole.findings[0].moments_ns[0]
    assert jumped.duration_ns == whole.duration_ns == WINDOW_NS


def test_a_far_jump_reads_no_records_but_those_near(
    reader: SessionReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = len(reader.marks) - 20
    reached = int(reader.marks[index]) - 20 * 10**9
    oldest: list[int] = []
    rows = SessionReader.rows_of

    def seen(self: SessionReader, wanted: range | list[int]) -> Iterator[Item]:
        for item in rows(self, wanted):
            if not isinstance(item, Sample):
                oldest.append(int(item["t_end"].min()))
            yield item

    monkeypatch.setattr(SessionReader, "rows_of", seen)
    ReplayExplainer(reader).verdict_at(index)
    assert min(oldest) > reached


def test_from_a_near_moment_on_all_is_read_and_nothing_is_reported(reader: SessionReader) -> None:
    explainer = ReplayExplainer(reader)
    index = int(reader.marks.searchsorted(int(reader.marks[0]) + 12 * 10**9))
    assert LATE not in explainer.verdict_at(index).report.notes
    following = index + 4
    assert LATE not in explainer.verdict_at(following).report.notes
    back = ReplayExplainer(reader)
    assert back.verdict_at(len(reader.marks) - 20).report.notes[0] == LATE
    assert LATE not in back.verdict_at(index).report.notes


def test_after_a_jump_playing_goes_on_from_there(reader: SessionReader) -> None:
    explainer = ReplayExplainer(reader)
    index = len(reader.marks) - 40
    explainer.verdict_at(index)
    items = [0]
    between = SessionReader.items_between

    def counted(self: SessionReader, after: int, until: int) -> Iterator[Item]:
        for item in between(self, after, until):
            items[0] += isinstance(item, Sample) and item.kind == MARK
            yield item

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SessionReader, "items_between", counted)
        explainer.verdict_at(index + 8)
    assert items[0] == 8


def test_a_first_look_is_there_at_once_and_says_what_it_is(
    reader: SessionReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "FIRST_BYTES", 10_000)
    index = len(reader.marks) - 20
    whole = ReplayExplainer(reader).verdict_at(index)
    go, may_read = ReplayExplainer.go_to, threading.Event()

    def held(self: ReplayExplainer, at: int) -> bool:
        may_read.wait()
        return go(self, at)

    monkeypatch.setattr(ReplayExplainer, "go_to", held)
    explainer = ReplayExplainer(reader)
    explainer.start()
    try:
        explainer.show(index, exact=True)
        wait_until(lambda: explainer.verdict is not None, "a first look")
        first = explainer.verdict
        assert first is not None
        assert first.first_look
        assert first.end_ns == whole.end_ns
        assert first.report.duration_ns == live.FIRST_LOOK_NS
        assert first.report.notes[:2] == (FIRST_LOOK, LATE)
        may_read.set()
        wait_until(lambda: explainer.verdict is not first, "the whole explanation")
        assert explainer.verdict == whole
        assert not whole.first_look
    finally:
        may_read.set()
        explainer.close()


def test_what_is_read_soon_needs_no_first_look(reader: SessionReader) -> None:
    explainer = ReplayExplainer(reader)
    assert reader.bytes_between(-1, 8) < live.FIRST_BYTES
    assert not explainer.is_slow(8)


def test_who_stands_still_is_not_answered_twice(
    reader: SessionReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    explainer = ReplayExplainer(reader)
    asked: list[int] = []
    at_mark = ReplayExplainer.at_mark

    def counted(self: ReplayExplainer, *, exact: bool) -> None:
        at_mark(self, exact=exact)
        asked.append(self._index)

    monkeypatch.setattr(ReplayExplainer, "at_mark", counted)
    explainer.start()
    try:
        for index in (8, 8, 9):
            explainer.show(index, exact=True)
            wait_until(lambda: explainer.wanted is None, "the question to be taken")
            wait_until(lambda: explainer.answered is not None, "an answer")
        wait_until(lambda: 9 in asked, "the last answer")
    finally:
        explainer.close()
    assert asked == [8, 9]

"""A moment of the live history is explained as it was while it was live, though its beginning is gone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from gputop.analysis.live import ReplayExplainer
from gputop.analysis.window import Verdict, Window
from replay.past.history import History
from replay.past.history_reader import HistoryReader
from tests import items as made
from tests.random_recording import recording

CHECKPOINT_NS = 3 * made.SECOND


@dataclass
class Session:
    """What was live, and what is left of it."""

    history: History
    verdicts: dict[int, Verdict] = field(default_factory=dict)  # by mark
    checkpoints: list[tuple[int, Window]] = field(default_factory=list)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """Forty seconds of random programs, of which the history holds the last twenty or a little more."""
    folder = tmp_path_factory.mktemp("history")
    session = Session(History(made.HEADER, span_ns=20 * made.SECOND, directory=str(folder)))
    window = Window(made.HEADER)
    for item in recording(5, 40.0):
        session.history.write(item)
        if not window.feed(item):
            continue
        newest = session.checkpoints[-1][0] if session.checkpoints else 0
        if window.end_ns - newest >= CHECKPOINT_NS:
            session.checkpoints.append((window.end_ns, window.compact()))
        if (window.end_ns - made.START) // (made.SECOND // 4) % 8 == 0:
            session.verdicts[window.end_ns] = window.verdict()
    yield session
    session.history.close()


@pytest.mark.slow
def test_from_a_checkpoint_of_the_present_it_is_the_same_to_the_last_figure(session: Session) -> None:
    reader = HistoryReader(session.history)
    explainer = ReplayExplainer(reader, session.checkpoints)
    marks = reader.marks.tolist()
    reachable = [
        at for at in session.verdicts if at in marks and at - marks[0] > 12 * made.SECOND + CHECKPOINT_NS
    ]
    assert len(reachable) >= 2
    for at in (reachable[-1], reachable[0], reachable[-1]):
        assert explainer.verdict_at(marks.index(at)) == session.verdicts[at]


@pytest.mark.slow
def test_near_the_beginning_that_is_left_only_what_is_left_is_explained(session: Session) -> None:
    reader = HistoryReader(session.history)
    explainer = ReplayExplainer(reader, session.checkpoints)
    verdict = explainer.verdict_at(8)
    assert verdict.start_ns == session.history.start_ns > made.START
    assert verdict.report.duration_ns == int(reader.marks[8]) - session.history.start_ns
    assert verdict.report.lost_events == 0

"""The moments worth going to, the bar that shows them, and what can be typed to go elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gputop.analysis.window import Verdict
from gputop.playback.bookmarks import FINDING, LOSS, MARKED, MOST, Landmarks, marker
from gputop.playback.survey import Survey
from gputop.ui.model.look import ASCII, UNICODE, Glyphs, line_width, plain
from gputop.ui.model.time.jump import jump_target
from gputop.ui.model.time.timebar import TransportView, transport_line
from probes.source import MARK, Sample
from replay.reader import SessionReader
from tests import fake_frames as fake
from tests import fake_reports as reports

S = 1_000_000_000
RECORDINGS = Path(__file__).parent.parent / "recordings"


def verdict(end_s: float, *causes: str) -> Verdict:
    """An explanation with these findings and no single gap."""
    report = reports.report(*(reports.finding(cause) for cause in causes), events=())
    return Verdict(report, round(end_s * S), 0, reports.lanes())


def told(landmarks: Landmarks) -> list[tuple[float, str]]:
    """What was found: seconds, and the first word."""
    return [(mark.time_ns / S, mark.text.split()[0]) for mark in landmarks.since(0)]


def test_a_finding_is_reported_when_it_begins_and_again_after_it_was_away() -> None:
    landmarks = Landmarks()
    for second in range(10, 30):
        landmarks.consume_verdict(verdict(second, "C02", *(["C13"] if second >= 20 else [])))
    for second in range(30, 50):
        landmarks.consume_verdict(verdict(second, "C13"))
    landmarks.consume_verdict(verdict(50, "C02", "C13"))
    assert told(landmarks) == [(10, "C02"), (20, "C13"), (50, "C02")]


def test_a_single_long_gap_is_reported_once_after_its_end() -> None:
    landmarks = Landmarks()
    for second in (8, 9):
        landmarks.consume_verdict(Verdict(reports.report(), second * S, S, reports.lanes()))
    assert told(landmarks) == [(8.6, "C18")]


def test_losses_and_silence_are_gaps() -> None:
    landmarks = Landmarks()
    for second, lost in ((1, 0), (2, 0), (3, 7), (4, 7), (9, 7), (10, 9)):
        landmarks.consume_mark(Sample(MARK, second * S, {"lost": {"ring": lost}}))
    found = landmarks.since(0)
    assert [(mark.time_ns // S, mark.kind) for mark in found] == [(3, LOSS), (9, LOSS), (10, LOSS)]
    assert found[0].text == "7 events lost"
    assert found[1].text == "nothing recorded for 5.0 s"


def test_what_was_lost_before_the_first_mark_is_no_gap() -> None:
    landmarks = Landmarks()
    landmarks.consume_mark(Sample(MARK, S, {"lost": {"ring": 100}}))
    assert landmarks.since(0) == ()


def test_there_are_never_more_than_can_be_shown() -> None:
    landmarks = Landmarks()
    for second in range(MOST + 10):
        landmarks.consume_marker(marker(second * S, "x"))
    assert len(landmarks.since(0)) == MOST
    assert landmarks.since(0)[0].time_ns == 10 * S


def test_a_recording_is_searched_for_its_findings() -> None:
    survey = Survey(SessionReader(RECORDINGS / "dataloader.msgpack"))
    survey.read()
    assert any(mark.kind == FINDING and mark.text.startswith("C") for mark in survey.landmarks.since(0))


# -- the bar --------------------------------------------------------------------------------------


def bar(width: int = 60, glyphs: Glyphs = UNICODE, **changes: object) -> str:
    """The line of time of a session of 100 s."""
    view = TransportView(False, 1.0, 50 * S, 0, 100 * S)
    line = transport_line(replace(view, **changes), width, glyphs)  # type: ignore[arg-type]
    assert line_width(line) == width
    return plain(line)


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_bar_shows_findings_gaps_markers_and_the_position(width: int, glyphs: Glyphs) -> None:
    found = ((10 * S, FINDING), (70 * S, LOSS), (90 * S, MARKED), (150 * S, MARKED))
    track = bar(width, glyphs, landmarks=found)
    signs = [sign for sign in track if sign in f"!~M{glyphs.position}"]
    assert signs == ["!", glyphs.position, "~", "M"]


def test_a_marker_is_seen_before_a_finding_and_a_finding_before_a_gap() -> None:
    same = ((10 * S, MARKED), (10 * S, FINDING), (10 * S, LOSS), (80 * S, FINDING), (80 * S, LOSS))
    assert [sign for sign in bar(landmarks=same) if sign in "!~M"] == ["M", "!"]


def test_a_session_of_one_moment_has_a_bar_too() -> None:
    assert "00:00/00:00" in bar(position_ns=7, start_ns=7, end_ns=7, landmarks=((7, FINDING),))


# -- going to a moment ----------------------------------------------------------------------------


@dataclass
class Position:
    """Stands at 60 s of 10 s to 110 s."""

    position_ns: int = 60 * S
    start_ns: int = 10 * S
    end_ns: int = 110 * S


# the frame at 60 s was made at 14:02:31.250 in its zone
FRAME = fake.frame(0)
CLOCK_NS = 14 * 3600 * S + 151_250_000_000


def target(text: str) -> float:
    """Where one gets with this."""
    offset = FRAME.wall_ns // S % 86_400 * S + FRAME.wall_ns % S
    zone = (CLOCK_NS - offset) // S
    frame = replace(FRAME, time_ns=60 * S, start_ns=round(9.5 * S), utc_offset_s=zone)
    return jump_target(text, Position(), frame) / S  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("-30s", 30),
        ("-30", 30),
        (" + 1.5 s ", 61.5),
        ("+500ms", 60.5),
        ("-10m", 10),
        ("+2h", 110),
        ("50%", 60),
        ("0%", 10),
        ("100 %", 110),
        ("12.5", 22),
        ("1m", 69.5),
        ("14:02:31.25", 60),
        ("14:02", 28.75),
        ("14:02:00.5", 29.25),
    ],
)
def test_what_can_be_typed(text: str, seconds: float) -> None:
    assert target(text) == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "Enter a time"),
        ("soon", "is not a time"),
        ("101%", "0% to 100%"),
        ("1000", "outside the range 14:01:41 to 14:03:21, 01:40"),
        ("15:00", "outside the range"),
        ("14:61", "not a time"),
        ("24:00:00", "not a time"),
    ],
)
def test_what_cannot_be_is_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        target(text)

"""A long recording's page, timeline and export are made of parts: they say what the whole would say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gputop.analysis.answer.picture import BUSY, COLUMN_NS, FINDING
from gputop.analysis.answer.report import Report
from gputop.api import looking, stretches
from gputop.api.functions import explain
from gputop.api.looking import Pictured, pictured
from gputop.api.session import open_session
from gputop.exchange.explained import ExplainedRecording, explained
from gputop.report_page.report_html import report_page

FOLDER = Path(__file__).parent.parent / "recordings"
STORM = FOLDER / "storm.msgpack"


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The recording does not fit; how often it was looked at in parts."""
    counted: list[int] = []
    joined = stretches.joined

    def in_parts(*words: object) -> object:
        counted.append(len(stretches.segments_that_fit(words[1], words[2])))  # type: ignore[arg-type]
        return joined(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(looking, "MEMORY", stretches.BASE)
    monkeypatch.setattr(looking, "joined", in_parts)
    return counted


def picture() -> tuple[Report, Pictured]:
    with open_session(STORM) as session:
        return pictured(session)


def pieces() -> ExplainedRecording:
    with open_session(STORM) as session:
        return explained(session)


@pytest.fixture(scope="module")
def whole() -> tuple[Pictured, ExplainedRecording]:
    """With all the memory there is."""
    return picture()[1], pieces()


@pytest.mark.long
@pytest.mark.slow
def test_lanes_of_parts_are_those_of_the_whole_but_for_the_columns_at_their_borders(
    whole: tuple[Pictured, ExplainedRecording], little_memory: list[int]
) -> None:
    in_one, _ = whole
    report, found = picture()
    (parts,) = little_memory
    assert parts > 2
    lanes, expected = found.lanes, in_one.lanes
    assert (lanes.first, lanes.columns - expected.columns) in ((expected.first, 0), (expected.first, 1))
    both = slice(expected.columns)
    for lane in lanes.gpus:
        other = next(one for one in expected.gpus if one.label == lane.label)
        assert (lane.shares[BUSY, both] != other.shares[BUSY]).sum() <= 2 * parts
    assert len(lanes.threads) <= looking.LONG_THREADS
    for one in lanes.threads:
        same = next(row for row in expected.threads if row.tid == one.tid)
        differs = (one.states[:, both] != same.states).any(axis=0)
        known = one.states[:, both].any(axis=0)  # who neither calls nor switches in a part has no lane there
        assert (differs & known).sum() <= parts
        assert found.names[one.tid] == in_one.names[one.tid]
    moments = [moment for finding in report.findings for moment in finding.moments_ns]
    moments += [event.time_ns for event in report.events]
    columns = {(moment + report.start_ns) // COLUMN_NS - lanes.first for moment in moments}
    assert set(np.flatnonzero(lanes.marks[FINDING]).tolist()) == columns & set(range(lanes.columns))


def test_idle_pieces_of_parts_are_the_same_time_by_the_same_causes(
    whole: tuple[Pictured, ExplainedRecording], little_memory: list[int]
) -> None:
    found, expected = pieces().idle, whole[1].idle
    assert little_memory[0] > 2

    def by_level(idle: object, level: str) -> int:
        own = [one == level for one in idle.level]  # type: ignore[attr-defined]
        return int((idle.end - idle.begin)[own].sum())  # type: ignore[attr-defined]

    assert by_level(found, "proved") == by_level(expected, "proved") > 0
    for label in set(found.gpu):
        rows = [row for row, one in enumerate(found.gpu) if one == label]
        begin, end = found.begin[rows], found.end[rows]
        assert (begin[1:] >= end[:-1]).all(), "by begin, and none overlaps another"
    assert set(found.cause) == set(expected.cause)


@pytest.mark.long
def test_the_page_says_of_a_long_recording_what_explain_says(
    little_memory: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stretches, "MEMORY", stretches.BASE)
    with open_session(STORM) as session:
        page = report_page(session, "storm")
    assert little_memory[0] > 2
    report = explain(STORM)
    assert report.verdict in page
    assert report.findings[0].title in page

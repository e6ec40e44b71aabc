"""Nothing is called proved whose name or whose idle time is not: in the text, for every cause there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.analysis.causes import CATALOGUE, CAUSES
from tests.cause_stories import STORIES, report_of_cause
from tests.each_recording import RECORDINGS, REPORTS, report_of
from tests.stories.proofs import false_levels


@REPORTS
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_of_a_recording(path: Path) -> None:
    assert false_levels(report_of(path)) == []


@REPORTS
@pytest.mark.parametrize("number", sorted(STORIES))
def test_of_each_cause(number: str) -> None:
    assert false_levels(report_of_cause(number)) == []


@REPORTS
@pytest.mark.slow
def test_each_cause_that_takes_time_is_among_them() -> None:
    """Else the tests above read nothing of it. Some are shown by a recording alone."""
    missing = {cause.number for cause in (*CATALOGUE, *CAUSES) if cause.fault} - set(STORIES)
    for path in RECORDINGS if missing else ():
        missing -= {one.cause for one in report_of(path).findings}
    assert not missing

"""Nothing is called proved whose name or whose idle time is not: in the text, for every cause there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gputop.analysis.answer.report import Finding, Report
from gputop.analysis.answer.report_output import report_to_markdown, report_to_text
from gputop.analysis.causes import CATALOGUE, CAUSES
from gputop.api.functions import explain
from tests.cause_stories import STORIES

RECORDINGS = sorted((Path(__file__).resolve().parent.parent / "recordings").glob("*.msgpack"))
ORDER = ("hint", "strong", "proved")
LEVELS = re.compile(r"\[(C\d\d), (\w+)\]")
GUESSED = re.compile(r"is inferred|by samples|is estimated")  # sentences of evidence that no proof rests on


def least(finding: Finding) -> str:
    """The less sure of its two levels."""
    return min(str(finding.idle_level), str(finding.name_level), key=ORDER.index)


def holds(report: Report) -> None:
    """Each level that a text names is that of the less sure part, and no guess is a proof."""
    of_cause: dict[str, set[str]] = {}
    for finding in report.findings:
        of_cause.setdefault(finding.cause, set()).add(least(finding))
        guessed = [text for text in finding.evidence if GUESSED.search(text)]
        assert not guessed or least(finding) != "proved", (finding.title, guessed)
        if least(finding) != str(finding.idle_level) and finding.idle_level != finding.name_level:
            assert f"its cause: {finding.name_level}" in " ".join(finding.evidence)
    for text in (report.verdict, report_to_text(report), report_to_markdown(report)):
        for cause, level in LEVELS.findall(re.sub(r"\s+", " ", text)):
            assert level in of_cause.get(cause, {level}), (cause, level)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_of_a_recording(path: Path) -> None:
    holds(explain(path))


@pytest.mark.parametrize("number", sorted(STORIES))
def test_of_each_cause(number: str) -> None:
    holds(STORIES[number]().report())


def test_each_cause_that_takes_time_is_among_them() -> None:
    """Else the tests above read nothing of it. Some are shown by a recording alone."""
    missing = {cause.number for cause in (*CATALOGUE, *CAUSES) if cause.fault} - set(STORIES)
    for path in RECORDINGS if missing else ():
        missing -= {one.cause for one in explain(path).findings}
    assert not missing

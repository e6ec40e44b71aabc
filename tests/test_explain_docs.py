"""The pages in docs/causes/ and the catalogue in the code are the same, and show what gputop prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gputop.analysis.causes import CATALOGUE, CAUSES
from scripts.cause_pages import finding, with_excerpts
from tests.cause_stories import STORIES
from tests.faults.robust import ROBUST
from tests.faults.scenario import SCENARIOS
from tests.faults.suite import drawn

DOCS = Path(__file__).parent.parent / "docs"
INDEX = (DOCS / "causes.md").read_text()
PAGES = {path.stem: path.read_text() for path in sorted((DOCS / "causes").glob("*.md"))}
TITLES = {number: page.splitlines()[0].removeprefix(f"# {number} ") for number, page in PAGES.items()}
PARTS = (
    "What you see",
    "What it means",
    "Evidence",
    "Level and size",
    "How it can be wrong",
    "What to do",
    "Tested",
)


def scenarios_of(number: str) -> list[str]:
    """The scenarios that a page names."""
    return re.findall(r"\b(?:[TMNRS]\d+\w*)\b", PAGES[number].split("\n## Tested\n")[1])


def test_every_cause_has_a_page_and_every_page_is_a_cause() -> None:
    assert sorted(PAGES) == [cause.number for cause in CAUSES]


def test_the_titles_are_those_of_the_reports() -> None:
    assert {cause.number: cause.title for cause in CAUSES} == TITLES


def test_the_index_lists_the_pages_and_the_order_in_which_causes_are_asked() -> None:
    assert dict(re.findall(r"^\| \[(C\d\d)\]\(causes/\1\.md\) \| (.+?) \| ", INDEX, re.MULTILINE)) == TITLES
    order = re.findall(r"C\d\d", INDEX.split("The order is:\n\n")[1].split("\n\n")[0])
    assert order == [cause.number for cause in CATALOGUE]


def test_every_page_says_what_how_sure_and_what_to_do() -> None:
    for number, page in PAGES.items():
        assert tuple(re.findall(r"^## (.+)$", page, re.MULTILINE)) == PARTS, number


@pytest.mark.slow
@pytest.mark.parametrize("number", sorted(PAGES))
def test_what_a_page_shows_is_what_gputop_says(number: str) -> None:
    """``make shown`` writes it again. What is no fault is no finding."""
    (fault,) = (cause.fault for cause in CAUSES if cause.number == number)
    assert bool(re.search(r"^```text\n\d\. ", PAGES[number], re.MULTILINE)) == fault
    assert with_excerpts(PAGES[number]) == PAGES[number]


@pytest.mark.parametrize("number", sorted(STORIES))
def test_made_up_programs_show_their_cause_at_its_best_level(number: str) -> None:
    (level,) = re.findall(rf"\[{number}\].* \| (\w+) \| (?:idle|waste) \|$", INDEX, re.MULTILINE)
    assert f"[{number}, {level}]" in finding(number, number).splitlines()[0]


def test_pages_name_the_scenarios_that_test_them() -> None:
    for scenario in drawn(1):
        for expected in scenario.expected:
            assert scenario.id in scenarios_of(expected.cause), (scenario.id, expected.cause)
    for number in PAGES:
        assert set(scenarios_of(number)) <= set(SCENARIOS) | set(ROBUST), number


def test_links_lead_somewhere() -> None:
    for path in (DOCS / "causes.md", *sorted((DOCS / "causes").glob("*.md"))):
        text = path.read_text()
        for target in re.findall(r"\]\(([^)#]+)", text):
            assert (path.parent / target).exists(), (path.name, target)


def test_the_table_of_classes_is_that_of_the_registry() -> None:
    rows = re.findall(r"^\| [^|]*\(`([\w-]+)`\) \| (C[^|;]+)", INDEX, re.MULTILINE)
    listed = {kind: re.findall(r"C\d\d", causes) for kind, causes in rows}
    kinds = {str(cause.kind) for cause in CAUSES if cause.kind is not None}
    assert listed == {kind: [cause.number for cause in CAUSES if cause.kind == kind] for kind in kinds}

"""No word of a framework that the process has not loaded, in anything that gputop says of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gputop.analysis.answer.report_output import report_to_markdown, report_to_text
from tests.cause_stories import STORIES, report_of_cause
from tests.each_recording import RECORDINGS, REPORTS, report_of
from tests.stories.foreign import WORDS, foreign

# told by frames, or by what a profiler of PyTorch recorded
FRAMED = {"C35": ("numba",), **dict.fromkeys(("C33", "C34", "C36", "C47", "C49", "C50"), ("torch",))}
IMITATES = ("dataloader-workers", "dataloader-fixed")  # PyTorch's threads and workers, their names included


def said(text: str) -> str:
    """Without names of the program's own files and functions."""
    return re.sub(r"\S+\.py:\d+ in \S+", "", text)


@REPORTS
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_of_a_demo_which_drives_the_gpu_by_ctypes(path: Path) -> None:
    loads = ("python", "torch") if path.stem in IMITATES else ("python",)
    assert foreign(said(report_to_text(report_of(path))), loads) == []


@pytest.mark.parametrize("number", sorted(STORIES))
def test_of_each_cause_where_nothing_is_known_to_be_loaded(number: str) -> None:
    program = STORIES[number]()
    if number != "C36":  # told by the names of threads as well
        program.samples = [one for one in program.samples if one.kind != "names"]
    report = program.report()
    loads = ("python", *FRAMED.get(number, ()))
    assert any(one.cause == number for one in report.findings) or number in ("C08", "C09", "C10", "C11")
    for text in (report_to_text(report), report_to_markdown(report)):
        assert foreign(said(text), loads) == []


def test_the_same_with_pytorch_has_its_words() -> None:
    """Else the tests above would hold of any text."""
    assert re.search(WORDS["torch"], report_to_text(report_of_cause("C01")))

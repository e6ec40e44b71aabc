"""A cause is one place: a file more among the causes is asked in its turn, reported, and has no page yet."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.analysis.answer.picture import FAMILIES, UNEXPLAINED
from gputop.analysis.causes import CAUSES
from gputop.analysis.causes.cause import Cause

ROOT = Path(__file__).resolve().parents[1]
RECORDING = "recordings/dataloader.msgpack"
THROWAWAY = '''"""C99: whatever nobody took yet."""

from gputop.analysis.causes.cause import Cause

LEFT = Cause(
    "C99",
    "nobody looked",
    claim=lambda scene, free: free,
    advice=lambda claim: ("look",),
    family="L",
    rank=15,
)
'''
ORDER = """
from gputop.analysis.causes import CATALOGUE
from gputop.analysis.answer.picture import FAMILIES
from gputop.analysis.causes.cause import family_table
print([(one.number, FAMILIES[row].word) for one, row in zip(CATALOGUE, family_table())][:3])
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout with one file more."""
    place = tmp_path_factory.mktemp("checkout")
    unneeded = shutil.ignore_patterns("__pycache__", "screens", "*.so", "*.o")
    for folder in ("gputop", "probes", "replay", "docs", "scripts", "tests"):
        shutil.copytree(ROOT / folder, place / folder, ignore=unneeded)
    (place / "recordings").mkdir()
    for file in ("pyproject.toml", RECORDING):
        shutil.copy(ROOT / file, place / file)
    (place / "gputop/analysis/causes/throwaway.py").write_text(THROWAWAY)
    return place


def python(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in the copy."""
    kept = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *words], cwd=checkout, env=kept, capture_output=True, text=True, check=False
    )


def test_a_file_more_is_asked_in_its_turn_and_has_its_family(checkout: Path) -> None:
    said = python(checkout, "-c", ORDER).stdout
    assert said.strip() == "[('C14', 'no CPU'), ('C99', 'lock'), ('C33', 'data')]"


def test_a_file_more_is_in_the_report(checkout: Path) -> None:
    report = json.loads(python(checkout, "-m", "gputop", "explain", "--json", RECORDING).stdout)
    assert [finding["cause"] for finding in report["findings"]] == ["C99"]
    assert report["findings"][0]["advice"] == ["look"]


def test_a_file_more_is_named_by_the_test_of_the_pages(checkout: Path) -> None:
    test = "tests/test_explain_docs.py::test_every_cause_has_a_page_and_every_page_is_a_cause"
    done = python(checkout, "-m", "pytest", "-q", "-p", "no:cacheprovider", test)
    assert done.returncode == 1
    assert "'C99'" in done.stdout


@pytest.mark.parametrize(("number", "rank"), [("C15", None), ("C99", 40)])
def test_a_number_and_a_rank_are_of_one_cause_only(number: str, rank: int | None) -> None:
    with pytest.raises(ValueError, match="C15"):
        Cause(number, "again", rank=rank)
    assert "C99" not in [cause.number for cause in CAUSES]


def test_causes_that_take_pieces_have_a_family_and_those_alone() -> None:
    letters = {family.letter for family in FAMILIES[:UNEXPLAINED]}
    for cause in CAUSES:
        assert (cause.family in letters) == (cause.rank is not None), cause.number

"""The outcome of mutation testing: counted by file, open until it is explained; each row can be run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.mutants import report
from tests.mutants.mutant import Mutant

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
ROWS = tomllib.loads((ROOT / "tests/mutants/modules.toml").read_text())
WHY = tomllib.loads(report.EXPLAINED.read_text())


def mutant(number: int, path: str = "one.py") -> Mutant:
    return Mutant(path, "core/NumberReplacer", number, f"x = {number}", f"x = {number + 1}", "")


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> report.Results:
    explained = tmp_path / "explained.toml"
    explained.write_text('["one.py"]\n"x = 3 -> x = 4" = "three is as good"\n')
    monkeypatch.setattr(report, "EXPLAINED", explained)
    made = report.Results(tmp_path / "results")
    for number, outcome in enumerate(("killed", "killed", "endless", "survived", "survived")):
        made.put(mutant(number), outcome)
    return made


def test_a_survivor_is_open_until_somebody_says_why_it_is_right(results: report.Results) -> None:
    assert [row["was"] for row in results.open()] == ["x = 4"]
    assert results.line("one.py") == "one.py: 1 endless, 1 explained, 2 killed, 1 survived"
    page = results.page(["one.py"])
    assert "| `one.py` | 5 | 2 | 1 | 1 | 1 |" in page
    assert "- `x = 3` → `x = 4`: three is as good\n- `x = 4` → `x = 5`: open" in page


def test_outcomes_are_kept_from_run_to_run_and_those_of_other_code_are_forgotten(
    results: report.Results, tmp_path: Path
) -> None:
    again = report.Results(tmp_path / "results")
    assert again.outcome(mutant(3)) == "survived"
    again.put(mutant(3), "killed")
    again.forget("one.py", but=[mutant(3), mutant(4)])
    assert (again.outcome(mutant(0)), again.outcome(mutant(3)), again.outcome(mutant(4))) == (
        None,
        "killed",
        "survived",
    )


@pytest.mark.parametrize("name", ROWS)
def test_what_is_mutated_and_what_is_to_notice_are_there(name: str) -> None:
    assert (ROOT / name).is_file()
    for word in (*ROWS[name]["tests"], *ROWS[name].get("then", ())):
        assert (ROOT / "tests" / word).is_file() or not word.endswith(".py")


@pytest.mark.parametrize("name", WHY)
def test_what_is_explained_is_code_that_is_there(name: str) -> None:
    """A line that has changed needs another look."""
    code = (ROOT / name).read_text()
    for change, why in WHY[name].items():
        was, arrow, becomes = change.partition(" -> ")
        assert was in code
        assert arrow
        assert becomes
        assert why

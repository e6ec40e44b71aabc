"""The catalogue in docs/causes.md and the one in the code are the same."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

from gputop.explain import causes
from gputop.explain.causes import CATALOGUE

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "causes.md").read_text()
ENTRIES = dict(re.findall(r"^## (C\d\d) (.+)$", TEXT, re.MULTILINE))
PARTS = ("**Means.**", "**Evidence.**", "**How it can be wrong.**", "**What to do.**")
QUOTED = re.findall(r"`(\w+)\.(_?[A-Z_]+)`\s+\((\d[\d.]*)\)", TEXT)


def sources() -> str:
    """The code of all causes."""
    folder = Path(causes.__file__).parent
    return "\n".join(path.read_text() for path in sorted(folder.glob("*.py")))


def test_every_number_in_the_code_has_an_entry_and_every_entry_is_in_the_code() -> None:
    assert sorted(set(re.findall(r'"(C\d\d)"', sources()))) == sorted(ENTRIES)
    assert sorted(ENTRIES) == [f"C{number:02}" for number in range(1, 26)]


def test_the_titles_are_those_of_the_reports() -> None:
    for cause in CATALOGUE:
        assert cause.title.startswith(ENTRIES[cause.number]) or cause.number == "C15"
    for title in re.findall(r'"C\d\d",\s+"([^"]+)",\s+level', sources()):
        assert title in ENTRIES.values() or "may return late" in title


@pytest.mark.parametrize("number", sorted(ENTRIES))
def test_every_entry_says_what_how_sure_and_what_to_do(number: str) -> None:
    entry = TEXT.split(f"## {number} ")[1].split("\n## ")[0]
    assert [part for part in PARTS if part not in entry] == []


def module(name: str) -> object:
    """The module that a quoted constant lives in."""
    inside = {found.name for found in pkgutil.iter_modules(causes.__path__)}
    package = "gputop.explain.causes" if name in inside else "gputop.explain"
    return importlib.import_module(f"{package}.{name}")


@pytest.mark.parametrize(("name", "constant", "value"), QUOTED)
def test_quoted_thresholds_are_those_of_the_code(name: str, constant: str, value: str) -> None:
    assert getattr(module(name), constant) == pytest.approx(float(value))


def test_thresholds_of_the_causes_are_quoted() -> None:
    quoted = {constant for _name, constant, _value in QUOTED}
    pattern = re.compile(r"^([A-Z_]+(?:, [A-Z_]+)*) = [\d.]", re.MULTILINE)
    inside = {one for names in pattern.findall(sources()) for one in names.split(", ")}
    assert inside - quoted - {"MOMENTS", "H2D", "D2H"} == set()

"""docs/json.md beside what gputop prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_PAGE = Path(__file__).resolve().parents[1] / "docs" / "json.md"


def section(schema: str) -> str:
    """What the page says of one kind of object."""
    return _PAGE.read_text(encoding="utf-8").split(f"## {schema}\n")[1].split("\n## ")[0]


def keys(value: Any) -> set[str]:
    """The names of all keys of a JSON value, also deep within it."""
    if isinstance(value, list):
        return set().union(*map(keys, value))
    return set(value).union(*map(keys, value.values())) if isinstance(value, dict) else set()


def assert_documented(document: dict[str, Any]) -> str:
    """Every key is explained, and every key of the table is there; returns the section."""
    text = section(document["schema"])
    assert not [key for key in sorted(keys(document)) if f"`{key}`" not in text]
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(document)
    return text

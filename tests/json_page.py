"""docs/json.md beside what gputop prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from gputop.api.functions import schema

_PAGE = Path(__file__).resolve().parents[1] / "docs" / "json.md"


def section(schema: str) -> str:
    """What the page says of one kind of object."""
    return _PAGE.read_text(encoding="utf-8").split(f"## {schema}\n")[1].split("\n## ")[0]


def keys(value: Any) -> set[str]:
    """The names of all keys of a JSON value, also deep within it."""
    if isinstance(value, list):
        return set().union(*map(keys, value))
    return set(value).union(*map(keys, value.values())) if isinstance(value, dict) else set()


def _left_out(schema_name: str) -> set[str]:
    """Keys of a document that are there only where there is something to tell."""
    known = schema(schema_name)
    return set(known["properties"]) - set(known["required"])


def assert_documented(document: dict[str, Any]) -> str:
    """As the schema says; every key is explained, every key of the table is there; returns the section."""
    assert_valid(document)
    text = section(document["schema"])
    assert not [key for key in sorted(keys(document)) if f"`{key}`" not in text]
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert told >= set(document)
    assert told - set(document) <= _left_out(document["schema"]), "keys that are always there"
    return text


def assert_valid(document: Any) -> None:
    """The document is as its JSON Schema says: no key is missing, none is there that it does not name."""
    wrong = Draft202012Validator(schema(document["schema"])).iter_errors(document)
    assert not [f"{'.'.join(map(str, one.absolute_path))}: {one.message}" for one in wrong]

"""What gputop prints is as the JSON Schemas say, which are as the types say that its code is checked with."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, make_dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

import gputop
from gputop.api.json_schema import DOCUMENTS
from gputop.commands import cli
from gputop.commands.overview import TABLE
from gputop.documents import fields
from gputop.documents.field_columns import INT, TEXT, columns, durations, row_of
from gputop.documents.fields import FLAT, HIDDEN, RARE, Mark, marked
from tests.each_recording import FILES as EACH
from tests.json_page import assert_valid

ROOT = Path(__file__).resolve().parents[1]
RECORDINGS = sorted((ROOT / "recordings").glob("*.msgpack"))
PAIRS = [(file, fixed) for file in RECORDINGS if (fixed := file.with_stem(f"{file.stem}-fixed")).exists()]


def printed(capfd: pytest.CaptureFixture[str], *words: str) -> list[Any]:
    """What a command prints, a document a line."""
    name, options = cli.parse(words)
    import_module(TABLE[name].module).COMMAND.run(options)
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def test_every_document_of_the_page_has_a_schema_and_every_schema_a_document() -> None:
    page = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    assert set(DOCUMENTS) == set(re.findall(r"^## (\S+)$", page, re.MULTILINE))
    for name in DOCUMENTS:
        types = import_module(DOCUMENTS[name].__module__).__name__.replace(".", "/") + ".py"
        assert f"(../{types})" in page
        assert (ROOT / types).is_file()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_schema_is_valid_names_its_document_and_takes_no_other_key(name: str) -> None:
    schema = gputop.schema(name)
    Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema
    assert (schema["title"], schema["properties"]["schema"]) == (name, {"const": name})
    named = [one for one in (schema, *schema["$defs"].values()) if "properties" in one]
    assert len(named) == 1 + len(schema["$defs"])
    assert all(one["additionalProperties"] is False for one in named)


@pytest.mark.parametrize("file", EACH)
@pytest.mark.slow
def test_what_is_printed_of_a_recording_is_valid(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for words, schema in (
        (("stats", "--json"), "gputop.stats/1"),
        (("explain", "--json"), "gputop.explain/1"),
        (("replay", "--once", "--json"), "gputop.frame/1"),
    ):
        (document,) = printed(capfd, *words, str(file))
        assert document["schema"] == schema
        assert_valid(document)


def test_every_frame_that_is_streamed_is_valid(capfd: pytest.CaptureFixture[str]) -> None:
    frames = printed(capfd, "stream", "--jsonl", str(ROOT / "recordings" / "storm.msgpack"))
    assert len(frames) > 10
    for frame in frames:
        assert_valid(frame)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].stem)
@pytest.mark.slow
@pytest.mark.mainly("numpy-sync", "dataloader")
def test_what_is_printed_of_a_change_is_valid(
    pair: tuple[Path, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    (document,) = printed(capfd, "diff", "--json", *map(str, pair))
    assert document["schema"] == "gputop.diff/1"
    assert_valid(document)


def test_a_key_that_the_schema_does_not_have_fails_however_deep() -> None:
    document: Any = gputop.to_json(gputop.stats(ROOT / "recordings" / "storm.msgpack"))
    validator = Draft202012Validator(gputop.schema("gputop.stats/1"))
    validator.validate(document)
    document["processes"][0]["threads"][0]["new"] = 1
    with pytest.raises(ValidationError, match="'new' was unexpected"):
        validator.validate(document)


def test_a_schema_that_there_is_not_is_reported_with_those_that_there_are() -> None:
    with pytest.raises(gputop.GputopError, match=r"no schema 'gputop.frame/2'.*gputop.frame/1"):
        gputop.schema("gputop.frame/2")


@dataclass(frozen=True)
class Inner:
    """An object in another one."""

    size: int


@dataclass(frozen=True)
class Declaring:
    """A document of one test.

    Attributes:
        cost: What it costs.
        more: Something else, if there is
            any.
    """

    cost: Annotated[float, Mark("cost_ns", nullable=True)]
    place: Annotated[Inner, FLAT]
    secret: Annotated[int, HIDDEN]
    reasons: Annotated[tuple[tuple[str, str], ...], fields.PAIRS]
    more: Annotated[Inner | None, RARE] = None

    @property
    @marked(Mark("double_size"))
    def double(self) -> int:
        """Twice the size."""
        return 2 * self.place.size


def test_a_field_is_declared_once_and_is_in_document_and_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Declaring(math.nan, Inner(3), 5, (("a", "b"),), Inner(4))
    assert fields.document(whole) == {
        "cost_ns": None, "size": 3, "reasons": {"a": "b"}, "more": {"size": 4}, "double_size": 6,
    }  # fmt: skip
    assert "more" not in fields.document(replace(whole, more=None))
    monkeypatch.setitem(DOCUMENTS, "gputop.test/1", Declaring)
    schema = gputop.schema("gputop.test/1")
    assert schema["required"] == ["cost_ns", "size", "reasons", "double_size"]
    assert schema["properties"]["cost_ns"]["type"] == ["number", "null"]
    assert schema["properties"]["more"]["description"] == "Something else, if there is any."
    validator = Draft202012Validator(schema)
    for one in (whole, replace(whole, more=None)):
        validator.validate(fields.document(one))


def test_two_classes_of_one_name_are_no_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    other = make_dataclass("Inner", [("size", int)], frozen=True)
    both = make_dataclass("Both", [("one", Inner), ("other", other)], frozen=True)
    monkeypatch.setitem(DOCUMENTS, "gputop.test/1", both)
    with pytest.raises(TypeError, match="would both be Inner"):
        gputop.schema("gputop.test/1")


@dataclass(frozen=True)
class Tabled:
    """A row of one test."""

    name: str
    loss: Annotated[Inner | None, Mark("loss_ns")]
    place: Inner | None
    reasons: tuple[str, ...]
    moments_ns: tuple[int, ...]
    long_ns: int
    kept: Annotated[bool, HIDDEN] = True


def test_a_field_is_a_column_of_the_type_that_it_is_declared_with() -> None:
    found = columns(Tabled)
    assert found == {"name": TEXT, "loss_size_ns": INT, "size": INT, "reasons": TEXT, "long_ns": INT}
    assert "size" not in columns(Tabled, without=("place",))
    row = row_of(Tabled("a", Inner(3), None, ("b", "c"), (1, 2), 4))
    assert row == {"name": "a", "loss_size_ns": 3, "size": None, "reasons": "b; c", "long_ns": 4}
    assert list(durations(Tabled("a", Inner(3), None, (), (1,), 4))) == [("loss_ns.size", 3), ("long_ns", 4)]

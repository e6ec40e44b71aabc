"""JSON Schemas, derived from the types of the printed documents."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from enum import Enum
from typing import Any

from gputop.analysis.answer.report import Report
from gputop.analysis.compare import Diff
from gputop.documents.check_schema import CheckDocument
from gputop.documents.fields import declared
from gputop.documents.inspect_schema import InspectDocument
from gputop.documents.shared_schema import OneOf
from gputop.engine.frame import Frame
from gputop.engine.session_totals import Stats

DOCUMENTS: dict[str, type] = {
    "gputop.frame/1": Frame,
    "gputop.explain/1": Report,
    "gputop.stats/1": Stats,
    "gputop.diff/1": Diff,
    "gputop.check/1": CheckDocument,
    "gputop.inspect/1": InspectDocument,
}
# further keys of a document: the explanation of a frame's last seconds
_ADDED: dict[Any, dict[str, Any]] = {Frame: {"verdict": Report | None}}
_NAMED: dict[str, Any] = {}  # name of an object in ``$defs`` -> its class, one in all documents
_ATTRIBUTE = re.compile(r"^ {4}(\w+(?:, \w+)*): (.*(?:\n {5,}.*)*)", re.MULTILINE)
_PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string", types.NoneType: "null"}


def schema_of(name: str) -> dict[str, Any]:
    """Return the schema of a document; its objects are in ``$defs``, each once."""
    found: dict[str, dict[str, Any]] = {}
    document = DOCUMENTS[name]
    top = _object(document, found)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{name.replace('.', ':').replace('/', ':')}",
        "title": name,
    }
    return head | top | {"$defs": dict(sorted(found.items()))}


def _object(document: Any, found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    if dataclasses.is_dataclass(document):
        return _data_class(document, found)
    hints = typing.get_type_hints(document, include_extras=True)
    return {
        "description": document.__doc__,
        "type": "object",
        "properties": {key: _schema(hint, found) for key, hint in hints.items()},
        "required": [key for key in hints if key in document.__required_keys__],
        "additionalProperties": False,
    }


def _data_class(document: Any, found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The schema of a data class; its docstring's attributes are the descriptions of the keys."""
    summary, _, attributes = inspect.cleandoc(document.__doc__ or "").partition("\nAttributes:\n")
    descriptions = {
        name: " ".join(text.split())
        for names, text in _ATTRIBUTE.findall(attributes)
        for name in names.split(", ")
    }
    properties: dict[str, Any] = {}
    required: list[str] = []
    for one in declared(document):
        if one.mark.flat:
            inner = _object(one.hint, found)
            properties |= inner["properties"]
            required += inner["required"]
            continue
        about = {"description": descriptions[one.attribute]} if one.attribute in descriptions else {}
        properties[one.key] = about | _schema(one.optional, found)
        required += [] if one.mark.rare else [one.key]
    more = {name: _schema(hint, found) for name, hint in _ADDED.get(document, {}).items()}
    return {
        "description": summary.strip(),
        "type": "object",
        "properties": properties | more,
        "required": required,
        "additionalProperties": False,
    }


def _schema(hint: Any, found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"type": "string", "enum": [one.value for one in hint]}
    if typing.is_typeddict(hint) or dataclasses.is_dataclass(hint):
        name = hint.__name__.removesuffix("Json").removesuffix("Document")
        if _NAMED.setdefault(name, hint) is not hint:
            raise TypeError(f"two classes would both be {name} in a schema: {_NAMED[name]} and {hint}")
        if name not in found:
            found[name] = {}
            found[name] = _object(hint, found)
        return {"$ref": f"#/$defs/{name}"}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        if len(arguments) > 1:
            return {"type": "string", "enum": [*arguments]}
        return {"const": arguments[0]}
    if origin is typing.Annotated and isinstance(arguments[1], OneOf):
        return {"type": "string", "enum": list(arguments[1].words)}
    if origin in (list, tuple):
        return {"type": "array", "items": _schema(arguments[0], found)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(arguments[1], found)}
    if origin in (types.UnionType, typing.Union):
        choices = [_schema(one, found) for one in arguments]
        if all(set(one) == {"type"} for one in choices):
            return {"type": [one["type"] for one in choices]}
        return {"anyOf": choices}
    raise TypeError(f"{hint} has no form in JSON Schema here")

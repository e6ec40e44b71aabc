"""JSON Schemas, made of the types that gputop's code prints: no schema can say anything else."""

from __future__ import annotations

import types
import typing
from typing import Any

from gputop.documents.check_schema import CheckDocument
from gputop.documents.diff_schema import DiffDocument
from gputop.documents.explain_schema import ExplainDocument
from gputop.documents.frame_schema import FrameDocument
from gputop.documents.inspect_schema import InspectDocument
from gputop.documents.shared_schema import OneOf
from gputop.documents.stats_schema import StatsDocument

DOCUMENTS: dict[str, type] = {
    "gputop.frame/1": FrameDocument,
    "gputop.explain/1": ExplainDocument,
    "gputop.stats/1": StatsDocument,
    "gputop.diff/1": DiffDocument,
    "gputop.check/1": CheckDocument,
    "gputop.inspect/1": InspectDocument,
}
_PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string", types.NoneType: "null"}


def schema_of(name: str) -> dict[str, Any]:
    """The schema of a document; the objects in it are in ``$defs``, each once."""
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
    hints = typing.get_type_hints(document, include_extras=True)
    return {
        "description": document.__doc__,
        "type": "object",
        "properties": {key: _schema(hint, found) for key, hint in hints.items()},
        "required": [key for key in hints if key in document.__required_keys__],
        "additionalProperties": False,
    }


def _schema(hint: Any, found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if typing.is_typeddict(hint):
        name = hint.__name__.removesuffix("Json").removesuffix("Document")
        if name not in found:
            found[name] = {}
            found[name] = _object(hint, found)
        return {"$ref": f"#/$defs/{name}"}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return {"const": arguments[0]}
    if origin is typing.Annotated and isinstance(arguments[1], OneOf):
        return {"type": "string", "enum": list(arguments[1].words)}
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0], found)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(arguments[1], found)}
    if origin in (types.UnionType, typing.Union):
        return _either([_schema(one, found) for one in arguments])
    raise TypeError(f"{hint} has no form in JSON Schema here")


def _either(choices: list[dict[str, Any]]) -> dict[str, Any]:
    if all(set(one) == {"type"} for one in choices):
        return {"type": [one["type"] for one in choices]}
    return {"anyOf": choices}

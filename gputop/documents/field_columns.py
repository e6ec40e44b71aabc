"""Data classes as rows of tables, by their declared columns and types.

A text, number or boolean is a column of the name of its key. Each field of an object is one: of a duration
``loss_ns`` these are ``loss_lower_ns`` and so on. Sentences become one text. Other lists have no column.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Collection, Iterator
from enum import Enum
from typing import Any

from gputop.documents.fields import declared, document

INT, REAL, TEXT, BOOL = "int64", "double", "string", "bool"
_PLAIN = {int: INT, float: REAL, str: TEXT, bool: BOOL}
_SENTENCES, _NS = tuple[str, ...], "_ns"


def columns(kind: type, without: Collection[str] = ()) -> dict[str, str]:
    """Return column -> type, without these columns and these fields."""
    return {
        name: plain for name, plain, path in _columns(kind) if name not in without and path[0] not in without
    }


def row_of(value: Any) -> dict[str, Any]:
    """Return column -> value; None for a missing object."""
    made = {}
    for name, _plain, path in _columns(type(value)):
        found = value
        for attribute in path:
            found = getattr(found, attribute) if found is not None else None
        found = str(found) if isinstance(found, Enum) else found
        made[name] = "; ".join(found) if isinstance(found, tuple) else found
    return made


def durations(value: Any) -> Iterator[tuple[str, int | None]]:
    """Yield (place in the document, value) of each duration: ``loss_ns.lower``, ``per_step_ns``, …"""
    kind: Any = type(value)
    for one in declared(kind):
        found = getattr(value, one.attribute)
        if one.mark.flat:
            yield from durations(found)
        if not one.key.endswith(_NS) or isinstance(found, tuple):
            continue
        if dataclasses.is_dataclass(found):
            yield from ((f"{one.key}.{name}", ns) for name, ns in document(found).items())
        else:
            yield one.key, found


def _columns(
    kind: Any, key: str = "", path: tuple[str, ...] = ()
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for one in declared(kind):
        hint, way = _known(one.hint), (*path, one.attribute)
        stem = key.removesuffix(_NS)
        name = f"{stem}_{one.key}{_NS}" if stem != key else one.key
        if dataclasses.is_dataclass(hint):
            yield from _columns(hint, one.key, way)
        elif hint in _PLAIN:
            yield name, _PLAIN[hint], way
        elif hint == _SENTENCES or typing.get_origin(hint) is typing.Literal or isinstance(hint, type):
            yield name, TEXT, way


def _known(hint: Any) -> Any:
    """Return a type without None, and without the words of an enumeration."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (hint,) = (one for one in typing.get_args(hint) if one is not types.NoneType)
    return typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint

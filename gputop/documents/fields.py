"""Data classes of reports as JSON documents and schemas, so that a field is declared once.

The name of a field is its key in JSON, unless ``Mark`` names another one; a property with ``marked`` is a
key, too. Documents and schemas are made of docstrings, types and these marks alone.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

from gputop.documents.additive import Adds

_SIMPLE = (int, str, bool, types.NoneType)
Function = TypeVar("Function", bound=Callable[..., Any])


class Mark(NamedTuple):
    """A field's key in the document.

    Attributes:
        name: Its key; "" for the field's own name.
        rare: True to leave it out where it has its default, or None as a property.
        hidden: True for no key.
        flat: True to put the keys of its object in its place.
        nullable: True if it may be null: the figure is no finite number, or was not recorded.
        schema: The type of its JSON, where it is not that of the field.
        make: Converts the value for the document.
    """

    name: str = ""
    rare: bool = False
    hidden: bool = False
    flat: bool = False
    nullable: bool = False
    schema: Any = None
    make: Callable[[Any], Any] | None = None


HIDDEN: Final = Mark(hidden=True)
RARE: Final = Mark(rare=True)
FLAT: Final = Mark(flat=True)
NULLABLE: Final = Mark(nullable=True)
PAIRS: Final = Mark(schema=dict[str, str], make=dict)  # (key, text) rows as an object


def marked(mark: Mark) -> Callable[[Function], Function]:
    """Make a property a key of its document; the decorator stands below ``@property``."""

    def mark_it(function: Function) -> Function:
        function.document_key = mark  # type: ignore[attr-defined]
        return function

    return mark_it


class Declared(NamedTuple):
    """A key of a document: its name, where its value is, its type and its mark."""

    key: str
    attribute: str
    hint: Any
    mark: Mark
    default: Any
    simple: bool  # its value is JSON as it is
    optional: Any  # the type without None, of a key that is left out then


@cache
def declared(kind: type) -> tuple[Declared, ...]:
    """Return the keys of a data class, in its order; those of properties after its fields."""
    hints = typing.get_type_hints(kind, include_extras=True)
    found = []
    for field in dataclasses.fields(kind):
        hint, mark = _unmarked(hints[field.name])
        if not mark.hidden:
            found.append(_declared(field.name, hint, mark, field.default))
    for name in dict.fromkeys(name for one in reversed(kind.__mro__) for name in vars(one)):
        function = getattr(getattr(kind, name), "fget", None)
        over: Mark | None = getattr(function, "document_key", None)
        if over is not None:
            hint = over.schema or typing.get_type_hints(function, include_extras=True)["return"]
            found.append(_declared(name, hint, over, None))
    return tuple(found)


def _declared(name: str, hint: Any, mark: Mark, default: Any) -> Declared:
    types_ = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    simple = mark.make is None and all(one in _SIMPLE for one in types_)
    known = [one for one in types_ if one is not types.NoneType]
    optional = typing.Union[tuple(known)] if mark.rare else hint  # noqa: UP007 - of a list
    return Declared(mark.name or name, name, hint, mark, default, simple, optional)


def _unmarked(hint: Any) -> tuple[Any, Mark]:
    if typing.get_origin(hint) is typing.Annotated:
        plain, *marks = typing.get_args(hint)
        for mark in marks:
            if isinstance(mark, Mark):
                return mark.schema or (plain | None if mark.nullable else plain), mark
        if any(isinstance(mark, Adds) for mark in marks):
            return plain, Mark()
    return hint, Mark()


def document(value: Any, kind: type | None = None) -> dict[str, Any]:
    """Return a data class as a JSON object: tuples are lists, non-finite numbers are None.

    Args:
        value: The data.
        kind: A base of its class, for the keys of that base only.
    """
    made: dict[str, Any] = {}
    for name, attribute, _hint, mark, default, simple, _optional in declared(kind or type(value)):
        found = getattr(value, attribute)
        if mark.rare and (found is None or found == default):
            continue
        if simple:
            made[name] = found
        elif mark.flat:
            made |= document(found)
        else:
            made[name] = plain(found if mark.make is None else mark.make(found))
    return made


def plain(value: Any) -> Any:
    """Return any value in the types of ``json.dumps``."""
    kind = type(value)
    if kind is int or kind is str or value is None:
        return value
    if kind is float:
        return value if math.isfinite(value) else None
    if kind is tuple or kind is list:
        if all(type(one) is int for one in value):
            return list(value)
        return [plain(one) for one in value]
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        return document(value)
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    return value

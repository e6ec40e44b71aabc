"""Sums of rows: the rule of a field stands beside its type; a field without one keeps the earlier value.

The ledger of two parts that follow each other, and each of its rows, is made field by field by these rules.
"""

from __future__ import annotations

import operator
import typing
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Adds(NamedTuple):
    """A rule: (earlier value, later value) -> that of both."""

    both: Callable[[Any, Any], Any]


def added_up(one: Value, later: Value) -> Value:
    """Return the sum of a row (a data class) and a later one."""
    kind: Any = type(one)
    changed = {name: both(getattr(one, name), getattr(later, name)) for name, both in _rules(kind)}
    return replace(one, **changed)  # type: ignore[type-var]


@cache
def _rules(kind: type) -> tuple[tuple[str, Callable[[Any, Any], Any]], ...]:
    hints = typing.get_type_hints(kind, include_extras=True)
    marks = ((name, mark) for name, hint in hints.items() for mark in getattr(hint, "__metadata__", ()))
    return tuple((name, mark.both) for name, mark in marks if isinstance(mark, Adds))


def by_key(
    one: Mapping[Key, Value], later: Mapping[Key, Value], both: Callable[[Value, Value], Value]
) -> dict[Key, Value]:
    """Return rows by key; those of both are joined."""
    rows = dict(one)
    for key, row in later.items():
        rows[key] = both(rows[key], row) if key in rows else row
    return rows


def merged(one: Iterable[Value], later: Iterable[Value], key: Callable[[Value], Hashable]) -> list[Value]:
    """Return rows that are one by key; several of one side may have the same key."""
    known: dict[Hashable, Value] = {}
    for row in (*one, *later):
        place = key(row)
        known[place] = added_up(known[place], row) if place in known else row
    return list(known.values())


def counted(one: Mapping[Key, Value], other: Mapping[Key, Value]) -> dict[Key, Value]:
    """Return sums by key."""
    return by_key(one, other, operator.add)


def added(
    one: Mapping[Key, tuple[int, ...]], other: Mapping[Key, tuple[int, ...]]
) -> dict[Key, tuple[int, ...]]:
    """Return rows of sums by key, which are equally long."""
    return by_key(one, other, lambda row, more: tuple(map(operator.add, row, more)))


SUM: Final = Adds(operator.add)
MOST: Final = Adds(max)
ALL: Final = Adds(lambda one, later: one and later)
EITHER: Final = Adds(lambda one, later: one or later)
LATER: Final = Adds(lambda _one, later: later)
COUNTED: Final = Adds(counted)
ROWS: Final = Adds(added)
NESTED: Final = Adds(added_up)
NESTED_ROWS: Final = Adds(lambda one, later: by_key(one, later, added_up))


def rows_by(key: Callable[[Any], Hashable], order: Callable[[Any], Any] | None = None) -> Adds:
    """Return the rule of tuples of rows with a key; in this order, else in order of appearance."""

    def both(one: tuple[Any, ...], later: tuple[Any, ...]) -> tuple[Any, ...]:
        rows = merged(one, later, key)
        return tuple(rows if order is None else sorted(rows, key=order))

    return Adds(both)


def of_processes(value: Value, pids: frozenset[int] | None) -> Value:
    """Return a data class without other processes' rows in its tuples of rows with a ``pid``; None: all."""
    if pids is None:
        return value
    rows = {one.name: getattr(value, one.name) for one in fields(value)}  # type: ignore[arg-type]
    changed = {
        name: tuple(row for row in own if getattr(row, "pid", None) in pids)
        for name, own in rows.items()
        if isinstance(own, tuple) and own and hasattr(own[0], "pid")
    }
    return replace(value, **changed)  # type: ignore[type-var]

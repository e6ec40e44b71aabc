"""Forks mutable state: the copies share nothing that either of them changes."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import TypeVar

T = TypeVar("T")
_NEVER_CHANGE = (int, float, str, bytes, bool, frozenset, tuple, type(None))


def apart(one: T, shared: Collection[str] = ()) -> T:
    """A copy of an object whose fields are copied, too, one level deep.

    Args:
        one: What is copied. What its lists and tables hold is taken to never change.
        shared: Its fields that both go on with.

    Raises:
        TypeError: A field holds what can change and has no ``copy()``.
    """
    other = copy.copy(one)
    for name, value in vars(one).items():
        if name in shared or isinstance(value, _NEVER_CHANGE):
            continue
        if not hasattr(value, "copy"):
            kind = type(value).__name__
            raise TypeError(f"{type(one).__name__}.{name} is a {kind}: give it copy(), or name it as shared")
        setattr(other, name, value.copy())
    return other

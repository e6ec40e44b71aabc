"""Sums by key, added up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value", int, float)


def counted(one: Mapping[Key, Value], other: Mapping[Key, Value]) -> dict[Key, Value]:
    """Both together, key by key."""
    sums = dict(one)
    for key, value in other.items():
        sums[key] = sums[key] + value if key in sums else value
    return sums


def added(
    one: Mapping[Key, tuple[int, ...]], other: Mapping[Key, tuple[int, ...]]
) -> dict[Key, tuple[int, ...]]:
    """The same of rows of sums, which are equally long."""
    sums = dict(one)
    for key, row in other.items():
        sums[key] = tuple(map(sum, zip(sums[key], row, strict=True))) if key in sums else row
    return sums

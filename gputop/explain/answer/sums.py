"""Sums by key, added up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Key = TypeVar("Key")


def counted(one: Mapping[Key, int], other: Mapping[Key, int]) -> dict[Key, int]:
    """Both together, key by key."""
    return {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}


def added(
    one: Mapping[Key, tuple[int, ...]], other: Mapping[Key, tuple[int, ...]]
) -> dict[Key, tuple[int, ...]]:
    """The same of rows of sums, which are equally long."""
    sums = dict(one)
    for key, row in other.items():
        sums[key] = tuple(map(sum, zip(sums[key], row, strict=True))) if key in sums else row
    return sums

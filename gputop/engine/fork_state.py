"""Copies of mutable state; integer rows as bytes."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
_NEVER_CHANGE = (int, float, str, bytes, bool, frozenset, tuple, type(None))


def apart(one: T, shared: Collection[str] = ()) -> T:
    """Return a copy of an object and its fields, one level deep.

    Args:
        one: The object; the contents of its lists and tables must not change.
        shared: Fields that are not copied.

    Raises:
        TypeError: A field is mutable and has no ``copy()``.
    """
    other = copy.copy(one)
    for name, value in vars(one).items():
        if name in shared or isinstance(value, _NEVER_CHANGE):
            continue
        if not hasattr(value, "copy"):
            kind = type(value).__name__
            raise TypeError(f"{type(one).__name__}.{name} is a {kind} without copy(): add that, or share it")
        setattr(other, name, value.copy())
    return other


# Rows of integers as bytes and back, for files and other processes.

_MOST = 1 << 20  # rows of one kind


def packed(rows: list[tuple[int, ...]]) -> bytes:
    """Return rows of integers as bytes, column by column, which compresses well."""
    return np.array(rows, "<i8").T.tobytes() if rows else b""


def signed(number: int) -> int:
    """Return an unsigned number of 64 bits as a signed one."""
    return (number + 2**63) % 2**64 - 2**63


def unpacked(data: Mapping[str, Any], name: str, width: int) -> list[list[int]]:
    """Return rows of so many integers.

    Raises:
        ValueError: They are missing, or too many.
    """
    body = data[name]
    if not isinstance(body, bytes) or len(body) % (8 * width) or len(body) > 8 * width * _MOST:
        raise ValueError(f"{name} are no such rows")
    rows: list[list[int]] = np.frombuffer(body, "<i8").reshape(width, -1).T.tolist()
    return rows


def pairs_of(data: Mapping[str, Any], name: str) -> list[tuple[int, int]]:
    """Return rows of two integers."""
    return [(first, second) for first, second in unpacked(data, name, 2)]

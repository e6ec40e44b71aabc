"""State of sums: forked, and packed into bytes."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import numpy as np

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


# Rows of integers as bytes and back: how sums are told to a file, or to another process.

_MOST = 1 << 20  # rows of one kind


def packed(rows: list[tuple[int, ...]]) -> bytes:
    """Rows of integers, column by column, which compresses well."""
    return np.array(rows, "<i8").T.tobytes() if rows else b""


def signed(number: int) -> int:
    """A number of 64 bits as one with a sign."""
    return (number + 2**63) % 2**64 - 2**63


def unpacked(data: Mapping[str, Any], name: str, width: int) -> list[list[int]]:
    """Rows of so many integers.

    Raises:
        ValueError: They are not there, or too many.
    """
    body = data[name]
    if not isinstance(body, bytes) or len(body) % (8 * width) or len(body) > 8 * width * _MOST:
        raise ValueError(f"{name} are no such rows")
    rows: list[list[int]] = np.frombuffer(body, "<i8").reshape(width, -1).T.tolist()
    return rows


def pairs_of(data: Mapping[str, Any], name: str) -> list[tuple[int, int]]:
    """Rows of two."""
    return [(first, second) for first, second in unpacked(data, name, 2)]

"""Rows of integers as bytes and back: how sums are told to a file, or to another process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

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

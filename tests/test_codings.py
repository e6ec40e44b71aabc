"""What a chunk of records may be made of: how deep its columns nest; each coding counts as a level."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack  # type: ignore[import-untyped, unused-ignore]
import numpy as np
import pytest

from replay.coding.decoding import MAX_DEPTH, decode_records

ROWS = 3
BITS = ["raw", "|u1", bytes([0b11100000])]  # a mask of three rows
#: a coding around another one, whose numbers it leaves as they are
AROUND: dict[str, Callable[[Any], Any]] = {
    "planes": lambda node: ["planes", [node]],
    "sparse values": lambda node: ["sparse", ROWS, BITS, node],
    "dict entries": lambda node: ["dict", ROWS, ["raw", "|u1", bytes(range(ROWS))], node],
    "dict numbers": lambda node: ["dict", 256, node, ["raw", "<u2", np.arange(256, dtype="<u2").tobytes()]],
    "add": lambda node: ["add", 0, node],
    "by": lambda node: ["by", "#nothing", node],
}


def nested(around: Callable[[Any], Any], levels: int) -> bytes:
    node: Any = ["raw", "|u1", bytes([1, 4, 9])]
    for _ in range(levels):
        node = around(node)
    return bytes(msgpack.packb([["duration", 0, node]]))


@pytest.mark.parametrize("coding", AROUND)
def test_a_column_is_nested_so_deep_and_no_deeper(coding: str) -> None:
    assert decode_records(nested(AROUND[coding], MAX_DEPTH), ROWS)["duration"].tolist() == [1, 4, 9]
    with pytest.raises(ValueError, match="nested too deeply"):
        decode_records(nested(AROUND[coding], MAX_DEPTH + 1), ROWS)


@pytest.mark.parametrize(
    "around", [lambda node: ["delta", 0, node], lambda node: ["sparse", 1, node, ["const", 0x80]]]
)
def test_codings_that_change_the_numbers_are_levels_as_well(around: Callable[[Any], Any]) -> None:
    def tree(levels: int) -> bytes:
        node: Any = ["const", 0x80]
        for _ in range(levels):
            node = around(node)
        return bytes(msgpack.packb([["duration", 0, node]]))

    decode_records(tree(MAX_DEPTH), 1)
    with pytest.raises(ValueError, match="nested too deeply"):
        decode_records(tree(MAX_DEPTH + 1), 1)


def test_the_second_plane_is_a_level_too() -> None:
    def tree(levels: int) -> bytes:
        node: Any = ["const", 1]
        for _ in range(levels):
            node = ["planes", [["const", 0], node]]
        return bytes(msgpack.packb([["duration", 0, node]]))

    assert decode_records(tree(2), 1)["duration"].tolist() == [1 << 16]
    with pytest.raises(ValueError, match="nested too deeply"):
        decode_records(tree(MAX_DEPTH + 1), 1)

"""The shortest node for few numbers: of a small chunk every coding is tried.

A program that makes a thousand calls a second fills a chunk of some hundred records at each mark, and the
overhead of a coding counts there. In a large chunk time counts, and a sample decides (encoding.py).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Final

import msgpack  # type: ignore[import-untyped, unused-ignore]
import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.uint64]
Node = Any

_LEVEL: Final = 6
_WINDOW_BITS, _MEMORY_LEVEL = 13, 5  # enough for a small chunk, and quickly set up
_WORTH: Final = 24  # fewer bytes than this are never shorter with zlib's frame


def shortest(values: Numbers) -> Node:
    """The node of fewest bytes, of those that are tried."""
    low, high = int(values.min()), int(values.max())
    if low == high:
        return ["const", low]
    filled = int(np.count_nonzero(values))
    if filled * 2 > len(values):
        return _looked_up(values)
    mask = values != 0
    return ["sparse", filled, _bytes(np.packbits(mask)), _looked_up(values[mask])]


def _fewest(nodes: Sequence[Node]) -> Node:
    """The one of fewest bytes, of several the first."""
    return min(nodes, key=lambda node: len(msgpack.packb(node)))


def _looked_up(values: Numbers) -> Node:
    """As different values and the number of each row's, where that is shorter."""
    high = int(values.max())
    if int(values.min()) == high:
        return ["const", high]
    plain = _flat(values, high)
    different, ids = np.unique(values, return_inverse=True)
    if len(different) * 2 > len(values):
        return plain
    numbers = _flat(ids.reshape(-1).astype(np.uint64), len(different) - 1)
    return _fewest([plain, ["dict", len(different), numbers, _flat(different, high)]])


def _flat(values: Numbers, high: int) -> Node:
    """Each byte of the numbers by itself, or all of them together."""
    used = max(1, (high.bit_length() + 7) // 8)
    matrix = values.view(np.uint8).reshape(-1, 8)
    planes = [_bytes(np.ascontiguousarray(matrix[:, byte])) for byte in range(used)]
    width = next(size for size in (1, 2, 4, 8) if size >= used)
    dtype = f"<u{width}" if width > 1 else "|u1"
    whole = _shorter(dtype, values.astype(dtype).tobytes())
    return _fewest([whole, ["planes", planes]])


def _bytes(plane: npt.NDArray[np.uint8]) -> Node:
    low = int(plane[0])
    return ["const", low] if not (plane != low).any() else _shorter("|u1", plane.tobytes())


def _shorter(dtype: str, raw: bytes) -> Node:
    if len(raw) <= _WORTH:
        return ["raw", dtype, raw]
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW_BITS, _MEMORY_LEVEL)
    best = packer.compress(raw) + packer.flush()
    return ["z", dtype, best] if len(best) < len(raw) else ["raw", dtype, raw]

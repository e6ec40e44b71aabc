"""Columns of records as small trees of coded bytes, and back: the content of a chunk of records.

Every column is a *node*, a msgpack list that starts with the name of a coding. A node stands for ``n``
unsigned 64-bit numbers and may hold other nodes:

====================================  ==============================================================
``["const", value]``                  ``value``, n times
``["raw", dtype, bytes]``             the numbers as they are
``["z", dtype, bytes]``               the same, compressed with zlib
``["planes", [node, ...]]``           one node per byte of the numbers, lowest byte first
``["sparse", k, mask, node]``         zeros, but the k rows whose bit is set in ``mask`` hold ``node``
``["dict", k, ids, values]``          ``values`` (k numbers), looked up by ``ids``
``["add", base, node]``               ``base`` added to each number
``["delta", first, node]``            ``first`` plus the running sum
``["by", name, node]``                ``node`` holds the rows in the stable order of column ``name``
``name``                              a column that was decoded earlier
====================================  ==============================================================

All sums are modulo 2**64. The data is noise in the low bytes (durations) and nearly constant elsewhere:
noise goes to the file as it is, since compressing it costs time and gains nothing.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any, Final

import msgpack  # type: ignore[import-untyped, unused-ignore]
import numpy as np
import numpy.typing as npt

from probes.schema import OFFSETS, RECORD, Records
from replay.coding.shortest import shortest

Numbers = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Node = Any

_RECORD_WORDS: Final = RECORD.itemsize // 8
_SLOT_BITS: Final = 15  # twice as many slots as a chunk has records, in the processor's cache
_MULTIPLIERS: Final = tuple(
    np.uint64(m) for m in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F)
)
_SAMPLE: Final = 1024
_RAW_BITS: Final = 6.5  # above it a plane is noise: Huffman codes gain little and cost most of the time
_PATTERN_BITS: Final = 0.7  # below it runs and repeats are worth searching for
_FEW: Final = 1024  # records of which every coding is tried: more cost more time and gain less
_SMALL: Final = 64  # fewer bytes than this do not pay for a zlib header

# Columns with few different values are coded together: one number per row for the whole tuple.
_TUPLES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("#who", ("pid", "tid", "cpu")),
    ("#what", ("op", "kind", "depth", "flags", "ret")),
)
_REPEATING: Final = frozenset({"bytes", "stream", "aux", "stack"})  # sizes, handles, addresses
_OTHERS: Final = tuple(
    name
    for name in RECORD.names or ()
    if name not in ("t_end", "seq") and not any(name in names for _, names in _TUPLES)
)


def _word(name: str) -> int:
    """Which 8 bytes of the record a column starts."""
    return OFFSETS[name] // 8


# One word must hold a thread's numbers, and one its activity without the op, nothing else.
if [OFFSETS[n] - OFFSETS["pid"] for n in ("pid", "tid")] != [0, 4] or OFFSETS["pid"] % 8:
    raise AssertionError("pid and tid are not one word")
if [OFFSETS[n] - OFFSETS["kind"] for n in ("depth", "flags", "ret")] != [1, 2, 4] or OFFSETS["kind"] % 8:
    raise AssertionError("kind, depth, flags and ret are not one word")


class Encoder:
    """Codes batches of records; keeps scratch memory only, so every batch stands alone."""

    def __init__(self) -> None:
        self._few = False  # the batch is small
        self._slots: npt.NDArray[np.int32] = np.empty(1 << _SLOT_BITS, np.int32)

    def encode(self, records: Records, *, roomy: bool = False) -> bytes:
        """The body of a chunk.

        Returns:
            A msgpack list of ``[name, dtype, node]``, to be decoded in that order.
        """
        self._few = len(records) <= _FEW
        columns: list[list[Any]] = []
        words = np.ascontiguousarray(records.view("<u8").reshape(-1, _RECORD_WORDS).T)
        cpu = np.ascontiguousarray(records["cpu"])
        who_keys = (words[_word("pid")], cpu)
        what_keys = (words[_word("kind")], np.ascontiguousarray(records["op"]))
        for (helper, names), keys in zip(_TUPLES, (who_keys, what_keys), strict=True):
            columns += self._tuple(records, helper, names, keys)
        times = words[_word("t_end")]
        columns.append(["t_end", "<u8", ["raw", "<u8", times.tobytes()] if roomy else _delta(times)])
        columns.append(["seq", "<u4", _sequence(np.ascontiguousarray(records["seq"]), cpu)])
        for name in _OTHERS:
            dtype = RECORD[name]
            values = words[_word(name)] if dtype.itemsize == 8 else _unsigned(records[name])
            columns.append([name, dtype.str, self._numbers(values, repeats=name in _REPEATING)])
        # A column of records that is missing is zero; helper columns are referred to and stay.
        packed: bytes = msgpack.packb([c for c in columns if c[0][0] == "#" or c[2] != ["const", 0]])
        return packed

    def _tuple(
        self, records: Records, helper: str, names: Sequence[str], keys: Sequence[npt.NDArray[Any]]
    ) -> list[list[Any]]:
        found = self._dictionary(keys)
        if found is None:
            return [[name, RECORD[name].str, self._numbers(_unsigned(records[name]))] for name in names]
        ids, rows = found
        dictionary = records[rows]
        numbers = shortest(ids.astype(np.uint64)) if self._few else _plain_bytes(ids)
        columns: list[list[Any]] = [[helper, ids.dtype.str, numbers]]
        for name in names:
            values = np.ascontiguousarray(dictionary[name])
            if (values == values[0]).all():
                node: Node = ["const", int(_unsigned(values)[0])]
            else:
                table = shortest(_unsigned(values)) if self._few else _table(values)
                node = ["dict", len(rows), helper, table]
            columns.append([name, RECORD[name].str, node])
        return columns

    def _numbers(self, values: Numbers, repeats: bool = False) -> Node:
        """The shortest node for numbers of which nothing is known; ``repeats`` tries a dictionary."""
        if self._few and repeats:
            return shortest(values)
        low, high = int(values.min()), int(values.max())
        if low == high:
            return ["const", low]
        filled = int(np.count_nonzero(values))
        if filled * 4 <= len(values):
            mask = values != 0
            return ["sparse", filled, _byte_node(np.packbits(mask)), self._numbers(values[mask], repeats)]
        found = self._dictionary((values,)) if repeats else None
        if found is not None:
            ids, rows = found
            return ["dict", len(rows), _plain_bytes(ids), _table(values[rows])]
        return _planes(values, high)

    def _dictionary(
        self, keys: Sequence[npt.NDArray[Any]]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]] | None:
        """Number the different tuples without sorting: each hashes to a slot, the slot names a row.

        Returns:
            Per row the number of its tuple, and per number one row that holds it; None when there are
            too many different ones (or, once in a while, no hash separates them).
        """
        count = len(keys[0])
        most = min(count // (2 if self._few else 4), 1 << 16)
        rows = np.arange(count, dtype=np.int32)
        slot = _hashed(keys, 0)
        self._slots[slot] = rows
        chosen = self._slots[slot]
        owners = np.flatnonzero(chosen == rows)
        if len(owners) > most:
            return None
        if all(bool((key[chosen] == key).all()) for key in keys):
            self._slots[slot[owners]] = np.arange(len(owners), dtype=np.int32)
            ids = self._slots[slot]
        else:
            if not self._hashed_again(keys, chosen):
                return None
            owners = np.flatnonzero(chosen == rows)
            if len(owners) > most:
                return None
            numbers = np.empty(count, np.int32)
            numbers[owners] = np.arange(len(owners), dtype=np.int32)
            ids = numbers[chosen]
        return ids.astype(np.uint8 if len(owners) <= 256 else "<u2"), owners

    def _hashed_again(self, keys: Sequence[npt.NDArray[Any]], chosen: npt.NDArray[np.int32]) -> bool:
        """Moves tuples that share a slot to rows of their own; True if all have one then."""
        for attempt in (1, 2, 3):
            left = np.flatnonzero(np.logical_or.reduce([key[chosen] != key for key in keys]))
            if not len(left):
                return True
            slot = _hashed([key[left] for key in keys], attempt)
            self._slots[slot] = left
            chosen[left] = self._slots[slot]
        return all(bool((key[chosen] == key).all()) for key in keys)


def _hashed(keys: Sequence[npt.NDArray[Any]], attempt: int) -> npt.NDArray[np.int64]:
    """A slot for each tuple."""
    mixed = keys[0] * _MULTIPLIERS[attempt]
    for position, key in enumerate(keys[1:], 1):
        mixed += (key.astype(np.uint64) + np.uint64(1)) * _MULTIPLIERS[(attempt + position) % 4]
    # The top bits of a product depend on all bits of the key.
    mixed = (mixed ^ (mixed >> np.uint64(29))) * _MULTIPLIERS[3] >> np.uint64(64 - _SLOT_BITS)
    slot: npt.NDArray[np.int64] = mixed.view(np.int64)
    return slot


def _unsigned(column: npt.NDArray[Any]) -> Numbers:
    return column.astype(f"<u{column.dtype.itemsize}").astype(np.uint64)


def _delta(values: Numbers) -> Node:
    """Differences, lifted by the smallest so that none is negative."""
    steps = np.zeros(len(values), np.uint64)
    np.subtract(values[1:], values[:-1], out=steps[1:])
    base = int(steps.view(np.int64).min())
    if base:
        steps -= np.uint64(base % 2**64)
    node = _planes(steps, int(steps.max()))
    if base:
        node = ["add", base % 2**64, node]
    return ["delta", int(values[0]), node]


def _sequence(seq: npt.NDArray[np.uint32], cpu: npt.NDArray[np.uint16]) -> Node:
    """Per CPU the number grows by one; in the order of the CPUs only losses and borders differ."""
    ordered = seq[np.argsort(cpu, kind="stable")]
    steps = np.ones(len(seq), np.uint32)
    np.subtract(ordered[1:], ordered[:-1], out=steps[1:])
    steps -= np.uint32(1)
    mask = steps != 0
    filled = int(np.count_nonzero(mask))
    node: Node = ["const", 0]
    if filled * 4 <= len(seq):
        if filled:
            node = ["sparse", filled, _byte_node(np.packbits(mask)), _table(steps[mask])]
    else:
        node = _planes(steps.astype(np.uint64), int(steps.max()))
    # The first step is zero by construction: undo the one of "add".
    return ["by", "cpu", ["delta", (int(ordered[0]) - 1) % 2**64, ["add", 1, node]]]


def _planes(values: Numbers, high: int) -> Node:
    """One node per byte that is used at all."""
    width = max(1, (high.bit_length() + 7) // 8)
    matrix = values.view(np.uint8).reshape(-1, 8)
    return ["planes", [_byte_node(np.ascontiguousarray(matrix[:, byte])) for byte in range(width)]]


def _plain_bytes(ids: npt.NDArray[Any]) -> Node:
    if ids.dtype == np.uint8:
        return _byte_node(ids)
    return _planes(ids.astype(np.uint64), int(ids.max()))


def _table(values: npt.NDArray[Any]) -> Node:
    """A short array: compressed when that helps, whatever it holds."""
    raw = values.tobytes()
    dtype = f"<u{values.dtype.itemsize}" if values.dtype.itemsize > 1 else "|u1"
    if len(raw) > _SMALL:
        squeezed = zlib.compress(raw, 1)
        if len(squeezed) < len(raw):
            return ["z", dtype, squeezed]
    return ["raw", dtype, raw]


def _byte_node(plane: Bytes) -> Node:
    """One byte per row, by how much order a sample of it shows."""
    low = int(plane[0])
    if not (plane != low).any():
        return ["const", low]
    raw = plane.tobytes()
    if len(raw) <= _SMALL:
        return ["raw", "|u1", raw]
    bits = _disorder(plane)
    if bits > _RAW_BITS:
        return ["raw", "|u1", raw]
    strategy = zlib.Z_DEFAULT_STRATEGY if bits < _PATTERN_BITS else zlib.Z_HUFFMAN_ONLY
    packer = zlib.compressobj(1, zlib.DEFLATED, 15, 8, strategy)
    squeezed = packer.compress(raw) + packer.flush()
    if len(squeezed) >= len(raw):
        return ["raw", "|u1", raw]
    return ["z", "|u1", squeezed]


def _disorder(plane: Bytes) -> float:
    """Bits per byte, neighbours ignored (by the chance that two are equal: needs no logarithms)."""
    sample = plane[:: max(1, len(plane) // _SAMPLE)]
    counts = np.bincount(sample)
    return math.log2(len(sample) ** 2 / int(counts @ counts))

"""Changes of bytes, numbers, texts and plain data: the small steps that all targets are mutated by."""

from __future__ import annotations

import ctypes
from random import Random
from typing import Any

EDGES = (
    *(0, 1, 2, 3, 4, 7, 8, 15, 16, 24, 63, 64, 100, 127, 128, 255, 256, 4095, 4096, 65_535, 65_536),
    *(1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, 1 << 62, (1 << 63) - 1, 1 << 63),
    *((1 << 64) - 1, -1, -2, -128, -(1 << 31), -(1 << 63)),
)
_TEXTS = ("", "\0", "x" * 5000, "é目\U0001f600", "\udcff", "\x1b[2J", "a\nb", "%s{}", "-1", "nan", "1e999")
_MOST_DEPTH = 6
_M_ARENA_MAX = -8  # malloc.h


def one_arena() -> None:
    """Threads of libraries take no address space of their own for what they allocate: it is limited here."""
    ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def number(value: int, random: Random) -> int:
    """A number near another one, or far from all."""
    return random.choice(
        (
            random.choice(EDGES),
            value + random.choice((-1, 1, 8, -8, 4096)),
            value ^ 1 << random.randrange(64),
            -value,
            value * random.randrange(1, 1000),
            random.getrandbits(random.choice((8, 16, 32, 64))),
        )
    )


def packed(value: int, size: int) -> bytes:
    """A number in so many bytes, cut where it is longer."""
    return (value & (1 << 8 * size) - 1).to_bytes(size, "little")


def some_bytes(data: bytes, random: Random) -> bytes:
    """Bytes that are changed, gone, doubled, or come from elsewhere."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4, 16))):
        at = random.randrange(len(changed) + 1)
        size = random.choice((1, 1, 2, 4, 8, 64, 500))
        match random.randrange(6):
            case 0 if changed:
                changed[min(at, len(changed) - 1)] ^= 1 << random.randrange(8)
            case 1:
                del changed[at : at + size]
            case 2:
                changed[at:at] = changed[at : at + size]
            case 3:
                changed[at : at + size] = random.randbytes(size)
            case 4:
                size = random.choice((1, 2, 4, 8))
                changed[at : at + size] = packed(random.choice(EDGES), size)
            case 5:
                there = random.randrange(len(changed) + 1)
                changed[at : at + size] = changed[there : there + size]
    return bytes(changed)


def text(value: str, random: Random) -> str:
    """Another text."""
    match random.randrange(5):
        case 0:
            return random.choice(_TEXTS)
        case 1:
            return value + random.choice(_TEXTS)
        case 2:
            return value[: random.randrange(len(value) + 1)]
        case 3:
            return some_bytes(value.encode(errors="surrogateescape"), random).decode(errors="surrogateescape")
    return value * random.choice((2, 50))


def anything(random: Random) -> Any:
    """Plain data of any type."""
    return random.choice(
        (
            *(None, True, "", "x", b"", b"\xff" * 9, [], {}, [[]], {"": None}, {1: 2}, [None] * 3, -1, 1.5),
            *(float("nan"), float("inf"), [1, "2"], {"pid": "x"}, random.choice(EDGES)),
        )
    )


def plain(value: Any, random: Random, depth: int = 0) -> Any:
    """Plain data with one thing in it changed: its value, its type, its place."""
    if random.random() < 0.12 or depth > _MOST_DEPTH:
        return anything(random)
    if isinstance(value, dict) and value:
        return _changed_map(value, random, depth)
    if isinstance(value, list) and value:
        return _changed_list(value, random, depth)
    if isinstance(value, bool) or value is None:
        return anything(random)
    if isinstance(value, int):
        return number(value, random)
    if isinstance(value, float):
        return random.choice((-value, value * 1e300, float("nan"), float("-inf"), 0.0, 7.0))
    if isinstance(value, str):
        return text(value, random)
    return some_bytes(value, random) if isinstance(value, bytes) else anything(random)


def _changed_map(value: dict[Any, Any], random: Random, depth: int) -> dict[Any, Any]:
    changed, key = dict(value), random.choice(list(value))
    match random.randrange(8):
        case 0:
            del changed[key]
        case 1:
            changed[random.choice((text(str(key), random), 7, None, ""))] = changed.pop(key)
        case 2:
            changed[key] = changed[random.choice(list(value))]
        case _:
            changed[key] = plain(changed[key], random, depth + 1)
    return changed


def _changed_list(value: list[Any], random: Random, depth: int) -> list[Any]:
    changed, at = list(value), random.randrange(len(value))
    match random.randrange(8):
        case 0:
            del changed[at]
        case 1:
            changed.insert(at, anything(random))
        case 2:
            changed *= random.choice((2, 100))
        case 3:
            random.shuffle(changed)
        case _:
            changed[at] = plain(changed[at], random, depth + 1)
    return changed

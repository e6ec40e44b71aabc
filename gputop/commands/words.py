"""Types of arguments; each raises ``argparse.ArgumentTypeError`` with the sentence to show."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gputop.playback.alerts import Rule


def pids(text: str) -> tuple[int, ...]:
    """Parse comma-separated process IDs."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a process ID or a list like 12,34") from None
    if any(pid <= 0 for pid in numbers):
        raise argparse.ArgumentTypeError("process IDs are positive")
    return numbers


def gpus(text: str) -> tuple[int, ...]:
    """Parse comma-separated indices of GPUs."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 4 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a GPU index or a list like 0,1")
    return tuple(int(part) for part in parts)


def bounded(low: float, high: float, unit: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is outside {low:g} to {high:g} {unit}")
        return value

    return parse


def size(text: str) -> int:
    """Parse a size of at least 1 MiB, such as ``500M``; return it in bytes."""
    units = {"K": 10, "M": 20, "G": 30, "T": 40}
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].upper() in units else (text, "")
    try:
        found = int(float(number) * (1 << units.get(unit, 0)))
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size like 500M or 2G") from None
    if found < 1 << 20:
        raise argparse.ArgumentTypeError(f"{text} is less than 1M")
    return found


def ring(text: str) -> int:
    """Parse the size of the ring buffer, a power of two in MiB."""
    try:
        size = int(text)
    except ValueError:
        size = 0
    if size < 1 or size > 1024 or size & (size - 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not a power of two from 1 to 1024")
    return size


def rule(text: str) -> Rule:
    from gputop.playback.alerts import RuleError, parse

    try:
        return parse(text)
    except RuleError as error:
        raise argparse.ArgumentTypeError(str(error)) from error

"""Parses a typed time to go to."""

from __future__ import annotations

import re

from gputop.engine.frame import Frame
from gputop.format import NS_PER_S, format_clock, format_duration
from gputop.playback.feed import Transport

HINT = "-30s  14:02  50%  12.5 (seconds from the start)"
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "ms": 0.001}
_DAY_NS = 86_400 * NS_PER_S
_EDGE_NS = NS_PER_S  # a session starts a little before its first mark


def jump_target(text: str, transport: Transport, frame: Frame) -> int:
    """Return the time to go to, CLOCK_MONOTONIC.

    Args:
        text: ``-30s``, ``+1m`` (from the current position), ``14:02``, ``14:02:31.5``, ``50%``, or seconds
            from the start.
        transport: The current position and the range.
        frame: The frame shown, for the time of day.

    Raises:
        ValueError: Not a time, or out of range; the message is for the user.
    """
    text = text.strip()
    start, end = transport.start_ns, transport.end_ns
    if match := re.fullmatch(r"([+-])\s*(\d+(?:\.\d*)?)\s*(ms|s|m|h|)", text):
        by = round(float(match[2]) * _UNITS[match[3]] * NS_PER_S)
        target = transport.position_ns + (by if match[1] == "+" else -by)
        return min(max(target, start), end)
    if match := re.fullmatch(r"(\d+(?:\.\d*)?)\s*%", text):
        if float(match[1]) > 100:
            raise ValueError("Enter 0% to 100%")
        return start + round((end - start) * float(match[1]) / 100)
    if match := re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d(?:\.\d*)?))?", text):
        seconds = int(match[1]) * 3600 + int(match[2]) * 60 + float(match[3] or 0)
        target = _at_clock(round(seconds * NS_PER_S), frame, start)
    elif match := re.fullmatch(r"(\d+(?:\.\d*)?)\s*(s|m|h|)", text):
        origin = frame.start_ns if 0 <= start - frame.start_ns <= _EDGE_NS else start
        target = origin + round(float(match[1]) * _UNITS[match[2]] * NS_PER_S)
    else:
        raise ValueError(
            f"{text!r} is not a time; for example {HINT}" if text else f"Enter a time, for example {HINT}"
        )
    if not start - _EDGE_NS <= target <= end + _EDGE_NS:
        clocks = [format_clock(ns - frame.time_ns + frame.wall_ns, frame.utc_offset_s) for ns in (start, end)]
        raise ValueError(f"outside the range {clocks[0]} to {clocks[1]}, {format_duration(end - start)}")
    return min(max(target, start), end)


def _at_clock(of_day_ns: int, frame: Frame, start_ns: int) -> int:
    """Return the first time with that time of day that is not clearly before the start."""
    wall = frame.wall_ns + start_ns - frame.time_ns + frame.utc_offset_s * NS_PER_S
    after = (of_day_ns - wall) % _DAY_NS
    return start_ns + (after - _DAY_NS if after >= _DAY_NS - 60 * NS_PER_S else after)

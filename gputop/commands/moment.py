"""The moment of ``--at``: seconds, or the time of day on the recording machine."""

from __future__ import annotations

import re
from itertools import pairwise

from gputop.api.reading import understood
from gputop.errors import USAGE, CommandError
from gputop.playback.player import mark_at
from probes.samples import sample_data
from probes.source import MARK
from replay.reader import SessionReader

_DAY_S = 86400
_SET_S = 1.0  # a larger difference means that the clock was set
_AFTER_S = 1.0  # behind the last mark


def mark_index(reader: SessionReader, text: str) -> int:
    """Return the index of the newest mark that is not after a time.

    Args:
        text: Seconds from the start, ``HH:MM:SS`` in the recording machine's zone, or ``end``. Of two equal
            times, since the clock was set back, the first counts.

    Raises:
        CommandError: Not a time, or one outside the recording.
    """
    if text == "end":
        return len(reader.marks) - 1
    with understood(reader.path):
        if match := re.fullmatch(r"(\d{1,2}):(\d\d):(\d\d(?:\.\d+)?)", text):
            return _at_clock(reader, int(match[1]) * 3600 + int(match[2]) * 60 + float(match[3]), text)
        try:
            seconds = float(text)
        except ValueError:
            raise CommandError(f"--at {text}: enter seconds, HH:MM:SS or end", USAGE) from None
        return _at_seconds(reader, seconds, text)


def _at_seconds(reader: SessionReader, seconds: float, text: str) -> int:
    start_ns = _start_ns(reader)
    length_s = (int(reader.marks[-1]) - start_ns) / 1e9
    if not 0 <= seconds <= length_s + _AFTER_S:
        raise CommandError(f"--at {text} lies outside the recording, which is {length_s:.1f} s long", USAGE)
    return mark_at(reader, start_ns + int(seconds * 1e9))


def _at_clock(reader: SessionReader, seconds: float, text: str) -> int:
    """Return the mark for a time of day; the clock may have been set while recording."""
    begun_s, last = _start_of_day_s(reader), len(reader.marks) - 1
    due_s = begun_s + (int(reader.marks[last]) - _start_ns(reader)) / 1e9
    shown_s = _shown_s(reader, last)
    if shown_s is None or abs(_ahead_s(shown_s, due_s)) < _SET_S:
        return _at_seconds(reader, (seconds - begun_s) % _DAY_S, text)
    shown = ((index, _shown_s(reader, index)) for index in range(last + 1))
    ahead = [(index, _ahead_s(seconds, one)) for index, one in shown if one is not None]
    for (index, this), (_, following) in pairwise(ahead):
        until_next_s = (int(reader.marks[index + 1]) - int(reader.marks[index])) / 1e9
        if this >= 0 and (following < 0 or this < until_next_s):
            return index
    if not 0 <= ahead[-1][1] <= _AFTER_S:
        why = "the clock, which was set meanwhile, never showed that time during the recording"
        raise CommandError(f"--at {text}: {why}", USAGE)
    return last


def _shown_s(reader: SessionReader, index: int) -> float | None:
    """Return the local time of day at a mark, in seconds; None: not recorded."""
    mark = reader.mark(index)
    data = sample_data(mark, MARK) if mark is not None else None
    if data is None or "wall_ns" not in data:
        return None
    return (int(data["wall_ns"]) / 1e9 + _offset_s(reader)) % _DAY_S


def _ahead_s(one_s: float, other_s: float) -> float:
    """Return how far a time of day is ahead of another, between -12 and 12 hours."""
    return (one_s - other_s + _DAY_S / 2) % _DAY_S - _DAY_S / 2


def _start_ns(reader: SessionReader) -> int:
    return int(reader.header.get("start_ns", reader.marks[0]))


def _offset_s(reader: SessionReader) -> int:
    return int(reader.header.get("clock", {}).get("utc_offset_s", 0))


def _start_of_day_s(reader: SessionReader) -> float:
    """Return the local time of day of the recording's start, in seconds."""
    clock, start_ns = reader.header.get("clock", {}), _start_ns(reader)
    wall_ns = int(clock.get("realtime_ns", 0)) + start_ns - int(clock.get("monotonic_ns", start_ns))
    return (wall_ns / 1e9 + _offset_s(reader)) % _DAY_S

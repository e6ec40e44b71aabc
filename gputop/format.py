"""Formats numbers, units and names: pure functions, the only place where units become text.

Every number fits into six columns, the fixed width of a table's figure. ``None``, unknown, is ``-``, never
zero.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from rich.cells import cell_len

NS_PER_S = 1_000_000_000
# without the full block, which would touch the line above
SPARKS = " ▁▂▃▄▅▆▇"
SPARKS_ASCII = " .:-=+*#"
# Unicode categories shown as escapes: invisible, unassigned, or changing their neighbours
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Mn", "Me", "Mc"})
_TIME_UNITS = (
    (1_000, 1, "ns"),
    (1_000_000, 1_000, "us"),
    (NS_PER_S, 1_000_000, "ms"),
    (1_000 * NS_PER_S, NS_PER_S, "s"),
)
_LONG_TIME_UNITS = (("m", 60), ("h", 3_600), ("d", 86_400))


def _three_digits(value: float) -> str:
    """Return a value below 1000 with about three significant digits and at most one decimal."""
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def format_ns(ns: float | None) -> str:
    """Return a duration in at most six columns: ``999ns``, ``5.0us``, ``41.0ms``, ``1.25s``, ``17m``."""
    if ns is None or not math.isfinite(ns):
        return "-"
    if ns < 1_000:
        return f"{max(ns, 0):.0f}ns" if round(ns) < 1_000 else "1.0us"
    for limit, unit, suffix in _TIME_UNITS[1:]:
        text = f"{ns / unit:.2f}" if suffix == "s" and ns / unit < 9.995 else _three_digits(ns / unit)
        if ns < limit and text != "1000":
            return text + suffix
    seconds = ns / NS_PER_S
    for suffix, unit_s in reversed(_LONG_TIME_UNITS):
        if seconds >= unit_s and (suffix == "m" or seconds >= 2 * unit_s):
            return f"{min(seconds // unit_s, 99_999):.0f}{suffix}"
    return f"{seconds:.0f}s"


def format_joules(joules: float | None) -> str:
    """Return an energy: ``0.4 J``, ``512 J``, ``1.2 kJ``, ``3.1 MJ``."""
    if joules is None or not math.isfinite(joules):
        return "-"
    power = 0 if joules < 999.5 else 1 if joules < 999.5e3 else 2
    scaled, unit = joules / 1e3**power, ("J", "kJ", "MJ")[power]
    return f"{scaled:.2g} {unit}" if scaled < 9.95 else f"{scaled:.0f} {unit}"


def format_hours(hours: float | None) -> str:
    """Return GPU hours, without days: ``41.0ms``, ``17m``, ``2.5h``, ``1,204h``."""
    if hours is None or not math.isfinite(hours):
        return "-"
    if hours < 1:
        return format_ns(hours * 3_600 * NS_PER_S)
    return (_three_digits(hours) if hours < 999.5 else f"{hours:,.0f}") + "h"


def format_count(count: float | None) -> str:
    """Return a count or a rate in at most five columns: ``0``, ``3.2``, ``999``, ``8.1k``, ``1.2M``."""
    if count is None or not math.isfinite(count):
        return "-"
    if count < 999.5:
        return f"{count:.1f}" if 0 < count < 9.95 and count != int(count) else f"{count:.0f}"
    for suffix in "kMGTP":
        count /= 1_000
        if count < 999.5:
            return _three_digits(count) + suffix
    return "999P+"


def format_times(count: int) -> str:
    """Return ``once``, ``69 times``, ``8.1k times``."""
    return "once" if count == 1 else f"{format_count(count)} times"


def format_counted(count: int, noun: str) -> str:
    """Return a count with its noun, whose plural ends in s: ``1 session``, ``8.1k sessions``."""
    return f"{format_count(count)} {noun}{'' if count == 1 else 's'}"


def format_bytes(size: float | None) -> str:
    """Return a size in at most six columns, in units of 1024: ``512B``, ``1.5K``, ``61.0G``."""
    if size is None or not math.isfinite(size):
        return "-"
    if size < 1_000:
        return f"{size:.0f}B"
    for suffix in "KMGTP":
        size /= 1_024
        if size < 999.5:
            return _three_digits(size) + suffix
    return "999P+"


def format_percent(percent: float | None) -> str:
    """Return a percentage without its sign, in at most five columns: ``0``, ``0.4``, ``12``, ``1600``."""
    if percent is None or not math.isfinite(percent):
        return "-"
    if percent < 0.05:
        return "0"
    return f"{percent:.1f}" if percent < 0.95 else f"{min(percent, 99_999):.0f}"


def format_watts(milliwatts: int | None) -> str:
    """Return a power: ``212W``."""
    return "-" if milliwatts is None else f"{milliwatts / 1_000:.0f}W"


def format_duration(ns: int) -> str:
    """Return a position in time: ``02:11``, ``1:02:11``."""
    seconds = max(ns, 0) // NS_PER_S
    hours, rest = divmod(seconds, 3_600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60:02d}:{rest % 60:02d}"


def format_clock(wall_ns: int, utc_offset_s: int, *, millis: bool = False) -> str:
    """Return the time of day in the zone of the observed machine: ``14:02:31.250``."""
    total_ms = wall_ns // 1_000_000 + utc_offset_s * 1_000
    seconds = total_ms // 1_000 % 86_400
    text = f"{seconds // 3_600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{total_ms % 1_000:03d}" if millis else text


@lru_cache(maxsize=8_192)
def escape_text(text: str, *, ascii_only: bool = False) -> str:
    """Return text from outside, escaped for a terminal: one line, no invisible or control characters.

    With ``ascii_only`` all non-ASCII characters become ``?``.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape_char(char, ascii_only) for char in unicodedata.normalize("NFC", text))


def _escape_char(char: str, ascii_only: bool) -> str:
    code = ord(char)
    if code < 0x7F:
        return char if code >= 0x20 else f"\\x{code:02x}"
    if ascii_only:
        return "?"
    if unicodedata.category(char) in _HIDDEN or cell_len(char) < 1:
        return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
    return " " if unicodedata.category(char) == "Zs" else char


def width_of(text: str) -> int:
    """Return the width of an escaped text in columns."""
    return len(text) if text.isascii() else cell_len(text)


def brief(text: str, width: int) -> str:
    """Return a title without its final brackets if it does not fit, then without the usual subject of waits.

    With a width of 0 only the brackets are removed.
    """
    head, bracket, _rest = text.rpartition(" (")
    if bracket and text.endswith(")") and width_of(text) > width:
        text = head
    if 0 < width < width_of(text):
        text = text.removeprefix("the submitting thread ").removeprefix("is ")
    return text


def clip(text: str, width: int, ellipsis: str = "…") -> str:
    """Return the text cut to ``width`` columns, with an ellipsis."""
    if width <= 0:
        return ""
    if width_of(text) <= width:
        return text
    room = width - len(ellipsis)
    if room <= 0:
        return ellipsis[:width]
    if text.isascii():
        return text[:room] + ellipsis
    kept: list[str] = []
    for char in text:
        room -= cell_len(char)
        if room < 0:
            break
        kept.append(char)
    return "".join(kept) + ellipsis


def clip_place(place: str, width: int, ellipsis: str = "…") -> str:
    """Return ``file.py:12`` cut to ``width`` columns: the file's name is cut, not the line."""
    file, colon, line = place.rpartition(":")
    rest = colon + line
    if not file or width_of(place) <= width or width_of(rest) >= width:
        return clip(place, width, ellipsis)
    return clip(file, width - width_of(rest), ellipsis) + rest


def fit(text: str, width: int, *, right: bool = False, ellipsis: str = "…") -> str:
    """Return the text in exactly ``width`` columns, cut or padded."""
    text = clip(text, width, ellipsis)
    padding = " " * (width - width_of(text))
    return padding + text if right else text + padding


def sparkline(values: Sequence[int | None], width: int, *, ascii_only: bool = False) -> str:
    """Return the newest ``width`` values on a scale of 0 to 100, oldest left; a gap (``None``) is ``·``."""
    glyphs, gap = (SPARKS_ASCII, "?") if ascii_only else (SPARKS, "·")
    newest = values[-width:] if width > 0 else ()
    last = len(glyphs) - 1
    text = "".join(
        # the lowest bar for zero, which differs from unknown
        gap if value is None else glyphs[max(1, min(last, math.ceil(value / 100 * last)))]
        for value in newest
    )
    return text.rjust(max(width, 0))


def bar(fraction: float | None, width: int, *, ascii_only: bool = False) -> tuple[str, str]:
    """Return the filled and the empty part of a bar of ``width`` columns."""
    full, empty = ("#", ".") if ascii_only else ("━", "─")
    filled = 0 if fraction is None else round(min(max(fraction, 0.0), 1.0) * width)
    return full * filled, empty * (width - filled)


def used_range(histograms: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Return the range of used buckets over all histograms, end exclusive; (0, 0) without any."""
    used = [index for histogram in histograms for index, count in enumerate(histogram) if count]
    return (min(used), max(used) + 1) if used else (0, 0)


def histogram_bars(
    histogram: Sequence[int], used: tuple[int, int], width: int, *, ascii_only: bool = False
) -> str:
    """Return a glyph for each bucket in ``used``, as high as its share of the fullest.

    Args:
        histogram: Counts by power-of-two bucket.
        used: The buckets to show, equal for all rows of a table.
        width: The columns; with more buckets, neighbours are summed.
        ascii_only: Draw with ASCII.
    """
    first, end = used
    if end <= first or width <= 0:
        return ""
    group = math.ceil((end - first) / width)
    sums = [sum(histogram[start : min(start + group, end)]) for start in range(first, end, group)]
    highest = max(sums)
    glyphs, none = (SPARKS_ASCII, " ") if ascii_only else (SPARKS, " ")
    last = len(glyphs) - 1
    return "".join(glyphs[max(1, math.ceil(count / highest * last))] if count else none for count in sums)

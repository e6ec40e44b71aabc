"""Replies of tools: JSON of at most 16 kB, units in its keys, text of traced programs marked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from gputop.errors import USAGE, CommandError
from gputop.format import escape_text
from probes.api import NAMES

MOST_BYTES = 16_000
_ROOM = 300  # of it, for the fields of a page
BEGIN, END = "[traced-data]", "[/traced-data]"
_TAG = re.compile(r"\[\s*/?\s*traced-data\s*\]", re.IGNORECASE)
_NAME_BYTES, _TEXT_BYTES = 256, 1024
_NAMES = frozenset({"name", "command", "file", "function", "host", "label", "kernel", "driver"})
# keys whose values are gputop's own terms
_OWN = frozenset({"bound", "cause", "change", "class", "kind", "layer", "level", "next_cursor", "schema"})
_OWN |= {"session", "source", "unit"}
_WORD = re.compile(r"[A-Za-z0-9_./-]{1,64}")
_CALLS = frozenset(NAMES)
_MOMENTS = frozenset({"moments", "time", "at"})
_BOUNDS = {"lower": "proved", "upper": "at_most", "estimate": "estimated"}


class OwnText(str):
    """A text by gputop, without text of a traced program."""

    __slots__ = ()


def with_units(value: Any) -> Any:
    """Return a document with milliseconds and seconds instead of nanoseconds, and the unit in each key.

    Bounds of a duration are named ``proved`` and ``at_most``.
    """
    if isinstance(value, Mapping):
        return dict(_converted(str(key), one) for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return [with_units(one) for one in value]
    return value


def _converted(key: str, value: Any) -> tuple[str, Any]:
    if key == "ns":
        return "ms", _scaled(value, 1e6)
    if not key.endswith("_ns"):
        return key, with_units(value)
    base = key.removesuffix("_ns")
    return (f"{base}_s", _scaled(value, 1e9)) if base in _MOMENTS else (f"{base}_ms", _scaled(value, 1e6))


def _scaled(value: Any, unit: float) -> Any:
    if isinstance(value, Mapping):
        return {_BOUNDS.get(key, key): _scaled(one, unit) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_scaled(one, unit) for one in value]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return round(value / unit, 4)


def in_ms(ns: float | None) -> float | None:
    """Return milliseconds, rounded as in all replies."""
    return None if ns is None else round(ns / 1e6, 4)


def cleaned(value: Any, key: str = "") -> Any:
    """Return a value with all text of the recording marked, bounded and without control characters."""
    if isinstance(value, Mapping):
        return {str(name): cleaned(one, str(name)) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [cleaned(one, key) for one in value]
    if not isinstance(value, str) or isinstance(value, OwnText):
        return value
    if value in _CALLS or (key in _OWN and _WORD.fullmatch(value)):
        return value
    return marked(value, _NAME_BYTES if key in _NAMES else _TEXT_BYTES)


def marked(text: str, most_bytes: int = _TEXT_BYTES) -> str:
    """Return a text of the recording between marks that it cannot contain itself."""
    if not text:
        return text
    text = untagged(escape_text(text))
    if len(text.encode()) > most_bytes:
        text = text.encode()[: most_bytes - 3].decode(errors="ignore") + "…"
    return f"{BEGIN}{text}{END}"


def untagged(text: str) -> str:
    """Return a text without marks, also those that appear when one within another is removed."""
    while _TAG.search(text):
        text = _TAG.sub("", text)
    return text


def page(
    fixed: Mapping[str, Any],
    key: str,
    rows: Sequence[Any],
    cursor: str | None = None,
    most: int | None = None,
) -> str:
    """Return a reply with as many rows as fit, and the cursor of the next page.

    Args:
        fixed: Fields of every page; shortened if they alone do not fit.
        key: Of the rows.
        rows: All of them.
        cursor: ``next_cursor`` of the page before; None: the first page.
        most: Rows of a page, at most.
    """
    begin = offset_of(cursor)
    reply = _shortened(cleaned(fixed), MOST_BYTES // 2)
    left = MOST_BYTES - _ROOM - len(dumped(reply))
    kept: list[Any] = []
    for row in rows[begin : None if most is None else begin + most]:
        shown = cleaned(row)
        if len(dumped(shown)) + 2 > left and not kept:  # else no page would ever hold it
            shown = _shortened(shown, left - 2)
        left -= len(dumped(shown)) + 2
        if left < 0:
            break
        kept.append(shown)
    end = begin + len(kept)
    reply |= {key: kept, "total": len(rows), "truncated": end < len(rows)}
    if end < len(rows):
        reply["next_cursor"] = str(end)
    return dumped(reply)


def whole(reply: Mapping[str, Any]) -> str:
    """Return a reply without pages; what does not fit is shortened, with a mark."""
    return dumped(_shortened(cleaned(reply), MOST_BYTES))


def offset_of(cursor: str | None) -> int:
    """Return the first row of a page.

    Raises:
        CommandError: The cursor is invalid.
    """
    if cursor is None or cursor == "":
        return 0
    if not re.fullmatch(r"[0-9]{1,9}", cursor):
        raise CommandError("not a cursor: use next_cursor of the previous reply, or omit it", USAGE)
    return int(cursor)


def dumped(reply: Any) -> str:
    return json.dumps(reply, ensure_ascii=True, separators=(",", ":"))


def _shortened(value: Any, most: int) -> Any:
    """A value within so many bytes: lists and texts lose their ends, step by step."""
    items, chars = 64, 1024
    while len(dumped(value)) > most and (items or chars > 40):
        value = _cut(value, items, partial(_clipped, chars))
        items, chars = items // 2, max(chars // 2, 40)
    return value if len(dumped(value)) <= most else {"left_out": "too large for one reply"}


def _cut(value: Any, items: int, clip: Callable[[str], str], *, counted: bool = False) -> Any:
    """Lists and texts without their ends; the rest of a list is counted beside its key, or shown as …."""
    if isinstance(value, Mapping):
        made: dict[str, Any] = {}
        for key, one in value.items():
            made.setdefault(key, _cut(one, items, clip, counted=True))
            if isinstance(one, list) and len(one) > items:
                made[f"{key}_left_out"] = len(one) - items + int(value.get(f"{key}_left_out", 0))
        return made
    if isinstance(value, list):
        kept = [_cut(one, items, clip) for one in value[:items]]
        return kept if counted or len(value) <= items else [*kept, "…"]
    return clip(value) if isinstance(value, str) else value


def _clipped(chars: int, text: str) -> str:
    if len(text) <= chars + len(BEGIN) + len(END) + 1:
        return text
    if text.startswith(BEGIN):
        return text[: chars + len(BEGIN)].removesuffix("…") + "…" + END
    return text[:chars] + "…"

"""Named ranges (NVTX, profilers, annotations) of each thread.

Ranges of a thread are nested. Those of a whole process (annotations) lie around them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from gputop.analysis.evidence.api_classes import RANGE, SPAN, Activities
from gputop.analysis.evidence.call_context import AROUND, Innermost, flat
from gputop.analysis.evidence.columns import Ints
from gputop.format import clip, format_percent
from probes.activities import Table

_PART, _NAMED = 0.1, 3  # least share of the time of a range in a text; most ranges in it
_LONGEST: Final = 80  # characters of a path
_DEEPEST: Final = 8  # names in a path: the innermost of more
_MARK: Final = "…"
# the suffix of operators and record_function ranges by PyTorch's emit_nvtx
_EMITTED: Final = re.compile(r", (stashed seq|seq|op_id|sizes|input_op_ids)\b.*", re.DOTALL)
_NUMBER: Final = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class RangePaths:
    """One thread's ranges as disjoint intervals in order; ``paths``: their names, outer to inner."""

    intervals: Innermost
    paths: tuple[str, ...]

    def times(self, begin: Ints, end: Ints) -> dict[str, int]:
        """Return the ns of each path within disjoint intervals in order."""
        return {self.paths[one]: ns for one, ns in self.intervals.times(begin, end).items()}

    def at(self, moments: Ints) -> Ints:
        """Return the path at each moment, a place in ``paths``; -1: none."""
        return _place(self.intervals, moments)


class NamedRanges:
    """The ranges of all threads of a recording, each computed at its first use."""

    def __init__(self, activities: Activities) -> None:
        self._texts = activities.texts
        around = np.array([text.startswith(AROUND) for text in self._texts] or [False])
        rows = activities.of(RANGE)
        self._own: Table = rows[(rows["end"] > rows["begin"]) & ~around[rows["name"]]]
        spans = activities.of(SPAN)
        self._shared: Table = spans[(spans["tid"] < 0) & (spans["end"] > spans["begin"])]
        self._known: dict[tuple[int, int], RangePaths] = {}

    @cached_property
    def any(self) -> bool:
        """True if there are any."""
        return bool(len(self._own) or len(self._shared))

    @property
    def threads(self) -> frozenset[int]:
        """Threads with ranges of their own."""
        return frozenset(self._own["tid"].tolist())

    def of(self, pid: int, tid: int) -> RangePaths:
        """Return the ranges of a thread."""
        if (pid, tid) not in self._known:
            own = self._own[(self._own["tid"] == tid) & np.isin(self._own["pid"], (pid, -1))]
            parts = (self._shared[self._shared["pid"] == pid], own)
            self._known[pid, tid] = _nested([_paths(one, self._texts) for one in parts if len(one)])
        return self._known[pid, tid]


def _paths(rows: Table, texts: Sequence[str]) -> RangePaths:
    """The paths of nested rows."""
    rows = rows[np.lexsort((-rows["end"], rows["begin"]))]
    pieces, stacks = flat(rows)
    numbers: dict[tuple[int, ...], int] = {}
    which = np.array([numbers.setdefault(one, len(numbers)) for one in stacks], np.int64)
    names = tuple(_path([texts[name] for name in one]) for one in numbers)
    return RangePaths(Innermost(pieces.begin, pieces.end, which), names)


def plain_name(name: str) -> str:
    """Return a name without the suffix of PyTorch's emit_nvtx."""
    return _EMITTED.sub("", name)


def _path(names: Sequence[str]) -> str:
    shown = [clip(plain_name(name), _LONGEST) for name in names[-_DEEPEST:]]
    return clip("/".join([*([_MARK] if len(names) > _DEEPEST else []), *shown]), _LONGEST)


def _nested(parts: Sequence[RangePaths]) -> RangePaths:
    """The outer ranges with the inner ones in them."""
    if len(parts) != 2:
        none = np.zeros(0, np.int64)
        return parts[0] if parts else RangePaths(Innermost(none, none, none), ())
    outer, inner = parts
    edges = np.unique(
        np.concatenate([edge for one in parts for edge in (one.intervals.begin, one.intervals.end)])
    )
    begin, end = edges[:-1], edges[1:]
    places = [_place(part.intervals, begin) for part in (outer, inner)]
    keep = (places[0] >= 0) | (places[1] >= 0)
    pairs = list(zip(places[0][keep].tolist(), places[1][keep].tolist(), strict=True))
    numbers: dict[tuple[int, int], int] = {}
    which = np.array([numbers.setdefault(pair, len(numbers)) for pair in pairs], np.int64)
    paths = tuple(
        "/".join(part.paths[place] for part, place in ((outer, first), (inner, second)) if place >= 0)
        for first, second in numbers
    )
    return RangePaths(Innermost(begin[keep], end[keep], which), paths)


def _place(one: Innermost, moments: Ints) -> Ints:
    """The name at each moment; -1: none."""
    if not len(one.begin):
        return np.full(len(moments), -1, np.int64)
    at = np.searchsorted(one.begin, moments, side="right") - 1
    held = np.maximum(at, 0)
    inside = (at >= 0) & (moments < one.end[held])
    return np.where(inside, one.name[held], -1)


def alike(paths: Sequence[str]) -> list[str]:
    """Return names with numbers folded: ``step 1`` and ``step 2`` as ``step #``; a common number stays."""
    together: dict[str, list[list[str]]] = {}
    first: dict[str, str] = {}
    for path in paths:
        folded = _NUMBER.sub("#", path)
        first.setdefault(folded, path)
        together.setdefault(folded, []).append(_NUMBER.findall(path))
    names = {}
    for folded, found in together.items():
        numbers = [one[0] if len(set(one)) == 1 else "#" for one in zip(*found, strict=True)]
        words = _NUMBER.split(first[folded])
        names[folded] = "".join(word + number for word, number in zip(words, [*numbers, ""], strict=True))
    return [names[_NUMBER.sub("#", path)] for path in paths]


def numbers_apart(times: Mapping[str, int]) -> dict[str, int]:
    """Return times with the names folded by ``alike``."""
    found: dict[str, int] = {}
    for name, ns in zip(alike(list(times)), times.values(), strict=True):
        found[name] = found.get(name, 0) + ns
    return found


def in_words(times: dict[str, int], whole_ns: int) -> str:
    """Return ``in range `forward/attention` 62 %, `data` 12 %``; "" if no range has a tenth of the time."""
    found = sorted(times.items(), key=lambda one: (-one[1], one[0]))[:_NAMED]
    parts = [
        f"`{path}` {format_percent(100 * ns / max(whole_ns, 1))} %"
        for path, ns in found
        if ns >= _PART * whole_ns
    ]
    return f"in range {', '.join(parts)}" if parts else ""

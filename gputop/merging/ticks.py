"""Weaves the items of several recordings into one, tick by tick.

The whole has its own marks. Between two marks of a part, its records are split at them, and its threads'
states then follow from these records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from gputop.merging.numbering import Numbering
from probes.schema import ALIASED, Kind, Records, empty, join, select
from probes.source import APIS, FRAMES, GPUS, HOLE, HOST, MACHINE, MARK, OPEN, SHAPES, Item, Sample

_EARLY: Final = frozenset({APIS, FRAMES, SHAPES})  # definitions of numbers, which precede the records
_OF_MACHINE: Final = frozenset({GPUS, HOST, MACHINE})  # from one part of each host
_RUNNING: Final = {"off_since": 0, "queued_since": 0, "queue_cpu": 0, "op": -1, "call_since": 0}


@dataclass(slots=True)
class PartReader:
    """A part while it is read."""

    items_of: Iterator[Item]  # all of its items
    numbering: Numbering
    # begin_ns, end_ns: its extent, by the clock of the whole
    begin_ns: int
    end_ns: int
    cut: bool  # it begins in the middle of a session, at whose mark so many events were ``lost_before``
    lost_before: Mapping[str, int]
    # hole_before, hole_after: unrecorded time there may concern the whole
    hole_before: bool
    hole_after: bool
    # stretches in which another part covers its host, for instance its GPUs
    no_gpus: Sequence[tuple[int, int]]
    mark: Sample | None = None  # its newest mark
    open: Sample | None = None  # its threads at that mark
    # items read but not yet yielded, up to the mark ``ahead`` with its threads ``open_ahead``
    items: list[Item] = field(default_factory=list)
    ahead: Sample | None = None
    open_ahead: Sample | None = None
    ended: bool = False

    def until(self, moment: int) -> Iterator[Item]:
        """Yield its items up to a moment, except marks and open threads."""
        while True:
            if self.ahead is None and not self._read():
                return
            assert self.ahead is not None
            if self.ahead.time_ns > moment:
                yield from self._split(moment)
                return
            yield from self.items
            self.mark, self.open = self.ahead, self.open_ahead or self.open
            self.items, self.ahead, self.open_ahead = [], None, None

    def rest(self) -> Iterator[Item]:
        """Yield the items after its last mark."""
        if self.ahead is None:
            self._read()
        yield from self.items
        self.items = []

    def _read(self) -> bool:
        """Read up to the next mark; False at the end."""
        if self.ended:
            return False
        early: list[Item] = []
        for item in self.items_of:
            if isinstance(item, Sample):
                changed = self.numbering.item(item)
                if isinstance(changed, Sample) and changed.kind == MARK:
                    self.ahead, self.items = changed, [*early, *self.items]
                    return True
                if isinstance(changed, Sample) and changed.kind == OPEN:
                    self.open_ahead = changed
                elif isinstance(changed, Sample) and not (
                    item.kind in _OF_MACHINE
                    and any(low <= changed.time_ns <= high for low, high in self.no_gpus)
                ):
                    (early if item.kind in _EARLY else self.items).append(changed)
            else:
                self.items.append(self.numbering.records(item, cut=self.cut))
        self.ended = True
        self.items = [*early, *self.items]
        return False

    def _split(self, moment: int) -> Iterator[Item]:
        for place, item in enumerate(self.items):
            if isinstance(item, Sample):
                if item.time_ns > moment and item.kind not in _EARLY:
                    self.items = self.items[place:]
                    return
                yield item
                continue
            after = np.flatnonzero(item["t_end"] > np.uint64(moment))
            # late records stay late: losses are found by the order of their numbers
            cut = int(after[0]) if len(after) else len(item)
            if cut:
                yield item[:cut]
            if cut < len(item):
                self.items = [item[cut:], *self.items[place + 1 :]]
                return
        self.items = []

    # -- which threads are open -------------------------------------------------------------------------

    def rows(self, moment: int) -> Iterator[dict[str, Any]]:
        """Yield its threads at a moment up to which its items have been yielded."""
        if self.mark is not None and (self.mark.time_ns == moment or (self.ended and self.ahead is None)):
            over = {"ended": 1} if self.mark.time_ns < moment else {}
            yield from ({**row, **over} for row in _rows(self.open))
            return
        if moment < self.begin_ns or self.ahead is None:
            return
        later = [item for item in self.items if not isinstance(item, Sample)]
        at_mark = {int(row["tid"]): row for row in _rows(self.open_ahead)}
        yield from _open_at(moment, at_mark, join([empty(0), *later]))


def _rows(sample: Sample | None) -> Iterator[dict[str, Any]]:
    columns = {
        key: values for key, values in (sample.data if sample else {}).items() if isinstance(values, list)
    }
    for values in zip(*columns.values(), strict=False):
        yield dict(zip(columns, values, strict=True))


def _open_at(moment: int, later: dict[int, dict[str, Any]], records: Records) -> Iterator[dict[str, Any]]:
    """The threads at a moment, from their states at the next mark and the records in between.

    Args:
        moment: CLOCK_MONOTONIC.
        later: By thread, their states at that mark.
        records: All that ended in between, in order.
    """
    rows = records.view(ALIASED)
    kind = rows["kind"]
    begin = rows["t_end"] - np.minimum(rows["duration"], rows["t_end"])
    born = {int(tid) for tid in rows["tid"][np.isin(kind, [Kind.FORK, Kind.JOIN])].tolist()}
    found = {
        tid: {**row, **_RUNNING} if max(row.get("off_since", 0), 0) > moment else dict(row)
        for tid, row in later.items()
        if tid not in born
    }
    gone = np.isin(rows["tid"], [*born], invert=True) & (rows["t_end"] > np.uint64(moment))
    for row in select(records, gone & (kind == np.uint8(Kind.EXIT))):
        found.setdefault(int(row["tid"]), {"pid": int(row["pid"]), "tid": int(row["tid"]), **_RUNNING})
    for row in found.values():
        if row.get("queued_since", 0) > moment:
            row["queued_since"] = 0
        if row.get("call_since", 0) > moment:
            row["op"], row["call_since"] = -1, 0
    # a thread counts as off its CPU until its record is written
    under_way = begin <= np.uint64(moment)
    for row in rows[(kind == np.uint8(Kind.OFFCPU)) & under_way]:
        thread = found.get(int(row["tid"]))
        if thread is not None:
            queued = int(row["t_end"]) - int(row["runnable"])
            thread["off_since"] = int(row["t_end"]) - int(row["duration"])
            thread["queued_since"] = queued if queued <= moment else 0
            thread["queue_cpu"] = int(row["queue_cpu"])
    for row in rows[
        (kind == np.uint8(Kind.CALL)) & under_way & (rows["t_end"] > np.uint64(moment)) & (rows["depth"] == 0)
    ]:
        thread = found.get(int(row["tid"]))
        if thread is not None:
            thread["op"], thread["call_since"] = int(row["op"]), int(row["t_end"]) - int(row["duration"])
    yield from found.values()


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Threads as columns; missing values are 0."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name, 0) for row in rows] for name in names}


class Weaver:
    """The items of the whole."""

    def __init__(self, sources: Sequence[PartReader], moments: Sequence[int], start_ns: int) -> None:
        """Read nothing yet.

        Args:
            sources: The parts; the wall clock is that of the first one.
            moments: The marks of the whole.
            start_ns: Start of the whole.
        """
        self._sources, self._moments, self._start_ns = sources, moments, start_ns
        self._wall_later: int | None = None

    def items(self) -> Iterator[Item]:
        before = self._start_ns
        for number, moment in enumerate(self._moments, 1):
            for source in self._sources:
                yield from source.until(moment)
            if missing := [place for place, one in enumerate(self._sources) if _missing(one, before, moment)]:
                yield Sample(HOLE, moment, {"why": "not recorded", "parts": missing})
            yield Sample(OPEN, moment, _columns([row for one in self._sources for row in one.rows(moment)]))
            yield Sample(MARK, moment, self._mark(number, moment))
            before = moment
        for source in self._sources:
            yield from source.rest()

    def _mark(self, number: int, moment: int) -> dict[str, Any]:
        marks = [(one, one.mark.data) for one in self._sources if one.mark is not None]
        live = [data for one, data in marks if one.end_ns >= moment]
        first = self._sources[0].mark
        if first is not None and "wall_ns" in first.data:
            self._wall_later = int(first.data["wall_ns"]) - first.time_ns
        lost: dict[str, int] = {}
        for one, data in marks:
            for kind, count in data.get("lost", {}).items():
                lost[kind] = lost.get(kind, 0) + int(count) - one.lost_before.get(kind, 0)
        merged = dict(marks[0][1]) if len(self._sources) == 1 and marks else {"number": number}
        for key in ("begun", "read"):
            if any(key in data for _one, data in marks):
                merged[key] = sum(int(data.get(key, 0)) for _one, data in marks)
        for key in ("own_cpu_percent", "own_rss_bytes"):
            if any(key in data for data in live):
                merged[key] = sum(data.get(key, 0) for data in live)
        wall = {} if self._wall_later is None else {"wall_ns": moment + self._wall_later}
        return {**merged, **wall, "lost": lost}


def _missing(source: PartReader, before: int, moment: int) -> bool:
    """True if unrecorded time between two marks may concern the whole."""
    return (source.hole_before and before < source.begin_ns) or (source.hole_after and moment > source.end_ns)


def moments_of(spans: Sequence[tuple[int, Sequence[int]]]) -> list[int]:
    """Return the marks of the whole: about as many as of one part, and each part's begin and end."""
    if len(spans) == 1:
        return [*spans[0][1]]
    start = min(begin for begin, _marks in spans)
    edges = {moment for begin, marks in spans for moment in (begin, marks[-1]) if moment > start}
    apart = min(float(np.median(np.diff(marks))) if len(marks) > 1 else 0.0 for _begin, marks in spans)
    chosen: list[int] = []
    for moment in sorted(edges.union(*(marks for _begin, marks in spans))):
        if chosen and moment in edges and chosen[-1] not in edges and moment - chosen[-1] < apart / 2:
            chosen[-1] = moment
        elif moment in edges or not chosen or moment - chosen[-1] >= apart / 2:
            chosen.append(moment)
    return chosen

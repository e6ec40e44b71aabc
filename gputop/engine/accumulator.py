"""The accumulator of calls and context switches, of a tick, a recording, or all time since a start.

Batches are filtered here only. An accumulator is made of parts, one for each subject. The screen, ``stats``,
the daemon and the recorder differ in their parts and in when they read them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from probes.schema import Kind, Records, join, select
from probes.source import Sample

_CALL = np.uint8(Kind.CALL)  # an enum takes numpy's slow path
_OFFCPU, _FORK, _JOIN = np.uint8(Kind.OFFCPU), np.uint8(Kind.FORK), np.uint8(Kind.JOIN)

Key = TypeVar("Key", bound=Hashable)
Pairs = dict[Key, tuple[int, int]]  # two sums by key: count and ns, minor and major


def add_pairs(sums: Pairs[Key], more: Mapping[Key, tuple[int, int]]) -> None:
    """Add to sums, key by key."""
    for key, (first, second) in more.items():
        before = sums.get(key, (0, 0))
        sums[key] = before[0] + first, before[1] + second


def summed_pairs(parts: Iterable[Pairs[Key]]) -> Pairs[Key]:
    """Return the sums of several stretches."""
    sums: Pairs[Key] = {}
    for part in parts:
        add_pairs(sums, part)
    return sums


class Part:
    """Sums of one subject; a part overrides the methods of the records that it needs."""

    def add_calls(self, calls: Records) -> None:
        """Add CALL records."""

    def add_offcpu(self, stays: Records) -> None:
        """Add OFFCPU records."""

    def add_lives(self, lives: Records) -> None:
        """Add births and exits of threads."""

    def add_sample(self, sample: Sample) -> None:
        """Add a sample, if its kind concerns this part."""

    def payload(self) -> dict[str, Any]:
        """Return the sums as plain data, for a file or another process."""
        return {}

    def merge(self, data: Mapping[str, Any]) -> None:
        """Add the payload of the next stretch.

        Raises:
            ValueError: The data are invalid, or exceed a limit.
        """


class Accumulator:
    """Adds up records and samples in its parts.

    Records other than calls are few: they are held back until ``settle`` and added together.
    """

    def __init__(self, *parts: Part) -> None:
        self.events = 0  # records so far
        self._parts = parts
        self._held: list[Records] = []

    def add(self, records: Records) -> None:
        """Add a batch, which must not change before ``settle``."""
        self.events += len(records)
        called = records["kind"] == _CALL
        made = int(np.count_nonzero(called))
        if made:
            calls = records if made == len(records) else select(records, called)
            for part in self._parts:
                part.add_calls(calls)
        if made < len(records):
            self._held.append(select(records, ~called) if made else records)

    def settle(self) -> Records | None:
        """Add the records that were held back, and return them."""
        if not self._held:
            return None
        others = self._held[0] if len(self._held) == 1 else join(self._held)
        self._held = []
        kinds = others["kind"]
        off = kinds == _OFFCPU
        if off.any():
            stays = select(others, off)
            for part in self._parts:
                part.add_offcpu(stays)
        lives = (kinds >= _FORK) & (kinds <= _JOIN)
        if lives.any():
            rows = select(others, lives)
            for part in self._parts:
                part.add_lives(rows)
        return others

    def add_sample(self, sample: Sample) -> None:
        """Add a sample to the parts that its kind concerns."""
        for part in self._parts:
            part.add_sample(sample)

    def payload(self) -> dict[str, Any]:
        data: dict[str, Any] = {"events": self.events}
        for part in self._parts:
            data |= part.payload()
        return data

    def merge(self, data: Mapping[str, Any]) -> None:
        """Add the payload of the next stretch.

        Raises:
            ValueError: The data are invalid, or exceed a limit.
        """
        self.events += int(data["events"])
        for part in self._parts:
            part.merge(data)

"""Threads' names: a table that grows all day, whose copies share common parts."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from typing import Final

MOST_NAMES: Final = 32_768  # the newest; as many as the recorder remembers, which repeats others
Row = tuple[int, str]
Layer = dict[int, Row | str]  # only the name where the thread is its process's first: a third of the bytes


def _compact(tid: int, row: Row) -> Row | str:
    """The entry of a row; equal names are one object."""
    pid, name = row[0], sys.intern(row[1])
    return name if pid == tid else (pid, name)


def _row(tid: int, entry: Row | str) -> Row:
    return (tid, entry) if isinstance(entry, str) else entry


class ThreadNames:
    """Threads' (process, name) by thread id.

    A live explanation keeps two dozen copies of the state, one each half minute: were each a table of
    its own, they would be most of the screen's memory after a day on a machine where programs come and go.
    Names from before a copy stay as they are, in layers, each more than twice as large as the next.
    """

    __slots__ = ("_new", "_old")

    def __init__(self) -> None:
        self._old: tuple[Layer, ...] = ()  # the largest first; none is ever changed
        self._new: Layer = {}

    def __len__(self) -> int:
        return sum(map(len, self.layers))  # at least as many as there are

    def __setitem__(self, tid: int, row: Row) -> None:
        self._new.pop(tid, None)  # repeated, it is among the newest
        self._new[tid] = _compact(tid, row)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The tables that hold the threads, oldest first; copies share all but the last."""
        return (*self._old, self._new)

    def get(self, tid: int) -> Row | None:
        """The name of a thread."""
        for layer in reversed(self.layers):
            if (entry := layer.get(tid)) is not None:
                return _row(tid, entry)
        return None

    def items(self) -> Iterator[tuple[int, Row]]:
        """Each thread once, in the order of its last report."""
        return ((tid, _row(tid, entry)) for tid, entry in self._entries())

    def _entries(self) -> Iterator[tuple[int, Row | str]]:
        layers = self.layers
        for place, layer in enumerate(layers):
            again = {tid for other in layers[place + 1 :] for tid in other if tid in layer}
            yield from (one for one in layer.items() if one[0] not in again) if again else layer.items()

    def values(self) -> Iterator[Row]:
        """Of each thread."""
        return (row for _tid, row in self.items())

    def copy(self) -> ThreadNames:
        """An independent copy."""
        layers = [*self._old, *([self._new] if self._new else [])]
        while len(layers) > 1 and 2 * len(layers[-1]) >= len(layers[-2]):
            newer, older = layers.pop(), layers.pop()
            layers.append({tid: row for tid, row in older.items() if tid not in newer} | newer)
        self._old, self._new = tuple(layers), {}
        other = ThreadNames()
        other._old = self._old
        return other

    def update(self, later: ThreadNames) -> None:
        """Adds later names."""
        for tid, row in later.items():
            self[tid] = row

    def shorten(self) -> None:
        """Drop the oldest when there are twice as many as are kept."""
        if len(self) > 2 * MOST_NAMES:
            self._old, self._new = (), dict([*self._entries()][-MOST_NAMES:])

    def forget(self, pids: Collection[int]) -> None:
        """Drop the threads of these processes."""
        gone = {tid for tid, row in self.items() if row[0] in pids}
        kept = [
            layer if layer.keys().isdisjoint(gone) else {tid: layer[tid] for tid in layer if tid not in gone}
            for layer in self.layers
        ]
        self._old, self._new = tuple(layer for layer in kept[:-1] if layer), kept[-1]

"""Threads' names: a table that grows all day, packed into arrays; its copies share common parts."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

MOST_NAMES: Final = 32_768  # the newest; more than the recorder remembers, which repeats others
Row = tuple[int, str]
_FEW: Final = 512  # names that are not packed yet
_MOST_HITS: Final = 1024  # rows that were found last
_END: Final = 1 << 63  # larger numbers are in damaged files only
_SMALL: Final = (1 << 31) - 1


def _numbers(values: Iterable[int]) -> npt.NDArray[Any]:
    numbers = np.array(list(values), np.int64)
    return numbers.astype(np.int32) if (np.abs(numbers) <= _SMALL).all() else numbers


class _Packed:
    """Names by ascending thread id, 20 bytes each; never changed."""

    __slots__ = ("names", "pids", "tids", "turn")

    def __init__(
        self,
        tids: npt.NDArray[Any],
        pids: npt.NDArray[Any],
        names: npt.NDArray[np.object_],
        turn: npt.NDArray[Any],
    ) -> None:
        order = np.argsort(tids, kind="stable")
        self.tids, self.pids, self.names = tids[order], pids[order], names[order]
        self.turn = turn[order].astype(np.int32)  # ascending in the order of their reports

    @classmethod
    def of(cls, rows: dict[int, Row]) -> _Packed:
        names = np.empty(len(rows), object)
        names[:] = [name for _pid, name in rows.values()]
        return cls(_numbers(rows), _numbers(pid for pid, _ in rows.values()), names, np.arange(len(rows)))

    def __len__(self) -> int:
        return len(self.tids)

    def get(self, tid: int) -> Row | None:
        if not len(self) or not self.tids[0] <= tid <= self.tids[-1]:
            return None
        place = int(self.tids.searchsorted(self.tids.dtype.type(tid)))
        return (int(self.pids[place]), self.names[place]) if self.tids[place] == tid else None

    def without(self, tids: Any) -> _Packed:
        """Return the names of other threads."""
        kept = ~np.isin(self.tids, tids)
        if kept.all():
            return self
        return _Packed(self.tids[kept], self.pids[kept], self.names[kept], self.turn[kept])

    def items(self) -> Iterator[tuple[int, Row]]:
        """Each in the order of their reports."""
        for place in np.argsort(self.turn).tolist():
            yield int(self.tids[place]), (int(self.pids[place]), self.names[place])


def _joined(older: _Packed, newer: _Packed) -> _Packed:
    older = older.without(newer.tids)
    later = newer.turn.astype(np.int64) + int(older.turn.max(initial=-1)) + 1
    both = ((getattr(older, name), getattr(newer, name)) for name in ("tids", "pids", "names"))
    tids, pids, names = (np.concatenate(pair) for pair in both)
    turn = np.concatenate([older.turn, later])
    if turn.max(initial=0) > _SMALL // 2:
        turn = np.argsort(np.argsort(turn))
    return _Packed(tids, pids, names, turn)


class ThreadNames:
    """Threads' (process, name) by thread id.

    A live explanation keeps two dozen copies of the state, one each half minute: were each a table of
    its own, they would be most of the screen's memory after a day on a machine where programs come and go.
    Names from before a copy stay as they are, in layers, each more than twice as large as the next.
    """

    __slots__ = ("_hits", "_new", "_old")

    def __init__(self) -> None:
        self._old: tuple[_Packed, ...] = ()  # the largest first
        self._new: dict[int, Row] = {}
        self._hits: dict[int, Row | None] = {}  # found in ``_old``, or not

    def __len__(self) -> int:
        return sum(map(len, self.layers))  # at least as many as there are

    def __setitem__(self, tid: int, row: Row) -> None:
        if not (-_END < tid < _END and -_END < row[0] < _END):
            return
        self._new.pop(tid, None)  # repeated, it is among the newest
        self._new[tid] = row[0], sys.intern(row[1])
        if len(self._new) >= _FEW:
            self._pack()

    @property
    def layers(self) -> tuple[_Packed | dict[int, Row], ...]:
        """The tables that hold the threads, oldest first; copies share all but the last."""
        return (*self._old, self._new)

    def _pack(self) -> None:
        layers = [*self._old, *([_Packed.of(self._new)] if self._new else [])]
        while len(layers) > 1 and 2 * len(layers[-1]) >= len(layers[-2]):
            newer = layers.pop()
            layers.append(_joined(layers.pop(), newer))
        self._old, self._new = tuple(layers), {}
        self._hits.clear()

    def get(self, tid: int) -> Row | None:
        """The name of a thread."""
        if (row := self._new.get(tid)) is not None:
            return row
        if tid not in self._hits:
            if len(self._hits) >= _MOST_HITS:
                self._hits.clear()
            found = (layer.get(tid) for layer in reversed(self._old))
            self._hits[tid] = next((row for row in found if row is not None), None)
        return self._hits[tid]

    def of(self, pid: int) -> Iterator[str]:
        """The names of a process's threads, in the order of their last reports."""
        for place, layer in enumerate(self._old):
            rows = np.flatnonzero(layer.pids == pid)
            for row in rows[np.argsort(layer.turn[rows])].tolist():
                tid = int(layer.tids[row])
                if tid not in self._new and not any(later.get(tid) for later in self._old[place + 1 :]):
                    yield layer.names[row]
        yield from (name for owner, name in self._new.values() if owner == pid)

    def items(self) -> Iterator[tuple[int, Row]]:
        """Each thread once, in the order of its last report."""
        later: Sequence[Any] = [_numbers(self._new)]
        found: list[Iterator[tuple[int, Row]]] = [iter(self._new.items())]
        for layer in reversed(self._old):
            found.append(layer.without(np.concatenate(later)).items())
            later = [*later, layer.tids]
        for rows in reversed(found):
            yield from rows

    def copy(self) -> ThreadNames:
        """An independent copy."""
        self._pack()
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
            self._old, self._new = (), dict([*self.items()][-MOST_NAMES:])
            self._pack()

    def forget(self, pids: Collection[int]) -> None:
        """Drop the threads of these processes."""
        wanted = _numbers(pid for pid in pids if -_END < pid < _END)
        maybe = (layer.tids[np.isin(layer.pids, wanted)].tolist() for layer in self._old)
        rows = {tid: self.get(tid) for tids in (*maybe, self._new) for tid in tids}
        gone = [tid for tid, row in rows.items() if row is not None and row[0] in pids]
        if not gone:
            return
        kept = (layer.without(_numbers(gone)) for layer in self._old)
        self._old = tuple(layer for layer in kept if len(layer))
        for tid in gone:
            self._new.pop(tid, None)
        self._hits.clear()

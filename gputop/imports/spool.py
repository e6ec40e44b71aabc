"""Tables of integers that may be larger than memory: appended row by row, read back sorted in parts."""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.void]
Ints = npt.NDArray[np.int64]
Key = Callable[[Rows], Ints]

MOST_HELD: Final = 1 << 14  # rows held in memory before they are written
PART_ROWS: Final = 1 << 16  # rows of a part, about: sorted in memory
SAMPLED_ROWS: Final = 64  # one of so many rows is sampled for the distribution of keys


class Spool:
    """Rows of 64-bit integers, on disk beyond a part."""

    def __init__(
        self, columns: Sequence[str], folder: str | None = None, different: Sequence[str] = ()
    ) -> None:
        """Start without rows.

        Args:
            columns: Their names.
            folder: Folder of the temporary file; None: the system's.
            different: Columns whose distinct values are kept.
        """
        self.dtype: Final = np.dtype([(name, "<i8") for name in columns])
        # distinct values of some columns
        self.different: dict[str, set[int]] = {name: set() for name in different}
        self._width = len(columns)
        self._folder = folder
        self._held = array("q")
        self._file: IO[bytes] | None = None
        self._written = 0
        self.add = self._held.extend  # called a million times: no wrapper
        """Add a row, its values in the order of the columns; ``settle`` has to be called regularly."""

    def __len__(self) -> int:
        return self._written + len(self._held) // self._width

    def values(self, column: str) -> set[int]:
        """Return the distinct values of a column, without -1."""
        self._write()
        return self.different[column] - {-1}

    def settle(self) -> None:
        """Write the new rows to disk if they are many."""
        if len(self._held) >= MOST_HELD * self._width:
            self._write()

    def extend(self, rows: Rows) -> None:
        self._held.frombytes(np.ascontiguousarray(rows).tobytes())
        self.settle()

    def _write(self) -> None:
        if not self._held:
            return
        rows = np.frombuffer(self._held.tobytes(), self.dtype)
        del self._held[:]
        for name, known in self.different.items():
            known.update(np.unique(rows[name]).tolist())
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - closed with the spool
        self._file.seek(0, 2)
        self._file.write(rows.tobytes())
        self._written += len(rows)

    def chunks(self) -> Iterator[Rows]:
        self._write()
        for first in range(0, self._written, MOST_HELD):
            yield self._read(self._file, first, min(MOST_HELD, self._written - first))

    def _read(self, file: IO[bytes] | None, first: int, count: int) -> Rows:
        assert file is not None
        file.seek(first * self.dtype.itemsize)
        return np.frombuffer(file.read(count * self.dtype.itemsize), self.dtype)

    def keep(self, column: str, values: set[int]) -> None:
        """Keep only rows with one of these values."""
        chosen = np.array(sorted(values), np.int64)
        rest = Spool(self.dtype.names or (), self._folder, list(self.different))
        for chunk in self.chunks():
            rest.extend(chunk[np.isin(chunk[column], chosen)])
        self.close()
        rest._write()
        self._file, self._written, self.different = rest._file, rest._written, rest.different

    def splitters(self, key: Key) -> Ints:
        """Return keys that divide the rows into parts that fit into memory."""
        if len(self) <= PART_ROWS:
            return np.zeros(0, np.int64)
        sampled = np.sort(np.concatenate([key(chunk)[::SAMPLED_ROWS].copy() for chunk in self.chunks()]))
        return np.unique(sampled[:: max(PART_ROWS // SAMPLED_ROWS, 1)][1:])

    def parts(self, key: Key, splitters: Ints, then: str = "") -> Iterator[Rows]:
        """Yield the rows sorted by key, in one part more than there are splitters.

        Args:
            key: Key of each row.
            splitters: As of ``splitters``, of this or another table.
            then: Among equal keys, larger values of this column come first.
        """
        for part in self._divided(key, splitters):
            keys = key(part)
            order = np.lexsort((-part[then], keys)) if then else np.argsort(keys, kind="stable")
            yield part[order]

    def sorted(self, key: Key) -> Iterator[Rows]:
        """Yield all rows by key, in parts; see ``parts``."""
        return self.parts(key, self.splitters(key))

    def _divided(self, key: Key, splitters: Ints) -> Iterator[Rows]:
        empty = np.zeros(0, self.dtype)
        if not len(splitters):
            yield np.concatenate([empty, *self.chunks()])
            return
        places: list[list[tuple[int, int]]] = [[] for _ in range(len(splitters) + 1)]
        with tempfile.TemporaryFile(dir=self._folder) as file:
            written = 0
            for chunk in self.chunks():
                which = np.searchsorted(splitters, key(chunk), side="right")
                order = np.argsort(which, kind="stable")
                file.write(chunk[order].tobytes())
                ends = np.searchsorted(which[order], np.arange(len(places) + 1))
                for part in np.unique(which).tolist():
                    places[part].append((written + int(ends[part]), int(ends[part + 1] - ends[part])))
                written += len(chunk)
            for extents in places:
                yield np.concatenate([empty, *(self._read(file, *one) for one in extents)])

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            self._written = 0


class Cursor:
    """Reads sorted parts from one bound to the next."""

    def __init__(self, parts: Iterator[Rows], column: str) -> None:
        self._parts, self._column = parts, column
        self._part: Rows | None = None

    def until(self, bound: int) -> Iterator[Rows]:
        """Yield the unread rows up to and including a bound."""
        while True:
            if self._part is None or not len(self._part):
                self._part = next(self._parts, None)
                if self._part is None:
                    return
                continue
            place = int(np.searchsorted(self._part[self._column], bound, side="right"))
            rows, self._part = self._part[:place], self._part[place:]
            if len(rows):
                yield rows
            if len(self._part):
                return


def key_of(name: str) -> Key:
    """Return the key that is a column."""

    def key(rows: Any) -> Ints:
        values: Ints = rows[name]
        return values

    return key

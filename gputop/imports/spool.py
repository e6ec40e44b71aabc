"""Tables of numbers that may be larger than memory: added to row by row, given back in order part by part."""

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

MOST_HELD: Final = 1 << 14  # rows that are taken in before they are written
PART_ROWS: Final = 1 << 16  # rows of a part, about: what is sorted at a time
SAMPLED_ROWS: Final = 64  # of so many rows one says how keys are distributed


class Spool:
    """Rows of 64-bit integers; what is more than a part is on disk.

    Attributes:
        different: Of some columns the values that occur.
    """

    def __init__(
        self, columns: Sequence[str], folder: str | None = None, different: Sequence[str] = ()
    ) -> None:
        """Start without rows.

        Args:
            columns: Their names.
            folder: Of the temporary file; None: where the system has those.
            different: Columns of which the values that occur are kept.
        """
        self.dtype: Final = np.dtype([(name, "<i8") for name in columns])
        self.different: dict[str, set[int]] = {name: set() for name in different}
        self._width = len(columns)
        self._folder = folder
        self._held = array("q")
        self._file: IO[bytes] | None = None
        self._written = 0
        self.add = self._held.extend  # called a million times: nothing is between
        """Adds a row, its values in the order of the columns; ``settle`` has to be called now and then."""

    def __len__(self) -> int:
        return self._written + len(self._held) // self._width

    def values(self, column: str) -> set[int]:
        """The values of a column that are kept, without -1."""
        self._write()
        return self.different[column] - {-1}

    def settle(self) -> None:
        """Write what was added where it is much."""
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
        """Only rows with one of these values stay."""
        chosen = np.array(sorted(values), np.int64)
        rest = Spool(self.dtype.names or (), self._folder, list(self.different))
        for chunk in self.chunks():
            rest.extend(chunk[np.isin(chunk[column], chosen)])
        self.close()
        self._file, self._written, self.different = rest.finished()

    def finished(self) -> tuple[IO[bytes] | None, int, dict[str, set[int]]]:
        """Its file, rows and values; nothing can be added any more."""
        self._write()
        return self._file, self._written, self.different

    def splitters(self, key: Key) -> Ints:
        """Keys that divide the rows into parts which fit into memory."""
        if len(self) <= PART_ROWS:
            return np.zeros(0, np.int64)
        sampled = np.sort(np.concatenate([key(chunk)[::SAMPLED_ROWS].copy() for chunk in self.chunks()]))
        return np.unique(sampled[:: max(PART_ROWS // SAMPLED_ROWS, 1)][1:])

    def parts(self, key: Key, splitters: Ints, then: str = "") -> Iterator[Rows]:
        """Sorted by key: one part more than there are splitters, each of rows from one splitter to the next.

        Args:
            key: Of each row.
            splitters: As of ``splitters``, of this or of another table.
            then: Of equal keys the one with the larger value of this column comes first.
        """
        for part in self._divided(key, splitters):
            keys = key(part)
            order = np.lexsort((-part[then], keys)) if then else np.argsort(keys, kind="stable")
            yield part[order]

    def sorted(self, key: Key) -> Iterator[Rows]:
        """All rows by key, in parts; see ``parts``."""
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
    """Goes through sorted parts from one bound to the next."""

    def __init__(self, parts: Iterator[Rows], column: str) -> None:
        self._parts, self._column = parts, column
        self._part: Rows | None = None

    def until(self, bound: int) -> Iterator[Rows]:
        """The rows up to and including a bound, of those not yet given."""
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


def key_of(*names: str) -> Key:
    (name,) = names

    def key(rows: Any) -> Ints:
        values: Ints = rows[name]
        return values

    return key

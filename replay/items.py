"""From chunks with known places to items, for files and for the live history."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from probes.arrays import distinct
from probes.source import (
    APIS,
    CLIENT,
    FILES,
    FRAMES,
    GPUS,
    HOST,
    MARK,
    NAMES,
    NOTE,
    PROBLEM,
    PROCESS,
    RESIDENT,
    SHAPES,
    Item,
    Sample,
)
from replay.coding import file_format as fmt
from replay.coding.decoding import decode_records
from replay.coding.file_format import RECORDS, SNAPSHOT, TOTALS
from replay.read_limits import Allowance
from replay.scan import ScannedFile

# Facts hold until they are replaced, so a seek needs all of them from the start.
FACTS: Final = frozenset({PROCESS, CLIENT, NAMES, FILES, FRAMES, SHAPES, APIS, PROBLEM, NOTE})
HISTORY: Final = frozenset({GPUS, MARK, HOST, RESIDENT})  # of the last minute
_MOST_PROBLEMS: Final = 50

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """The chunks in order, in columns."""

    kinds: Sequence[str]  # names of kinds; ``kind`` is the place in it
    kind: Ints
    last: Ints  # latest time of each chunk, nanoseconds
    offset: Sequence[int] | Ints  # where each chunk lies
    mark_rows: Ints  # the rows that are marks

    @property
    def marks(self) -> Ints:
        marks: Ints = self.last[self.mark_rows]
        return marks


class ItemReader:
    """Yields items of a table of chunks in the order in which they were written."""

    header: dict[str, Any]  # facts that hold for all of it
    marks: Ints  # times of the marks in order, nanoseconds

    def __init__(self, file: ScannedFile) -> None:
        self.problems: list[str] = []  # what is damaged or missing, in sentences; grows while items are read
        self._file = file
        self._closed = False
        self._damaged: set[int] = set()

    def _use(self, table: ChunkTable) -> None:
        """Replace the table by a longer one that begins alike."""
        self._table = table
        self.marks = table.marks

    @property
    def size_bytes(self) -> int:
        """Of the file, when it was opened."""
        return self._file.size

    @property
    def mark_places(self) -> list[int]:
        """Where in the file each mark lies."""
        return [int(self._table.offset[row]) for row in self._table.mark_rows.tolist()]

    def bytes_between(self, mark: int, later: int) -> int:
        """How much of the file lies between two marks; -1 is its start."""
        rows, offset = self._table.mark_rows, self._table.offset
        return int(offset[int(rows[later])]) - (int(offset[int(rows[mark])]) if mark >= 0 else 0)

    @property
    def first(self) -> int:
        """The oldest mark that can be shown."""
        return 0

    def refresh(self) -> bool:
        """Read chunks written since; True where more may follow."""
        return False

    def items(self) -> Iterator[Item]:
        """Everything that is intact, in order."""
        return chain(self._before(), self.rows_of(range(len(self._table.kind))))

    def items_until(self, mark_index: int, since_ns: int, samples_since_ns: int) -> Iterator[Item]:
        """The items that the frame of one mark needs.

        Args:
            mark_index: into ``marks``; its sample is the last item.
            since_ns: items that end before this time are left out, unless they are facts.
            samples_since_ns: the same of samples of which graphs are made.

        Raises:
            IndexError: there is no such mark.
        """
        table = self._table
        end = self._mark_row(mark_index) + 1
        facts = np.array([kind in FACTS for kind in table.kinds], bool)
        history = np.array([kind in HISTORY for kind in table.kinds], bool)
        kind, last = table.kind[:end], table.last[:end]
        known, since = self._known(end)
        wanted = facts[kind]
        wanted[:since] = False
        wanted |= ~facts[kind] & (last >= np.where(history[kind], samples_since_ns, since_ns))
        wanted[end - 1] = True
        return chain(self._before(), known, self.rows_of(np.flatnonzero(wanted).tolist()))

    def items_between(self, after_mark: int, until_mark: int) -> Iterator[Item]:
        """The items after one mark up to and including another.

        Args:
            after_mark: into ``marks``; -1 for the start.
            until_mark: into ``marks``; ``len(marks)`` for the end.

        Raises:
            IndexError: there is no such mark.
        """
        start = 0 if after_mark == -1 else self._mark_row(after_mark) + 1
        whole = until_mark == len(self.marks)
        end = len(self._table.kind) if whole else self._mark_row(until_mark) + 1
        return chain(self._before() if start == 0 else (), self.rows_of(range(start, end)))

    def samples(self, kind: str) -> list[Sample]:
        """All samples of a kind; not meant for kinds that come with every mark."""
        return self._samples([kind])

    def facts(self) -> list[Sample]:
        """All samples that are facts, in order."""
        return [
            sample for sample in chain(self._before(), self._samples(FACTS)) if isinstance(sample, Sample)
        ]

    def newest(self, kind: str) -> Sample | None:
        """The last sample of a kind, None where there is none or it is damaged."""
        rows = np.flatnonzero(np.isin(self._table.kind, _numbers(self._table.kinds, kind)))
        found = [item for item in self.rows_of(rows[-1:].tolist()) if isinstance(item, Sample)]
        return found[0] if found else None

    def ticks_with(self, kind: str) -> list[tuple[int, int]]:
        """The time between marks in which there is a sample of a kind: disjoint intervals, in order."""
        table = self._table
        rows = np.flatnonzero(np.isin(table.kind, _numbers(table.kinds, kind)))
        ticks = distinct(np.searchsorted(table.mark_rows, rows))
        ticks = ticks[ticks < len(self.marks)]
        if not len(ticks):
            return []
        first = ticks[np.diff(ticks, prepend=-2) > 1]
        last = ticks[np.diff(ticks, append=len(self.marks) + 1) > 1]
        begin = np.append(int(self.header.get("start_ns", 0)), self.marks)[first]
        return list(zip(begin.tolist(), self.marks[last].tolist(), strict=True))

    def totals(self) -> list[dict[str, Any]] | None:
        """The recorder's totals; None where it did not end in order, or the file is damaged."""
        table = self._table
        last = len(table.kind) - 1
        if self.problems or last < 0 or table.kinds[table.kind[last]] != TOTALS:
            return None
        found = self.item_at(last, Allowance(self._file.size))
        return [found.data] if isinstance(found, Sample) else None

    def _samples(self, kinds: Collection[str]) -> list[Sample]:
        rows = np.flatnonzero(np.isin(self._table.kind, _numbers(self._table.kinds, *kinds))).tolist()
        return [item for item in self.rows_of(rows) if isinstance(item, Sample)]

    def _known(self, end: int) -> tuple[list[Sample], int]:
        """The facts of the newest snapshot before a row, and the row from which on facts are to be read."""
        table = self._table
        rows = np.flatnonzero(np.isin(table.kind[:end], _numbers(table.kinds, SNAPSHOT)))
        if not len(rows):
            return [], 0
        # the parts of one lie side by side
        first = rows[np.flatnonzero(np.diff(rows, prepend=-2) != 1)[-1]]
        allowance = Allowance(self._file.size)
        parts = [self.item_at(row, allowance) for row in range(int(first), int(rows[-1]) + 1)]
        try:
            return samples_of(parts), int(rows[-1]) + 1
        except ValueError:  # it is reported already; all facts are in the file as well
            return [], 0

    def mark(self, index: int) -> Sample | None:
        """The sample of one mark; None where it is damaged.

        Raises:
            IndexError: there is no such mark.
        """
        item = next(self.rows_of([self._mark_row(index)]), None)
        return item if isinstance(item, Sample) else None

    def _before(self) -> Iterable[Item]:
        """Facts from before the first chunk."""
        return ()

    def _gone(self, row: int) -> bool:
        """True if a chunk was dropped on purpose."""
        return False

    def _mark_row(self, mark_index: int) -> int:
        rows = self._table.mark_rows
        if not 0 <= mark_index < len(rows):
            raise IndexError(f"no mark {mark_index}: the session has {len(rows)}")
        return int(rows[mark_index])

    def rows_of(self, rows: Iterable[int]) -> Iterator[Item]:
        allowance = Allowance(self._file.size)
        hidden = _numbers(self._table.kinds, SNAPSHOT, TOTALS)
        for row in rows:
            if self._closed:
                return
            if self._table.kind[row] in hidden:
                continue
            item = self.item_at(row, allowance)
            if item is not None:
                yield item

    def item_at(self, row: int, allowance: Allowance) -> Item | None:
        offset = int(self._table.offset[row])
        kind = self._table.kinds[self._table.kind[row]]
        try:
            chunk = self._file.chunk_at(offset)
            body = self._file.body(chunk) if chunk is not None else None
            if chunk is None or body is None or chunk.kind != kind:
                raise ValueError("the checksum does not match")
            return unpack_item(kind, chunk.t_first, chunk.count, body, allowance)
        except (ValueError, OSError) as error:
            if row not in self._damaged and not self._gone(row):
                self._damaged.add(row)
                self._problem(f"a chunk ({kind[:40]}) at offset {offset} is damaged and skipped: {error}")
            return None

    def _problem(self, text: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(text)
        elif len(self.problems) == _MOST_PROBLEMS:
            self.problems.append("there are more problems of this kind")


def unpack_item(kind: str, time_ns: int, count: int, body: bytes, allowance: Allowance | None = None) -> Item:
    """The item in the body of a chunk.

    Raises:
        ValueError: it is damaged, or more than is allowed.
    """
    if kind == RECORDS:
        if allowance is not None:
            allowance.consume_records(count)
        return decode_records(body, count)
    packed = fmt.inflate(body, fmt.MAX_SAMPLE_BYTES)
    if allowance is not None:
        allowance.consume_bytes(len(packed))
    data = fmt.unpack(packed)
    if not isinstance(data, dict):
        raise ValueError("a sample that is no map")
    return Sample(kind, time_ns, data)


def item_in(chunk: bytes | memoryview) -> tuple[Item, int]:
    """The item of the chunk at the start of some bytes, and the chunk's length.

    Raises:
        ValueError: There is no whole chunk, or it is damaged.
    """
    found = fmt.parse_prefix(bytes(chunk[: fmt.MAX_PREFIX_BYTES]), 0)
    if found is None or found.end > len(chunk):
        raise ValueError("no chunk")
    body = bytes(chunk[found.prefix_bytes : found.end])
    return unpack_item(found.kind, found.t_first, found.count, body), found.end


def mark_rows_of(kinds: Sequence[str], kind: Ints) -> Ints:
    """The rows of a table that are marks."""
    rows: Ints = np.flatnonzero(np.isin(kind, _numbers(kinds, MARK)))
    return rows


def _numbers(kinds: Sequence[str], *wanted: str) -> list[int]:
    return [number for number, name in enumerate(kinds) if name in wanted]


def samples_of(parts: Sequence[Item | None]) -> list[Sample]:
    """The samples of a snapshot.

    Raises:
        ValueError: One is missing or damaged, or they are no snapshot.
    """
    samples: list[Sample] = []
    for number, part in enumerate(parts):
        data = part.data if isinstance(part, Sample) else {}
        rows = data.get("samples")
        if (data.get("part"), data.get("of")) != (number, len(parts)) or not isinstance(rows, list):
            raise ValueError("a part of a snapshot is missing")
        for row in rows:
            match row:
                case [str(kind), int(time_ns), dict(fields)] if kind in FACTS:
                    samples.append(Sample(kind, time_ns, fields))
                case _:
                    raise ValueError("no fact")
    return samples

"""From chunks whose places are known to items: what the readers of files and of the live history share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from probes.source import APIS, CLIENT, FILES, FRAMES, MARK, NAMES, NOTE, PROBLEM, PROCESS, Item, Sample
from replay import format as fmt
from replay.allowance import Allowance
from replay.decoding import decode_records
from replay.format import RECORDS
from replay.scan import File

# Facts hold until they are replaced, so a seek needs all of them from the start.
FACTS: Final = frozenset({PROCESS, CLIENT, NAMES, FILES, FRAMES, APIS, PROBLEM, NOTE})
_MOST_PROBLEMS: Final = 50

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Table:
    """The chunks in order, in columns.

    Attributes:
        kinds: Names of kinds; ``kind`` is the place in it.
        last: Latest time of each chunk, nanoseconds.
        offset: Where each chunk lies.
        mark_rows: The rows that are marks.
    """

    kinds: Sequence[str]
    kind: Ints
    last: Ints
    offset: Sequence[int] | Ints
    mark_rows: Ints

    @property
    def marks(self) -> Ints:
        """Times of the marks."""
        marks: Ints = self.last[self.mark_rows]
        return marks


class ItemReader:
    """Yields items of a table of chunks in the order in which they were written.

    Attributes:
        header: facts that hold for all of it.
        marks: times of the marks in order, nanoseconds.
        problems: what is damaged or missing, in sentences; grows while items are read.
    """

    header: dict[str, Any]
    marks: Ints

    def __init__(self, file: File) -> None:
        """Start without a table.

        Args:
            file: what the chunks are read from.
        """
        self.problems: list[str] = []
        self._file = file
        self._closed = False
        self._damaged: set[int] = set()

    def _use(self, table: Table) -> None:
        """Take a table, of which a former one was the beginning."""
        self._table = table
        self.marks = table.marks

    @property
    def first(self) -> int:
        """The oldest mark that can be shown."""
        return 0

    def refresh(self) -> bool:
        """Take in what was written since; True where more may follow."""
        return False

    def items(self) -> Iterator[Item]:
        """Everything that is intact, in order."""
        return chain(self._before(), self._rows(range(len(self._table.kind))))

    def items_until(self, mark_index: int, records_since_ns: int, samples_since_ns: int) -> Iterator[Item]:
        """What is needed to show the frame of one mark.

        Args:
            mark_index: into ``marks``; its sample is the last item.
            records_since_ns: chunks of records that end before this time are left out.
            samples_since_ns: samples before this time are left out, unless they are facts.

        Raises:
            IndexError: there is no such mark.
        """
        table = self._table
        end = self._mark_row(mark_index) + 1
        facts = np.array([kind in FACTS for kind in table.kinds], bool)
        records = np.array([kind == RECORDS for kind in table.kinds], bool)
        kind, last = table.kind[:end], table.last[:end]
        wanted = facts[kind] | (last >= np.where(records[kind], records_since_ns, samples_since_ns))
        wanted[end - 1] = True
        return chain(self._before(), self._rows(np.flatnonzero(wanted).tolist()))

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
        return chain(self._before() if start == 0 else (), self._rows(range(start, end)))

    def samples(self, kind: str) -> list[Sample]:
        """All samples of a kind; not meant for kinds that come with every mark."""
        numbers = [number for number, name in enumerate(self._table.kinds) if name == kind]
        rows = np.flatnonzero(np.isin(self._table.kind, numbers)).tolist()
        return [item for item in self._rows(rows) if isinstance(item, Sample)]

    def mark(self, index: int) -> Sample | None:
        """The sample of one mark; None where it is damaged.

        Raises:
            IndexError: there is no such mark.
        """
        item = next(self._rows([self._mark_row(index)]), None)
        return item if isinstance(item, Sample) else None

    def _before(self) -> Iterable[Item]:
        """Facts from before the first chunk."""
        return ()

    def _gone(self, row: int) -> bool:
        """Whether a chunk was given up on purpose."""
        return False

    def _mark_row(self, mark_index: int) -> int:
        rows = self._table.mark_rows
        if not 0 <= mark_index < len(rows):
            raise IndexError(f"no mark {mark_index}: the session has {len(rows)}")
        return int(rows[mark_index])

    def _rows(self, rows: Iterable[int]) -> Iterator[Item]:
        allowance = Allowance(self._file.size)
        for row in rows:
            if self._closed:
                return
            item = self._item(row, allowance)
            if item is not None:
                yield item

    def _item(self, row: int, allowance: Allowance) -> Item | None:
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
    """What the body of a chunk says.

    Args:
        kind: of the chunk.
        time_ns: its earliest time.
        count: how many records it says it holds.
        body: its bytes, not to be trusted.
        allowance: what it is taken from; None where gputop itself wrote it.

    Raises:
        ValueError: it is damaged, or more than is allowed.
    """
    if kind == RECORDS:
        if allowance is not None:
            allowance.take_records(count)
        return decode_records(body, count)
    packed = fmt.inflate(body, fmt.MAX_SAMPLE_BYTES)
    if allowance is not None:
        allowance.take_bytes(len(packed))
    data = fmt.unpack(packed)
    if not isinstance(data, dict):
        raise ValueError("a sample that is no map")
    return Sample(kind, time_ns, data)


def mark_rows_of(kinds: Sequence[str], kind: Ints) -> Ints:
    """The rows of a table that are marks."""
    numbers = [number for number, name in enumerate(kinds) if name == MARK]
    rows: Ints = np.flatnonzero(np.isin(kind, numbers))
    return rows

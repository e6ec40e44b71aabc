"""Written by a recorder now and then, so that a long file is opened and sought in as fast as a short one.

A piece of the index names the chunks since the piece before it: a file without an end is read from its newest
piece on. A snapshot is the state at a mark: a seek reads the newest one before it, and the facts since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from probes.source import PROCESS, Item, Sample
from replay.coding import file_format as fmt
from replay.coding.chunker import packed
from replay.items import FACTS, item_in
from replay.state_snapshot import FactBook

_PART_BYTES: Final = fmt.MAX_SAMPLE_BYTES // 2


@dataclass(frozen=True, slots=True)
class Spacing:
    """Limits of the distance between two of them."""

    # chunks, bytes: between two pieces of the index, whichever is reached first
    chunks: int = 4096
    bytes: int = 8 << 20
    facts: int = 512  # facts between two snapshots; more where the last one needed more room than these


USUAL: Final = Spacing()


class SnapshotSchedule:
    """Follows the written facts, and decides when the state is to be written anew."""

    def __init__(self, every: int) -> None:
        self._book: FactBook | None = FactBook()
        self._every = every
        self._count = self._bytes = 0
        self._last_bytes = 0  # of the last snapshot
        self._packed: dict[int, tuple[Mapping[str, Any], bytes]] = {}  # processes' facts as of the last one

    def consume(self, kind: str, chunk: bytes | memoryview, item: Item | None = None) -> None:
        """Consume a packed chunk, or ``item`` where that is at hand; kinds that are no facts are ignored."""
        if kind not in FACTS or self._book is None:
            return
        self._count += 1
        self._bytes += len(chunk)
        try:
            if not isinstance(item, Sample) or item.kind != kind:
                item, _size = item_in(chunk)
            if isinstance(item, Sample):
                self._book.consume(item)
        except (ValueError, TypeError, KeyError, AttributeError):
            self._book = None  # of facts in another shape no snapshot is made: readers read them all

    def snapshot(self, time_ns: int) -> list[bytes]:
        """The bodies of the chunks of a snapshot, packed; none while none is due."""
        if self._book is None or self._count < self._every or self._bytes < self._last_bytes:
            return []
        parts: list[list[bytes]] = [[]]
        room = _PART_BYTES
        for row in self._rows(self._book.samples(time_ns)):
            if len(row) > room and parts[-1]:
                parts.append([])
                room = _PART_BYTES
            parts[-1].append(row)
            room -= len(row)
        bodies = [_body(number, len(parts), part) for number, part in enumerate(parts)]
        self._count = self._bytes = 0
        self._last_bytes = sum(map(len, bodies)) // 4  # they shrink when they are compressed
        return bodies if max(map(len, bodies)) <= fmt.MAX_SAMPLE_BYTES else []

    def _rows(self, samples: Iterable[Sample]) -> Iterator[bytes]:
        """The facts, packed; most are of processes that ended long ago and are as they were the last time."""
        before, self._packed = self._packed, {}
        for sample in samples:
            data, start = sample.data, b"\x93" + packed(sample.kind) + packed(sample.time_ns)
            if sample.kind != PROCESS:
                yield start + packed(data)
                continue
            known = before.get(data["pid"])
            if known is None or known[0] is not data:
                known = data, packed(data)
            self._packed[data["pid"]] = known
            yield start + known[1]


def _body(number: int, of: int, rows: list[bytes]) -> bytes:
    """``{"part": number, "of": of, "samples": rows}`` as msgpack, of rows that are packed already."""
    start = b"\x83" + packed("part") + packed(number) + packed("of") + packed(of) + packed("samples")
    return start + b"\xdd" + len(rows).to_bytes(4, "big") + b"".join(rows)

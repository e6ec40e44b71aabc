"""Items in, packed chunks out, for session files and for the live history."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from probes.schema import PAYLOAD_BYTES, RECORD, Records, empty
from probes.source import PROBLEM, Item, Sample
from replay.coding import file_format as fmt
from replay.coding.encoding import Encoder
from replay.coding.file_format import SessionError
from replay.private import Disguise
from replay.read_limits import Outlay

CHUNK_RECORDS: Final = 16384  # more would save 2 % of the bytes and fall out of the cache

_LEVEL: Final = 6  # of samples, which are small: no dearer than 1

# kind, earliest time, latest time, items in it, the whole chunk
Emit = Callable[[str, int, int, int, bytes], None]


class Chunker:
    """Gathers records into chunks; a sample ends a chunk, so that the order of everything is kept."""

    def __init__(self, emit: Emit, disguise: Disguise | None = None) -> None:
        self.events = 0  # records appended so far, those still gathered included
        self._buffer = empty(CHUNK_RECORDS)
        # content of the chunk that is being emitted; an array of records is reused afterwards
        self.emitted: Item = self._buffer
        self._emit = emit
        self._disguise = disguise
        self._encoder = Encoder()
        self._outlay = Outlay()
        self._filled = 0

    def write(self, item: Item) -> None:
        """Consume one item; an array may be reused by the caller afterwards.

        Raises:
            SessionError: it is no plain data.
        """
        if isinstance(item, Sample):
            self._sample(item)
        else:
            self._records(item)

    def flush(self) -> None:
        if not self._filled:
            return
        records = self.emitted = self._buffer[: self._filled]
        self._filled = 0
        times = records["t_end"]
        first, last = (min(int(t), fmt.MAX_TIME) for t in (times.min(), times.max()))
        count = len(records)
        body = self._encoder.encode(records)
        if not self._outlay.allows(len(body), records=count):
            body = self._encoder.encode(records, roomy=True)
        self._outlay.add(len(body), records=count)
        self._pack(fmt.RECORDS, first, last, count, body)

    def _records(self, records: Records) -> None:
        records = _plain(records)
        if self._disguise is not None:
            records = self._disguise.records(records)
        self.events += len(records)
        start = 0
        while start < len(records):
            count = min(len(records) - start, CHUNK_RECORDS - self._filled)
            self._buffer[self._filled : self._filled + count] = records[start : start + count]
            self._filled += count
            start += count
            if self._filled == CHUNK_RECORDS:
                self.flush()

    def _sample(self, sample: Sample) -> None:
        self.flush()
        if self._disguise is not None:
            sample = self._disguise.sample(sample)
        self.emitted = sample
        kind, when, body = sample_body(sample)
        packed_body = zlib.compress(body, _LEVEL)
        if not self._outlay.allows(len(packed_body), unpacked=len(body)):
            packed_body = zlib.compress(body, 0)
        self._outlay.add(len(packed_body), unpacked=len(body))
        self._pack(kind, when, when, 1, packed_body)

    def _pack(self, kind: str, first: int, last: int, count: int, body: bytes) -> None:
        self._emit(kind, first, last, count, fmt.pack_chunk(kind, first, last, count, body))


def sample_body(sample: Sample) -> tuple[str, int, bytes]:
    """(kind, time, data) of the chunk of a sample.

    Raises:
        SessionError: it is no plain data.
    """
    body = packed(sample.data)
    kind = sample.kind
    if len(body) > fmt.MAX_SAMPLE_BYTES or kind in fmt.RESERVED:
        text = f"a sample of kind {kind!r} ({len(body)} bytes) could not be stored in the session file"
        kind, body = PROBLEM, packed({"text": text})
    when = max(-fmt.MAX_TIME, min(sample.time_ns, fmt.MAX_TIME))
    return kind, when, body


def packed(value: Any) -> bytes:
    """Plain data as msgpack.

    Raises:
        SessionError: it is no plain data.
    """
    try:
        return fmt.pack(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise SessionError(f"only plain data can be stored in a session file: {error}") from error


def _plain(records: Records) -> Records:
    """The same records with dtype RECORD, whatever aliases or padding they came with."""
    if records.dtype == RECORD:
        return records
    if records.dtype.itemsize == PAYLOAD_BYTES:
        return records.view(RECORD)
    plain = empty(len(records))
    for name in RECORD.names or ():
        plain[name] = np.asarray(records[name])
    return plain

"""The newest minutes of a live session on disk: chunks in unlinked temporary files, the oldest out first.

The files have no name and mode 0600: no other user can open them, and nothing is left behind however gputop
ends. They are several, so that the oldest part can be freed on the disk while the newest is written.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any, Final, Protocol

from probes.samples import lost_until
from probes.source import MARK, Item, Sample
from replay.coding.chunker import Chunker
from replay.coding.file_format import SessionError
from replay.index import Entries
from replay.state_snapshot import FactBook

LIMIT_BYTES: Final = 512 << 20
SPAN_NS: Final = 600 * 1_000_000_000
PARTS: Final = 8  # files that the history is spread over: an eighth goes at a time
FLUSH_NS: Final = 500_000_000


class Sink(Protocol):
    """Consumes packed chunks: recordings beside the history."""

    def append(
        self, kind: str, first_ns: int, last_ns: int, count: int, chunk: bytes, item: Item | None = None
    ) -> None:
        """See ``SessionWriter.append``."""


@dataclass(slots=True)
class HistoryFile:
    """One file of the history."""

    file: IO[bytes]
    base: int  # offset of its first byte in the whole history; chunks are found by such offsets
    entries: Entries  # its chunks
    facts: FactBook  # its recorded facts
    since_ns: int  # the mark before its first chunk; the session's start for the very first
    lost: Mapping[str, int]  # the counters of lost events at that mark
    size: int = 0
    dropped: bool = False

    def drop(self) -> None:
        """Free its bytes; readers that hold it find nothing."""
        self.dropped = True
        os.ftruncate(self.file.fileno(), 0)


class History:
    """Written by one thread, read by others (``history_reader``)."""

    def __init__(
        self,
        header: Mapping[str, Any],
        *,
        limit_bytes: int = LIMIT_BYTES,
        span_ns: int = SPAN_NS,
        directory: str | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Open the first file; where that fails there is no history, and ``problem`` is the reason.

        Args:
            header: plain facts of the session.
            limit_bytes: its limit on the disk.
            span_ns: it holds this much time, or a little more.
            directory: where the files lie; by default ``temporary_directory``.
            clock: nanoseconds that only grow, for the age of a chunk.
        """
        self.header = dict(header)  # of the session
        self.problem = ""  # why there is no history, or a shorter one: a sentence, or ""
        self.parts: list[HistoryFile] = []  # the files, oldest first; under ``lock``
        self.lock = threading.RLock()
        self._limit, self._span_ns, self._clock = limit_bytes, span_ns, clock
        self._directory = directory or temporary_directory()
        self._chunker = Chunker(self._emit)
        self._before = FactBook()  # recorded before the oldest part
        self._since_ns = int(header.get("start_ns", 0))
        self._lost: Mapping[str, int] = {}
        self._kinds = Entries()
        self._sink: Sink | None = None
        self._sink_failure = ""
        self._flushed_ns = clock()
        self._begin_part()

    # -- writing ------------------------------------------------------------------------------

    def write(self, item: Item) -> None:
        """Append one item; an array may be reused by the caller afterwards. Failures are reported later.

        Raises:
            SessionError: it is not plain data.
        """
        if isinstance(item, Sample):
            with self.lock:
                (self.parts[-1].facts if self.parts else self._before).consume(item)
        self._chunker.write(item)
        if self._clock() - self._flushed_ns >= FLUSH_NS:
            self._flushed_ns = self._clock()
            self._chunker.flush()
        if isinstance(item, Sample) and item.kind == MARK:
            with self.lock:
                self._since_ns, self._lost = item.time_ns, lost_until(item)
                self._turn_over(item.time_ns)

    def flush(self) -> None:
        self._chunker.flush()

    def _emit(self, kind: str, first: int, last: int, count: int, chunk: bytes) -> None:
        with self.lock:
            if self.parts:
                self._store(kind, first, last, chunk)
            if self._sink is not None:
                try:
                    self._sink.append(kind, first, last, count, chunk, self._chunker.emitted)
                except SessionError as error:
                    self._sink, self._sink_failure = None, str(error)

    def _store(self, kind: str, first: int, last: int, chunk: bytes) -> None:
        part = self.parts[-1]
        while not self._write(part, chunk):
            # the disk is full: the newest is worth more than the oldest
            if len(self.parts) == 1:
                self._stop()
                return
            self._drop_oldest()
        part.entries.add(kind, first, last, part.base + part.size)
        part.size += len(chunk)

    def _write(self, part: HistoryFile, chunk: bytes) -> bool:
        rest, place = memoryview(chunk), part.size
        try:
            while rest:
                written = os.pwrite(part.file.fileno(), rest, place)
                rest, place = rest[written:], place + written
        except OSError as error:
            self._too_little(error)
            return False
        return True

    def _too_little(self, error: OSError) -> None:
        what = "is shorter than it could be" if len(self.parts) > 1 else "cannot be kept: no stepping back"
        self.problem = (
            f"the live history {what}: {self._directory}: {error.strerror}; "
            "make room there, or name another directory with TMPDIR"
        )

    def _stop(self) -> None:
        while self.parts:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        part = self.parts.pop(0)
        self._before.absorb(part.facts)
        part.drop()

    def _turn_over(self, now_ns: int) -> None:
        """At a mark: a new file when the newest is large or old enough, and no more than there may be."""
        if not self.parts:
            return
        limit = min(self._limit, self._room())
        newest = self.parts[-1]
        if newest.size >= limit // PARTS or now_ns - newest.since_ns >= self._span_ns // PARTS:
            self._begin_part()
        while len(self.parts) > 1 and (
            self.size_bytes > limit - limit // PARTS or self.parts[1].since_ns <= now_ns - self._span_ns
        ):
            self._drop_oldest()

    def _room(self) -> int:
        """The history's limit by the disk: half of its free space."""
        try:
            disk = os.fstatvfs(self.parts[-1].file.fileno())
        except OSError:
            return self._limit
        return max((self.size_bytes + disk.f_bavail * disk.f_frsize) // 2, PARTS)

    def _begin_part(self) -> None:
        base = self.parts[-1].base + self.parts[-1].size if self.parts else 0
        try:
            file = tempfile.TemporaryFile(prefix="gputop-history-", dir=self._directory, buffering=0)  # noqa: SIM115
        except OSError as error:
            self._too_little(error)
            return  # an older file goes on, if there is one
        entries = Entries(names_of=self._kinds)
        self.parts.append(HistoryFile(file, base, entries, FactBook(), self._since_ns, dict(self._lost)))

    # -- what it holds ------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        return sum(part.size for part in self.parts)

    @property
    def start_ns(self) -> int:
        """From when on everything is there."""
        with self.lock:
            return self.parts[0].since_ns if self.parts else self._since_ns

    @property
    def end_ns(self) -> int:
        return self._since_ns

    @property
    def span_ns(self) -> int:
        return max(self.end_ns - self.start_ns, 0)

    def facts(self, *, now: bool) -> FactBook:
        """The state at its start, or now."""
        with self.lock:
            book = FactBook()
            book.absorb(self._before)
            for part in self.parts if now else ():
                book.absorb(part.facts)
            return book

    def lost_now(self) -> dict[str, int]:
        """The counters of lost events at the newest mark; under ``lock``."""
        return dict(self._lost)

    # -- a recording beside it ----------------------------------------------------------------

    def tee(self, sink: Sink | None) -> None:
        """Pass the same chunks to ``sink`` from now on; None ends that."""
        with self.lock:
            self._sink, self._sink_failure = sink, ""

    @property
    def tee_failure(self) -> str:
        """Why the recording beside it ended by itself, or ""."""
        return self._sink_failure

    def close(self) -> None:
        with self.lock:
            self._stop()


def temporary_directory() -> str:
    """``TMPDIR``; else /var/tmp, since /tmp often lies in memory; else any."""
    for path in (os.environ.get("TMPDIR"), "/var/tmp"):
        if path and os.access(path, os.W_OK | os.X_OK):
            return path
    return tempfile.gettempdir()


def cut_header(header: Mapping[str, Any], since_ns: int, lost: Mapping[str, int]) -> dict[str, Any]:
    """The header of a recording that begins in the middle of a session."""
    return {**header, "start_ns": since_ns, "cut": {"lost": dict(lost)}}

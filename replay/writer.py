"""Writing a session file while the session runs."""

from __future__ import annotations

import errno
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from probes.source import MARK, Item
from replay.coding import file_format as fmt
from replay.coding.chunker import Chunker, packed
from replay.coding.file_format import SessionError
from replay.items import item_in
from replay.ownership import open_for_writing
from replay.past.growing_index import GrowingIndex
from replay.private import Disguise, private_header
from replay.seek_points import USUAL, SnapshotSchedule, Spacing

FLUSH_NS: Final = 500_000_000
SYNC_NS: Final = 5_000_000_000


class WriteError(SessionError):
    """The file accepts no more."""

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class Sums(Protocol):
    """Adds up the recorded items."""

    def consume(self, item: Item) -> None:
        """Consume one item."""

    def payload(self) -> dict[str, Any] | None:
        """The sums, as plain data; None when there are none."""


class SessionWriter:
    """Appends items to a session file.

    Records are gathered into chunks; a chunk ends when it is full, when a sample follows (so that the order
    of everything is kept), and when it is half a second old. What ``flush`` or a mark has passed is in the
    kernel's hands and survives the death of this process; every five seconds it is sent to the disk.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        header: Mapping[str, Any],
        *,
        owner: tuple[int, int] | None = None,
        private: bool = False,
        disguise: Disguise | None = None,
        overwrite: bool = True,
        clock: Callable[[], int] = time.monotonic_ns,
        spacing: Spacing = USUAL,
        sums: Sums | None = None,
    ) -> None:
        """Create the file and write its header.

        Args:
            path: the final name of the file.
            header: plain facts of the session; ``format``, ``major`` and ``minor`` are added.
            owner: user and group id behind sudo.
            private: rename processes that are not watched, and leave out the recording user and machine.
            disguise: source of these names, where several files are to have the same; by default its own.
            overwrite: an old session file at ``path`` may be replaced.
            clock: nanoseconds that only grow, for the age of a chunk.
            spacing: distance of index pieces and snapshots, which make a long file as quick to open as a
                short one.
            sums: adds up each written item; its totals go to the end of the file.

        Raises:
            SessionError: the file cannot be written there, or the header is no plain data.
        """
        self.path = os.fspath(path)
        self._clock = clock
        self._chunker = Chunker(self._emitted, (disguise or Disguise()) if private else None)
        start = {"format": fmt.FORMAT_NAME, "major": fmt.MAJOR, "minor": fmt.MINOR}
        facts = private_header(header) if private else header
        data = packed({**start, **{key: value for key, value in facts.items() if key not in start}})
        if len(data) > fmt.MAX_HEADER_BYTES:
            raise SessionError(f"the session header is too large to be stored ({len(data)} bytes)")
        self._index = GrowingIndex(spacing)
        self._facts = SnapshotSchedule(spacing.facts)
        self._sums = sums
        self._size = 0
        self._failure: SessionError | None = None
        self._shown = False  # a frame is in the file
        self._closed = False
        self._output = open_for_writing(self.path, owner, overwrite)
        self._descriptor = self._output.descriptor
        self._disk = _DiskSync(self._descriptor)
        self._flushed_ns = self._synced_ns = clock()
        try:
            # The second copy has a checksum, and counts for readers.
            self._append(data + fmt.pack_chunk(fmt.HEADER, 0, 0, 1, zlib.compress(data, 1)))
            self._start = self._size
        except SessionError:
            self._closed = True
            self._output.remove()  # it holds nothing
            self._output.close()
            raise

    @property
    def size_bytes(self) -> int:
        return self._size

    @property
    def events(self) -> int:
        """Records appended so far, those still gathered in memory included."""
        return self._chunker.events

    def write(self, item: Item) -> None:
        """Consume one item; an array may be reused by the caller afterwards.

        Raises:
            SessionError: the file could not be written (disk full, size limit); it stays readable up to
                the last complete chunk, and every later call fails with the same sentence. Or it has been
                removed.
        """
        self._check()
        self._chunker.write(item)
        if self._sums is not None:
            self._sums.consume(item)
        if self._clock() - self._flushed_ns >= FLUSH_NS:
            self.flush()

    def append(
        self, kind: str, first_ns: int, last_ns: int, count: int, chunk: bytes, item: Item | None = None
    ) -> None:
        """Write a chunk that is packed already (see ``chunker.Emit``); ``events`` does not count it.

        Args:
            kind, first_ns, last_ns, count, chunk: As of ``chunker.Emit``.
            item: Its content; without it, it is unpacked where there are sums.

        Raises:
            SessionError: see ``write``.
        """
        self._check()
        self._add_up(chunk, item)
        self._append_chunk(kind, first_ns, last_ns, count, chunk, item)

    def append_block(self, rows: Iterable[tuple[str, int, int, int]], block: bytes) -> None:
        """Write many packed chunks at once.

        Args:
            rows: kind, earliest and latest time and place in ``block`` of each.
            block: the chunks, one after the other.

        Raises:
            SessionError: see ``write``.
        """
        self._check()
        base = self._size
        self._append(block)
        at_mark = False
        for kind, first_ns, last_ns, place in rows:
            self._index.add(kind, first_ns, last_ns, base + place)
            self._facts.consume(kind, memoryview(block)[place:])
            self._add_up(memoryview(block)[place:], None)
            at_mark = kind == MARK
            self._shown |= at_mark
        if at_mark:  # facts that follow in the block belong to later items
            self._set_waypoints(last_ns)

    def _add_up(self, chunk: bytes | memoryview, item: Item | None) -> None:
        if self._sums is not None:
            try:
                self._sums.consume(item if item is not None else item_in(chunk)[0])
            except ValueError:
                self._sums = None  # readers fall back to summing the records

    def flush(self) -> None:
        """Pass everything appended so far to the kernel.

        Raises:
            SessionError: see ``write``.
        """
        self._check()
        self._chunker.flush()
        if not os.fstat(self._descriptor).st_nlink:
            self._failure = SessionError(
                f"recording to {self.path} stopped: the file, or the folder it was in, has been removed, and "
                "what was recorded with it: record to another place"
            )
            raise self._failure
        now = self._flushed_ns = self._clock()
        if now - self._synced_ns >= SYNC_NS:
            self._synced_ns = now
            if error := self._disk.start():
                self._fail(error)

    def close(self) -> None:
        """Write what is left and the index; later calls do nothing.

        Raises:
            SessionError: the end could not be written; the file is readable without it.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._failure is None:
                self._chunker.flush()
                self._write_totals()
                self._write_footer()
        finally:
            # Closing waits for a sync under way: its descriptor must not be reused meanwhile.
            self._disk.finish()
            self._output.close()

    def discard(self) -> None:
        """Remove the file: nothing was to be recorded after all; later calls of ``close`` do nothing."""
        if not self._closed:
            self._closed = True
            self._disk.finish()
            self._output.remove()
            self._output.close()

    def _check(self) -> None:
        if self._closed:
            raise SessionError(f"the recording {self.path} is closed already")
        if self._failure is not None:
            raise self._failure

    def _emitted(self, kind: str, first: int, last: int, count: int, chunk: bytes) -> None:
        self._append_chunk(kind, first, last, count, chunk, self._chunker.emitted)

    def _append_chunk(
        self, kind: str, first: int, last: int, count: int, chunk: bytes, item: Item | None = None
    ) -> None:
        offset = self._size
        self._append(chunk)
        self._index.add(kind, first, last, offset)
        self._facts.consume(kind, chunk, item)
        if kind == MARK:
            self._shown = True
            self._set_waypoints(last)
            self.flush()

    def _set_waypoints(self, mark_ns: int) -> None:
        """At a mark: a snapshot and a piece of the index, where they are due."""
        for body in self._facts.snapshot(mark_ns):
            chunk = fmt.pack_chunk(fmt.SNAPSHOT, mark_ns, mark_ns, 1, zlib.compress(body, 1))
            self._index.add(fmt.SNAPSHOT, mark_ns, mark_ns, self._size)
            self._append(chunk)
        if (piece := self._index.piece(self._size, mark_ns)) is not None:
            self._append(piece)

    def _append(self, data: bytes) -> None:
        """Write all of ``data`` or nothing of it: a torn end is removed."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            self._fail(error)
        self._size += len(data)

    def _write_totals(self) -> None:
        payload = self._sums.payload() if self._sums is not None else None
        body = packed(payload) if payload is not None else b""
        if body and len(body) <= fmt.MAX_SAMPLE_BYTES:  # else readers fall back to summing the records
            at = self._index.newest_ns
            self._append_chunk(
                fmt.TOTALS, at, at, 1, fmt.pack_chunk(fmt.TOTALS, at, at, 1, zlib.compress(body, 1))
            )

    def _write_footer(self) -> None:
        entries = self._index.whole(self._descriptor, self._start)
        body = entries.pack() if entries is not None else b""
        # without it, readers read its pieces and scan; only weeks of recording exceed it
        if entries is not None and len(body) <= fmt.MAX_BODY_BYTES:
            chunk = fmt.pack_chunk(fmt.INDEX, *entries.span(), len(entries), body)
            self._append(chunk + fmt.pack_trailer(self._size))

    def _fail(self, error: OSError) -> None:
        safe = self._size
        try:
            os.ftruncate(self._descriptor, safe)
            os.lseek(self._descriptor, safe, os.SEEK_SET)
        except OSError:
            # The reader finds the torn end by its checksum.
            pass
        causes = {
            errno.ENOSPC: "the disk is full",
            errno.EDQUOT: "the disk quota is used up",
            errno.EFBIG: "the file has reached the size limit (ulimit -f)",
        }
        cause = causes.get(error.errno or 0, error.strerror or str(error))
        if self._shown:
            message = (
                f"recording to {self.path} stopped: {cause}; "
                f"the {safe / 1e6:.1f} MB written before are safe and can be replayed"
            )
        else:
            message = f"{self.path} cannot be written: {cause}; choose another place for the recording"
        self._failure = WriteError(message, cause)
        raise self._failure from error


class _DiskSync:
    """fdatasync in the background: it may last longer than a tick and must not delay the observer."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None

    def start(self) -> OSError | None:
        """Begin unless one is under way; returns the error of an earlier one."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="session-sync", daemon=True)
            self._thread.start()
        return self._error

    def finish(self) -> None:
        """Wait for the one under way."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            # Pipes and some file systems cannot sync; that loses nothing that was promised.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                self._error = error

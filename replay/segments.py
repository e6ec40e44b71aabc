"""A recording in segments: files of one folder that each stand alone, and that are read like one file."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from probes.samples import lost_until
from probes.source import MARK, Item, Sample
from replay.coding.file_format import DamagedError, SessionError
from replay.items import ChunkTable, ItemReader, mark_rows_of
from replay.ownership import make_folder, remove_session
from replay.past.history import cut_header
from replay.private import Disguise
from replay.reader import SessionReader
from replay.scan import ScannedFile
from replay.state_snapshot import FactBook
from replay.writer import SessionWriter, Sums

SUFFIX: Final = ".gputop"
MOST: Final = 512  # segments of one recording that are read together: each is a file that is open


@dataclass(frozen=True, slots=True)
class SegmentLimits:
    """When a segment ends, at the next mark: at so many bytes, or after so many ns; None: never for that."""

    size: int | None = None
    span_ns: int | None = None
    keep: int | None = None  # only so many segments stay, at least two: the oldest is removed; None: all

    def reached(self, size: int, span_ns: int) -> bool:
        """True if one of the limits is reached."""
        return (self.size is not None and size >= self.size) or (
            self.span_ns is not None and span_ns >= self.span_ns
        )


class SegmentWriter:
    """Writes items to segments, as ``SessionWriter`` does to one file: nothing is lost between two.

    A segment ends with a mark. The next one begins with the facts known then; its header has
    its number, its recording, and the number of samples of these facts.
    """

    def __init__(
        self,
        path: str,
        header: Mapping[str, Any],
        limits: SegmentLimits,
        *,
        owner: tuple[int, int] | None = None,
        private: bool = False,
        sums: Callable[[], Sums | None] = lambda: None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Create the folder and the first segment.

        Raises:
            SessionError: The folder cannot be made, or holds something; or as of ``SessionWriter``.
        """
        self.path = path
        self._header, self._limits, self._owner = dict(header), limits, owner
        self._private, self._sums, self._clock = private, sums, clock
        self._disguise = Disguise() if private else None  # one for all: names stay the same
        self._book = FactBook()
        self._number, self._before_events = 0, 0
        self._sizes: dict[int, int] = {}  # of the segments that have ended and are there, in bytes
        self._ending: threading.Thread | None = None
        self._failure: SessionError | None = None
        self._fresh = False  # nothing has come since a segment began
        make_folder(path, owner)
        self._writer = self._open(self._header, 0)
        self._since_ns = clock()

    @property
    def size_bytes(self) -> int:
        """Bytes in all segments that are there."""
        return sum(self._sizes.values()) + self._writer.size_bytes

    @property
    def events(self) -> int:
        return self._before_events + self._writer.events

    def write(self, item: Item) -> None:
        """Consume one item; see ``SessionWriter.write``."""
        self._check()
        self._fresh = False
        if isinstance(item, Sample):
            self._book.consume(item)
        self._writer.write(item)
        if isinstance(item, Sample) and item.kind == MARK:
            span = self._clock() - self._since_ns
            if self._limits.reached(self._writer.size_bytes, span):
                self._turn_over(item)

    def close(self) -> None:
        """Complete the last segment; see ``SessionWriter.close``."""
        if self._ending is not None:
            self._ending.join()
        if self._fresh:  # it ended with a mark that ended a segment: one without a frame could not be shown
            self._writer.discard()
        else:
            self._writer.close()
        self._check()

    def discard(self) -> None:
        """Remove the first segment and the folder: nothing was to be recorded after all."""
        self._writer.discard()
        try:
            os.rmdir(self.path)
        except OSError:
            return  # something else is in it

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _turn_over(self, mark: Sample) -> None:
        facts = self._book.samples(mark.time_ns)
        header = cut_header(self._header, mark.time_ns, lost_until(mark))
        before, number = self._writer, self._number
        self._sizes[number] = before.size_bytes  # until its end is written
        self._writer = self._open(header, len(facts))
        self._before_events += before.events
        self._since_ns = self._clock()
        if self._ending is not None:
            self._ending.join()
        # the disk may be slow, and observing must not wait for it
        self._ending = threading.Thread(target=self._end, args=(before, number), name="gputop-segment")
        self._ending.start()
        for sample in facts:
            self._writer.write(sample)
        self._fresh = True
        keep = self._limits.keep
        if keep is not None and self._number > keep:
            self._remove(self._number - keep)

    def _remove(self, number: int) -> None:
        try:
            remove_session(self._path_of(number), self._owner)
        except FileNotFoundError:
            pass  # it has been removed already
        except OSError as error:
            raise SessionError(
                f"recording to {self.path} stopped: {self._path_of(number)} cannot be removed "
                f"({error.strerror}), so it would take more room than it may; what is there can be replayed"
            ) from error
        del self._sizes[number]

    def _path_of(self, number: int) -> str:
        return os.path.join(self.path, f"{number:05d}{SUFFIX}")

    def _end(self, writer: SessionWriter, number: int) -> None:
        try:
            writer.close()
        except SessionError as error:
            self._failure = error
        self._sizes[number] = writer.size_bytes

    def _open(self, header: dict[str, Any], facts: int) -> SessionWriter:
        self._number += 1
        segment = {"number": self._number, "of": int(self._header.get("start_ns", 0)), "facts": facts}
        return SessionWriter(
            self._path_of(self._number),
            {**header, "segment": segment},
            owner=self._owner,
            private=self._private,
            disguise=self._disguise,
            overwrite=False,
            sums=self._sums(),
        )


class SegmentsReader(SessionReader):
    """The segments of a folder, as one session: facts repeated by a segment are left out."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open all of them.

        Raises:
            SessionError: There are none, too many, or none that can be read; or they are of two recordings.
        """
        self.path = os.fspath(path)
        self.readers: list[SessionReader] = []
        try:
            ItemReader.__init__(self, _Joined(self.readers))
            self._open_all()
            self._join()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._closed = True
        for segment in self.readers:
            segment.close()

    def totals(self) -> list[dict[str, Any]] | None:
        """Of all segments; see ``ItemReader.totals``."""
        found = [segment.totals() for segment in self.readers]
        if self.problems or not all(found):
            return None
        return [data for one in found for data in one or ()]

    def _open_all(self) -> None:
        names = segment_names(self.path)
        if not names:
            raise SessionError(
                f"{self.path} is not a regular file but a folder without segments (*{SUFFIX}): name a "
                "recorded session"
            )
        if len(names) > MOST:
            raise SessionError(
                f"{self.path} holds {len(names)} segments, more than {MOST}: look at them one by one"
            )
        for name in names:
            try:
                self.readers.append(SessionReader(os.path.join(self.path, name), follow=False))
            except SessionError as error:
                self._problem(f"a segment is left out: {error}")
        if not self.readers:
            raise DamagedError(f"{self.path} holds no segment that can be read: use a copy or record again")
        for segment in self.readers:
            for text in segment.problems:
                self._problem(f"{os.path.basename(segment.path)}: {text}")

    def _join(self) -> None:
        if len({_about(one).get("of") for one in self.readers}) > 1:
            raise SessionError(f"{self.path} holds segments of several recordings: look at them one by one")
        self.header = self.readers[0].header
        kinds: list[str] = []
        kind, last, offset = [], [], []
        base, number = 0, 0
        for segment in self.readers:
            table, about = segment._table, _about(segment)
            follows = number > 0 and about.get("number") == number + 1
            if number and not follows:
                self._problem(f"the segment before {os.path.basename(segment.path)} is missing")
            number = int(about.get("number", 0))
            left_out = int(about.get("facts", 0)) if follows else 0
            kinds += [name for name in table.kinds if name not in kinds]
            numbers = np.array([kinds.index(name) for name in table.kinds], np.int64)
            kind.append(numbers[table.kind[left_out:]])
            last.append(table.last[left_out:])
            offset.append(np.array(table.offset[left_out:], np.int64) + base)
            base += segment.size_bytes
        kind_column = np.concatenate(kind)
        self._file.size = base
        self._use(
            ChunkTable(
                kinds,
                kind_column,
                np.concatenate(last),
                np.concatenate(offset),
                mark_rows_of(kinds, kind_column),
            )
        )


class _Joined(ScannedFile):
    """The segments as one file of chunks."""

    def __init__(self, segments: list[SessionReader]) -> None:
        self.segments = segments
        self.size = 0

    def read(self, offset: int, count: int) -> bytes:
        """Bytes from ``offset`` on, fewer at the end of a segment."""
        for segment in self.segments:
            if offset < segment.size_bytes:
                return segment._file.read(offset, min(count, segment.size_bytes - offset))
            offset -= segment.size_bytes
        return b""


def segment_names(path: str) -> list[str]:
    """The files of a folder that are called as segments are, in their order."""
    try:
        return sorted(name for name in os.listdir(path) if name.endswith(SUFFIX))
    except OSError as error:
        raise SessionError(f"{path} cannot be read: {error.strerror}") from error


def _about(segment: SessionReader) -> dict[str, Any]:
    """The place of a header's file among segments; nothing in a file that is none."""
    about = segment.header.get("segment")
    return about if isinstance(about, dict) else {}

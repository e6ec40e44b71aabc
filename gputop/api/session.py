"""An open recording: its metadata, totals, frames, items."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType, TracebackType
from typing import Any

from gputop.api.reading import SILENT, Progress, open_file, understood
from gputop.api.totals import stats_of
from gputop.engine.engine import Engine
from gputop.engine.frame import Frame
from gputop.engine.session_totals import ProcessTotals, Stats
from gputop.errors import OutsideSessionError, SessionClosedError
from probes.source import Item
from replay.reader import SessionReader

NS = 1_000_000_000
File = str | os.PathLike[str]


class Session:
    """An open recording. Get one from ``open_session``, and close it or use it in a ``with``.

    Times are integers of nanoseconds; moments in arguments are seconds from the start of the recording.
    Damaged parts of the file are left out, and listed in ``problems``.

    Example:
        >>> with open_session("recordings/storm.msgpack") as session:
        ...     sorted({process.name for process in session.processes})
        ...     round(session.duration_ns / 1e9)
        ['pt_data_worker', 'python']
        3
    """

    def __init__(self, path: File) -> None:
        """Open a file; see ``open_session``."""
        self._reader = open_file(os.fspath(path))
        self._totals: Stats | None = None
        self._open = True
        try:
            with understood(self.path):
                self._start_ns = int(self._reader.header.get("start_ns", self._reader.marks[0]))
        except BaseException:
            self._reader.close()
            raise

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Results stay usable, iterators end; closing twice is allowed."""
        self._open = False
        self._reader.close()

    @property
    def path(self) -> str:
        """The file, as it was named."""
        return self._reader.path

    @property
    def header(self) -> Mapping[str, Any]:
        """The recorder's header (docs/session-format.md): host, clock, versions. Read-only."""
        return MappingProxyType(self._reader.header)

    @property
    def start_ns(self) -> int:
        """Start of the recording, ns of CLOCK_MONOTONIC of the recorded machine."""
        return self._start_ns

    @property
    def duration_ns(self) -> int:
        """From the start of the recording to its last frame, ns."""
        return int(self._reader.marks[-1]) - self._start_ns

    @property
    def moments_ns(self) -> tuple[int, ...]:
        """The times of the frames, ns from the start of the recording, in order; at least one."""
        return tuple((self._reader.marks - self._start_ns).tolist())

    @property
    def calls_observed(self) -> bool:
        """True if it was recorded with eBPF; otherwise it has no CUDA calls to explain."""
        return self._reader.header.get("calls_observed") is not False

    @property
    def problems(self) -> tuple[str, ...]:
        """Damaged and missing parts of the file, in sentences; grows while it is read."""
        return tuple(self._reader.problems)

    @property
    def processes(self) -> tuple[ProcessTotals, ...]:
        """The watched processes with their totals, by number; those of ``totals``."""
        return self.totals().processes

    def totals(self, progress: Progress | None = None) -> Stats:
        """Return calls by process and function, switches and times by thread, losses, of the whole recording.

        They are at the end of the file, or computed by reading it once. The result is cached.

        Args:
            progress: Reports the progress of reading.

        Raises:
            SessionDamagedError: This gputop does not understand the file's data.
            SessionClosedError: The session is closed.
        """
        if self._totals is None:
            reader = reader_of(self)
            with understood(self.path):
                totals = stats_of(reader, progress or SILENT)
            self._totals = replace(totals, problems=(*reader.problems, *totals.problems))
        return self._totals

    def items(self) -> Iterator[Item]:
        """Yield all intact items, in the order of observation.

        Yields:
            Arrays of records (numpy, fields as in docs/session-format.md, times in ns of CLOCK_MONOTONIC) and
            samples (``kind``, ``time_ns``, ``data``). A sample ``mark`` closes a frame.

        Raises:
            SessionClosedError: The session is closed.
        """
        return reader_of(self).items()

    def frames(self, start_s: float = 0.0, end_s: float | None = None) -> Iterator[Frame]:
        """Yield the frames, as on the screen.

        Args:
            start_s: The first moment, seconds from the start of the recording.
            end_s: The last moment; None: the end of the recording.

        Yields:
            Frames in order. Counts and percentiles of each are of the window that ends with it.

        Raises:
            SessionDamagedError: This gputop does not understand the file's data.
            SessionClosedError: The session is closed.

        Example:
            >>> with open_session("recordings/storm.msgpack") as session:
            ...     {storm.name for frame in session.frames(start_s=2) for storm in frame.storms}
            {'python'}
        """
        from gputop.playback.player import with_damage

        reader = reader_of(self)
        low = self._start_ns + start_s * NS
        high = self._start_ns + end_s * NS if end_s is not None else float("inf")
        with understood(self.path):
            engine = Engine(reader.header)
        for item in reader.items_between(-1, len(reader.marks)):
            with understood(self.path):
                frame = engine.frame() if engine.feed(item) else None
            if frame is None:
                continue
            if frame.time_ns > high:
                return
            if frame.time_ns >= low:
                yield with_damage(frame, reader)

    def frame_at(self, at_s: float) -> Frame:
        """Return the newest frame that is not after a moment.

        Args:
            at_s: Seconds from the start of the recording; before the first frame, the first frame is
                returned.

        Raises:
            OutsideSessionError: The moment is outside of the recording.
            SessionDamagedError: This gputop does not understand the file's data.
            SessionClosedError: The session is closed.

        Example:
            >>> with open_session("recordings/storm.msgpack") as session:
            ...     session.frame_at(2.5).storms[0].name
            'python'
        """
        from gputop.playback.player import frame_at, mark_at

        reader = reader_of(self)
        if not 0 <= at_s <= self.duration_ns / NS:
            raise OutsideSessionError(
                f"{at_s:g} s lies outside the recording, which is {self.duration_ns / NS:.1f} s long"
            )
        with understood(self.path):
            return frame_at(reader, mark_at(reader, self._start_ns + int(at_s * NS)))


def open_session(path: File) -> Session:
    """Open a recording for several queries.

    Args:
        path: What ``gputop record``, ``gputop --record`` or key ``R`` of the screen wrote.

    Raises:
        SessionNotFoundError: There is no such file.
        SessionUnreadableError: It may not or cannot be read.
        SessionDamagedError: It is no session, or holds no complete frame.
        SessionTooNewError: A newer gputop recorded it.

    Example:
        >>> with open_session("recordings/dataloader.msgpack") as session:
        ...     session.calls_observed, session.problems
        (True, ())
    """
    return Session(path)


def reader_of(session: Session) -> SessionReader:
    """Return the reader of a session's file, for the other functions of this package.

    Raises:
        SessionClosedError: The session is closed.
    """
    if not session._open:
        raise SessionClosedError(f"{session.path} is closed: open it again")
    return session._reader

"""What the screen polls: a live source or a session file, each run by a thread of its own."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import replace
from pathlib import Path

from gputop.engine import HISTORY_MARKS, WINDOW_NS, Engine
from gputop.explain.live import LiveExplainer, ReplayExplainer
from gputop.frame import Frame
from gputop.ui.feed import Explained, RecordingState, Transport
from probes.source import Source
from replay.format import SessionError
from replay.reader import SessionReader
from replay.writer import SessionWriter

_LOG_LINES = 5000
_SEEK_SLACK_NS = 2_000_000_000
_STALE_NS = 3_000_000_000  # an explanation this far from the position is about something else
SPEEDS = (0.25, 64.0)


class CommandLog:
    """Follows the file that takes a command's output; the newest lines are kept."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open(errors="replace")
        self._lines: deque[str] = deque(maxlen=_LOG_LINES)
        self._first = 0  # number of the oldest line kept
        self._partial = ""

    def lines(self, after: int) -> tuple[int, list[str]]:
        """(next number, lines from number ``after`` on)."""
        *whole, self._partial = (self._partial + self._file.read()).split("\n")
        for line in whole:
            self._first += len(self._lines) == _LOG_LINES
            self._lines.append(line)
        end = self._first + len(self._lines)
        return end, list(self._lines)[max(after - self._first, 0) :]


class LiveFeed:
    """Runs a live source through the engine, and into a session file if one is given."""

    transport: Transport | None = None

    def __init__(
        self,
        source: Source,
        writer: SessionWriter | None = None,
        log: CommandLog | None = None,
        window_ns: int = WINDOW_NS,
    ) -> None:
        self._source = source
        self._writer = writer
        self._log = log
        self._engine = Engine(source.header, window_ns)
        self._frame: Frame | None = None
        self._failure: str | None = None
        self._started = time.monotonic()
        self._explainer = LiveExplainer(source.header)
        self._thread = threading.Thread(target=self._run, name="gputop-engine", daemon=True)

    def start(self) -> None:
        """Starts to read the source."""
        if self._source.header.get("calls_observed") is not False:
            self._explainer.start()
        self._thread.start()

    def _run(self) -> None:
        try:
            for item in self._source.items():
                self._record(item)
                self._explainer.feed(item)
                if self._engine.feed(item):
                    self._frame = self._engine.frame()
        except Exception as error:  # whatever it was, the screen must say it
            self._failure = f"observing stopped: {type(error).__name__}: {error}"
        finally:
            self._end_recording()
            self._explainer.close()

    def _record(self, item: object) -> None:
        if self._writer is None:
            return
        try:
            self._writer.write(item)  # type: ignore[arg-type]
        except SessionError as error:
            self._failure = f"recording stopped: {error}"
            self._end_recording()

    def _end_recording(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            writer.close()
        except SessionError as error:
            self._failure = f"recording stopped: {error}"

    def latest(self) -> Frame | None:
        """The newest frame."""
        return self._frame

    def explained(self) -> Explained:
        """The newest explanation."""
        return _explained(self._explainer)

    def failure(self) -> str | None:
        """What went wrong, in a sentence."""
        return self._failure

    def fail(self, sentence: str) -> None:
        """Something went wrong outside of the feed; the screen says it."""
        self._failure = sentence

    def recording(self) -> RecordingState | None:
        """The session file that is being written."""
        writer = self._writer
        if writer is None:
            return None
        return RecordingState(str(writer.path), writer.size_bytes, time.monotonic() - self._started)

    def log_lines(self, after: int) -> tuple[int, list[str]]:
        """Output of the command."""
        return self._log.lines(after) if self._log else (0, [])

    def close(self) -> None:
        """Ends the source and waits for its last mark."""
        self._source.close()
        self._thread.join()


def _explained(explainer: LiveExplainer | ReplayExplainer) -> Explained:
    verdict = explainer.verdict
    if verdict is None or explainer.failure:
        return Explained(problem=explainer.failure)
    return Explained(verdict.report, verdict.end_ns, verdict.start_ns, lanes=verdict.lanes)


def frame_at(reader: SessionReader, index: int) -> Frame:
    """The frame of a mark, made from the part of the file that it depends on."""
    return with_damage(_engine_at(reader, index).frame(), reader)


def with_damage(frame: Frame, reader: SessionReader) -> Frame:
    """The frame, told beside it what of the file is damaged or missing: its figures may be too low."""
    if not reader.problems:
        return frame
    return replace(frame, problems=(*reader.problems, *frame.problems))


def _engine_at(reader: SessionReader, index: int) -> Engine:
    engine = Engine(reader.header)
    # a sample is older than the mark that shows it: start one mark earlier than the history reaches
    first = index - HISTORY_MARKS - 1
    oldest = int(reader.marks[first]) if first >= 0 else 0
    records_since = int(reader.marks[index]) - WINDOW_NS - _SEEK_SLACK_NS
    for item in reader.items_until(index, records_since, min(oldest, records_since)):
        engine.feed(item)
    return engine


class ReplayFeed:
    """Plays a session file: a thread that seeks and steps so that the screen never waits."""

    def __init__(self, reader: SessionReader, start_index: int, speed: float = 1.0, *, playing: bool) -> None:
        self._reader = reader
        self._marks = reader.marks
        self._engine = _engine_at(reader, start_index)
        self._index = start_index
        self._frame = with_damage(self._engine.frame(), reader)
        self._wanted: int | None = None
        self._playing = playing
        self._speed = speed
        self._clock_ns = float(self._marks[start_index])
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._failure: str | None = None
        self._explainer = ReplayExplainer(reader)
        self._thread = threading.Thread(target=self._run, name="gputop-player", daemon=True)

    def start(self) -> None:
        """Starts the player."""
        if self._reader.header.get("calls_observed") is not False:
            self._explainer.start()
            self._explainer.show(self._index, exact=True)
        self._thread.start()

    # -- Feed ---------------------------------------------------------------------------------

    @property
    def transport(self) -> ReplayFeed:
        """The controls."""
        return self

    def latest(self) -> Frame | None:
        """The frame at the position."""
        return self._frame

    def explained(self) -> Explained:
        """The explanation at the position, or shortly before while it plays."""
        found = _explained(self._explainer)
        ahead = found.end_ns - self.position_ns
        behind = _STALE_NS * max(self._speed, 1.0)
        return Explained(problem=found.problem) if ahead > _STALE_NS or -ahead > behind else found

    def failure(self) -> str | None:
        """What went wrong, in a sentence."""
        return self._failure

    def recording(self) -> RecordingState | None:
        """A replay does not record."""
        return None

    def log_lines(self, after: int) -> tuple[int, list[str]]:
        """A recording holds no output of commands."""
        return after, []

    # -- Transport ----------------------------------------------------------------------------

    @property
    def playing(self) -> bool:
        """Whether time runs."""
        return self._playing

    @property
    def speed(self) -> float:
        """Recorded seconds per second."""
        return self._speed

    @property
    def position_ns(self) -> int:
        """The mark that is shown."""
        return int(self._marks[self._index])

    @property
    def start_ns(self) -> int:
        """The first mark."""
        return int(self._marks[0])

    @property
    def end_ns(self) -> int:
        """The last mark."""
        return int(self._marks[-1])

    def toggle(self) -> None:
        """Play or pause; at the end, play from the beginning."""
        with self._lock:
            if not self._playing and self._index == len(self._marks) - 1:
                self._wanted = 0
            self._playing = not self._playing
        self._wake.set()

    def step(self, marks: int) -> None:
        """Pauses and moves by marks."""
        with self._lock:
            base = self._index if self._wanted is None else self._wanted
            self._wanted = min(max(base + marks, 0), len(self._marks) - 1)
            self._playing = False
        self._wake.set()

    def seek(self, time_ns: int) -> None:
        """Goes to the newest mark that is not after ``time_ns``."""
        with self._lock:
            self._wanted = mark_at(self._reader, time_ns)
        self._wake.set()

    def set_speed(self, speed: float) -> None:
        """Plays faster or slower, within ``SPEEDS``."""
        self._speed = min(max(speed, SPEEDS[0]), SPEEDS[1])
        self._wake.set()

    # -- the player ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closed:
                self._turn()
        except Exception as error:  # whatever it was, the screen must say it
            self._failure = f"replay stopped: {type(error).__name__}: {error}"

    def _turn(self) -> None:
        began = time.monotonic()
        self._wake.wait(self._pause_s())
        self._wake.clear()
        with self._lock:
            wanted, self._wanted = self._wanted, None
            playing = self._playing
        if wanted is not None:
            self._go(wanted)
        elif playing:
            self._clock_ns += (time.monotonic() - began) * 1e9 * self._speed
            self._advance(mark_at(self._reader, int(self._clock_ns)))
        else:
            self._explainer.show(self._index, exact=True)

    def _pause_s(self) -> float | None:
        """How long until the next mark is due; None: until somebody calls."""
        if not self._playing or self._wanted is not None:
            return 0 if self._wanted is not None else None
        following = min(self._index + 1, len(self._marks) - 1)
        return max((float(self._marks[following]) - self._clock_ns) / 1e9 / self._speed, 0.01)

    def _go(self, index: int) -> None:
        if index == self._index + 1:
            self._advance(index)
        elif index != self._index:
            self._engine = _engine_at(self._reader, index)
            self._show(index)
        self._explainer.show(index, exact=True)
        self._clock_ns = float(self._marks[index])

    def _advance(self, index: int) -> None:
        """Feeds what lies between two marks; skipped marks are fed too, their frames are not made."""
        if index > self._index:
            for item in self._reader.items_between(self._index, index):
                self._engine.feed(item)
            if index == len(self._marks) - 1:
                self._playing = False
            self._show(index)

    def _show(self, index: int) -> None:
        self._index = index
        self._explainer.show(index, exact=not self._playing)
        self._frame = with_damage(self._engine.frame(), self._reader)

    def close(self) -> None:
        """Ends the player."""
        self._closed = True
        self._wake.set()
        self._explainer.close()
        self._thread.join(timeout=1)


def mark_at(reader: SessionReader, time_ns: int) -> int:
    """Index of the newest mark that is not after ``time_ns``; the first one when none is."""
    index = int(reader.marks.searchsorted(time_ns, side="right")) - 1
    return min(max(index, 0), len(reader.marks) - 1)

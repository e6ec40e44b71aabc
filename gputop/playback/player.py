"""Plays a recording or the live history to the screen, in a thread."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.engine.engine import HISTORY_MARKS, WINDOW_NS, Engine
from gputop.engine.frame import Frame
from gputop.engine.wallclock import WallClock
from gputop.playback.bookmarks import MARKED, Landmark, Landmarks
from gputop.playback.feed import Explained, RecordingState
from gputop.playback.survey import Survey
from probes.source import MARK, Sample
from replay.items import ItemReader

if TYPE_CHECKING:
    from gputop.analysis.live import LiveExplainer, ReplayExplainer

_LOG = logging.getLogger(__name__)
_SEEK_SLACK_NS = 2_000_000_000
_STALE_NS = 3_000_000_000  # an explanation this far from the position is not shown
_AGED_NS = 10_000_000_000
_LONGEST_TURN_S = 1.0
_LOOKING = "explaining this moment ..."
SPEEDS = (0.25, 64.0)


def frame_at(reader: ItemReader, index: int) -> Frame:
    """Return the frame of a mark, made from the part of the file that it depends on."""
    return with_damage(_engine_at(reader, index).frame(), reader)


def with_damage(frame: Frame, reader: ItemReader) -> Frame:
    """Return the frame with the file's damage among its problems: figures may be too low."""
    if not reader.problems:
        return frame
    return replace(frame, problems=(*reader.problems, *frame.problems))


def _engine_at(reader: ItemReader, index: int) -> Engine:
    engine = Engine(reader.header)
    # samples are older than the mark that shows them: start one mark before the history
    first = index - HISTORY_MARKS - 1
    oldest = int(reader.marks[first]) if first >= 0 else 0
    records_since = int(reader.marks[index]) - WINDOW_NS - _SEEK_SLACK_NS
    closed = False
    for item in reader.items_until(index, records_since, min(oldest, records_since)):
        closed |= engine.feed(item)
    if not closed:  # the file can no longer be read; the reader's problems have the reason
        engine.feed(_bare_mark(reader, index))
    return engine


def _bare_mark(reader: ItemReader, index: int) -> Sample:
    """Return a mark with the time of the index and the clock of the recording's start."""
    time_ns, clock = int(reader.marks[index]), WallClock.of_header(reader.header)
    return Sample(MARK, time_ns, {} if clock is None else {"wall_ns": time_ns + clock.most_ns})


class ReplayFeed:
    """Plays a session file in a thread, so that the screen never waits."""

    recorder = None

    def __init__(
        self,
        reader: ItemReader,
        start_index: int,
        speed: float = 1.0,
        *,
        playing: bool,
        frame: Frame | None = None,
        explainer: ReplayExplainer | None = None,
        landmarks: Landmarks | None = None,
    ) -> None:
        """Begin at a mark.

        Args:
            reader: The recording, or the live history.
            start_index: The mark.
            speed: Recorded seconds per second.
            playing: Let time run.
            frame: The frame of the mark, if known.
            explainer: Explains the marks; None: ``explain`` makes one, for the whole recording.
            landmarks: The landmarks; None: searched for in the recording.
        """
        self._reader = reader
        self._engine: Engine | None = None
        self._index = start_index
        self._frame = frame if frame is not None else self._frame_at(start_index)
        self._caught_up = False
        self._wanted: int | None = None
        self._aim = start_index  # the target of the last key, reached or not: steps count from it
        self._playing = playing
        self._speed = speed
        self._clock_ns = float(reader.marks[start_index])
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._failure: str | None = None
        self._explainer = explainer
        self._requested = start_index, True  # the mark to explain, and whether exactly this one
        self._survey = Survey(reader) if landmarks is None else None
        self._landmarks = landmarks or (self._survey.landmarks if self._survey else Landmarks())
        self.thread = threading.Thread(target=self._run, name="gputop-player", daemon=True)
        self._loader = threading.Thread(target=self._load, name="gputop-why-load", daemon=True)

    def start(self, *, explain: bool = True) -> None:
        """Start the player; without ``explain`` explanations begin with the method of that name."""
        self.thread.start()
        if explain:
            self.explain()

    def explain(self) -> None:
        """Begin to explain; return at once."""
        self._loader.start()

    def _load(self) -> None:
        """Import and start the explainer, which the first frame does not need."""
        try:
            if self._traced:
                from gputop.analysis.live import ReplayExplainer

                self._explainer = self._explainer or ReplayExplainer(self._reader)
                if not self._closed:
                    self._explainer.start()
                self._explainer.show(self._requested[0], exact=self._requested[1])
            if self._survey is not None and not self._closed:
                self._survey.start()
        except Exception as error:
            _LOG.exception("explanations failed")
            self._failure = f"explanations failed: {type(error).__name__}: {error}"

    def _request(self, index: int, *, exact: bool) -> None:
        """Have a mark explained, once the explainer is loaded."""
        self._requested = index, exact
        if self._explainer is not None:
            self._explainer.show(index, exact=exact)

    @property
    def _traced(self) -> bool:
        return self._reader.header.get("calls_observed") is not False

    # -- Feed ---------------------------------------------------------------------------------

    @property
    def transport(self) -> ReplayFeed:
        return self

    def latest(self) -> Frame | None:
        return self._frame

    def explained(self) -> Explained:
        """Return the explanation at the position, or shortly before while playing."""
        found = explained_by(self._explainer) if self._explainer is not None else Explained()
        ahead = found.end_ns - self.position_ns
        # while playing, explanations lag behind, and the screen shows their age
        behind = (_AGED_NS if self._playing else _STALE_NS) * max(self._speed, 1.0)
        if found.report is not None and ahead <= _STALE_NS and -ahead <= behind:
            return found
        return Explained(problem=found.problem or (_LOOKING if self._traced else ""))

    def failure(self) -> str | None:
        return self._failure

    def recording(self) -> RecordingState | None:
        return None

    def outcome(self) -> str:
        return ""

    def present(self) -> tuple[Frame, Explained] | None:
        return None

    def log_lines(self, after: int) -> tuple[int, list[str]]:
        return after, []

    # -- Transport ----------------------------------------------------------------------------

    live = False

    @property
    def caught_up(self) -> bool:
        """True if playing has reached the end of a growing history."""
        return self._caught_up

    @property
    def playing(self) -> bool:
        return self._playing

    @property
    def speed(self) -> float:
        return self._speed

    @property
    def position_ns(self) -> int:
        return int(self._reader.marks[self._index])

    @property
    def start_ns(self) -> int:
        return int(self._reader.marks[min(self._reader.first, len(self._reader.marks) - 1)])

    @property
    def end_ns(self) -> int:
        return int(self._reader.marks[-1])

    def toggle(self) -> None:
        """Play or pause; at the end, play from the beginning."""
        with self._lock:
            if not self._playing and self._index == self._newest and not self._reader.refresh():
                self._wanted = self._aim = 0
            self._playing = not self._playing
        self._wake.set()

    def step(self, marks: int) -> None:
        with self._lock:
            self._reader.refresh()
            self._wanted = self._aim = min(max(self._aim + marks, self._reader.first), self._newest)
            self._playing = False
        self._wake.set()

    def seek(self, time_ns: int) -> None:
        with self._lock:
            self._reader.refresh()
            self._wanted = self._aim = mark_at(self._reader, time_ns)
        self._wake.set()

    def set_speed(self, speed: float) -> None:
        """Set the speed, within ``SPEEDS``."""
        self._speed = min(max(speed, SPEEDS[0]), SPEEDS[1])
        self._wake.set()

    def go_live(self) -> None:
        self.seek(self.end_ns)

    def landmarks(self) -> tuple[Landmark, ...]:
        """Return the landmarks found so far."""
        return self._landmarks.since(self.start_ns)

    def mark(self, text: str, at_ns: int | None = None) -> None:
        """Mark a moment until gputop ends: a recording is only read."""
        self._landmarks.add(self.position_ns if at_ns is None else at_ns, MARKED, text)

    # -- the player ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closed:
                self.turn()
        except Exception as error:
            _LOG.exception("replay stopped")
            self._failure = f"replay stopped: {type(error).__name__}: {error}"

    def turn(self) -> None:
        began = time.monotonic()
        self._wake.wait(self._pause_s())
        self._wake.clear()
        with self._lock:
            wanted, self._wanted = self._wanted, None
            playing = self._playing
        if wanted is not None:
            self._go(wanted)
        elif playing:
            # bounded, so that ctrl+z and fg do not skip
            self._clock_ns += min(time.monotonic() - began, _LONGEST_TURN_S) * 1e9 * self._speed
            self._reader.refresh()
            self._advance(mark_at(self._reader, int(self._clock_ns)))
        else:
            self._request(self._index, exact=True)

    def _pause_s(self) -> float | None:
        """Return the seconds until the next mark is due; None: until woken."""
        if not self._playing or self._wanted is not None:
            return 0 if self._wanted is not None else None
        following = min(self._index + 1, self._newest)
        return max((float(self._reader.marks[following]) - self._clock_ns) / 1e9 / self._speed, 0.01)

    @property
    def _newest(self) -> int:
        return len(self._reader.marks) - 1

    def _frame_at(self, index: int) -> Frame:
        self._engine = _engine_at(self._reader, index)
        return with_damage(self._engine.frame(), self._reader)

    def _go(self, index: int) -> None:
        if index == self._index + 1:
            self._advance(index)
        elif index != self._index:
            self._show(index, self._frame_at(index))
        self._request(index, exact=True)
        self._clock_ns = float(self._reader.marks[index])

    def _advance(self, index: int) -> None:
        """Feed all items up to a mark, and show its frame."""
        if index > self._index:
            engine = self._engine or _engine_at(self._reader, self._index)
            for item in self._reader.items_between(self._index, index):
                engine.feed(item)
            self._engine = engine
            self._show(index, with_damage(engine.frame(), self._reader))
        if index == self._newest:
            self._caught_up = self._reader.refresh()
            self._playing &= self._caught_up
            self._request(index, exact=not self._playing)

    def _show(self, index: int, frame: Frame) -> None:
        with self._lock:
            self._index, self._caught_up = index, False
            if self._wanted is None:
                self._aim = index
        self._request(index, exact=not self._playing)
        self._frame = frame

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        if self._loader.ident is not None:
            self._loader.join()  # it may still start the explainer
        if self._explainer is not None:
            self._explainer.close()
        if self._survey is not None:
            self._survey.close()
        self.thread.join(timeout=1)


def explained_by(explainer: LiveExplainer | ReplayExplainer) -> Explained:
    """Return the newest explanation for the screen."""
    verdict = explainer.verdict
    if verdict is None or explainer.failure:
        return Explained(problem=explainer.failure)
    return Explained(
        verdict.report,
        verdict.end_ns,
        verdict.start_ns,
        lanes=verdict.lanes,
        detail_age_ns=verdict.detail_age_ns,
        steps=verdict.steps,
        first_look=verdict.first_look,
        ended=verdict.ended,
        called_ns=verdict.called_ns,
        shortened_ns=explainer.shortened_ns,
    )


def mark_at(reader: ItemReader, time_ns: int) -> int:
    """Return the index of the newest mark that is not after ``time_ns``, or of the first mark."""
    index = int(reader.marks.searchsorted(time_ns, side="right")) - 1
    return min(max(index, reader.first), len(reader.marks) - 1)

"""The live screen's feed: a source, consumed by a thread."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from gputop.analysis.live import LiveExplainer
from gputop.analysis.window import WINDOW_NS as EXPLAINED_NS
from gputop.engine.engine import WINDOW_NS, Engine
from gputop.engine.frame import Frame
from gputop.engine.own_memory import OwnMemory
from gputop.playback.bookmarks import Landmarks
from gputop.playback.feed import Explained, RecordingState
from gputop.playback.player import explained_by
from gputop.playback.recorder import Recorder
from gputop.playback.restart import begun_anew
from gputop.playback.rewind import Rewind
from gputop.process.failures import sentence
from probes.source import MARK, Item, Sample, Source
from replay.past.history import History

_LOG = logging.getLogger(__name__)
_LOG_LINES = 5000


class CommandLog:
    """Follows the file of a command's output; keeps the newest lines."""

    def __init__(self, path: Path, file: TextIO) -> None:
        self.path = path
        self._file = file
        self._lines: deque[str] = deque(maxlen=_LOG_LINES)
        self._first = 0  # number of the oldest line kept
        self._partial = ""

    def lines(self, after: int, *, whole: bool = False) -> tuple[int, list[str]]:
        """Return the next index, and the lines since index ``after``.

        Args:
            after: As of ``Feed.log_lines``.
            whole: The output has ended: an unterminated line counts.
        """
        *ended, self._partial = (self._partial + self._file.read()).split("\n")
        if whole and self._partial:
            ended.append(self._partial)
            self._partial = ""
        for line in ended:
            self._first += len(self._lines) == _LOG_LINES
            self._lines.append(line)
        end = self._first + len(self._lines)
        return end, list(self._lines)[max(after - self._first, 0) :]


class LiveFeed:
    """Runs a live source through the engine, and into the history of the last minutes."""

    def __init__(
        self,
        source: Source,
        log: CommandLog | None = None,
        *,
        recorder: Recorder | None = None,
        outcome: Callable[[], str] | None = None,
        memory: OwnMemory | None = None,
    ) -> None:
        """Create a feed; ``start`` starts it.

        Args:
            source: The source of items.
            log: The command's output.
            recorder: Records on request, and holds the history; None: a new one.
            outcome: Returns how the command ended, or "".
            memory: Shortens the explanations while gputop is above its budget of memory; None: no budget.
        """
        self._source = source
        self._log, self._outcome = log, outcome
        self._engine = Engine(source.header, WINDOW_NS)
        self.frame_now: Frame | None = None
        self._failure: str | None = None
        self._landmarks = Landmarks()
        self._anew: str | None = None  # why the explanation restarted last
        self._anew_ns = 0
        self._markers: deque[Sample] = deque()  # the user's markers to record
        self.explainer = LiveExplainer(source.header, self._landmarks.consume_verdict)
        self._slower, self._memory = 1, memory
        self.explainer.memory = memory
        self.recorder = recorder or Recorder(History(source.header))
        self._history = self.recorder.history
        self.transport = Rewind(
            self._history,
            lambda: self.frame_now,
            lambda: explained_by(self.explainer),
            landmarks=self._landmarks,
            marked=self._markers.append,
            checkpoints=lambda: self.explainer.checkpoints,
        )
        self.thread = threading.Thread(target=self._run, name="gputop-engine", daemon=True)

    def start(self) -> None:
        if self._source.header.get("calls_observed") is not False:
            self.explainer.start()
        self.thread.start()

    def _run(self) -> None:
        try:
            for item in self._source.items():
                self._consume(item)
        except Exception as error:
            _LOG.exception("observing stopped")
            self._failure = f"observing stopped: {sentence(error)}"
        finally:
            self.recorder.finish()
            self.explainer.close()

    def _consume(self, item: Item) -> None:
        marked = isinstance(item, Sample) and item.kind == MARK
        while marked and self._markers:
            self.recorder.write(self._markers.popleft())
        self.recorder.write(item)
        if isinstance(item, Sample) and marked and self.explainer.failure:
            self._explain_anew(item.time_ns)
        self.explainer.feed(item)
        if self._engine.feed(item):
            self.frame_now = self._with_problems(self._engine.frame())
        if isinstance(item, Sample) and marked:
            self._landmarks.consume_mark(item)

    def ease(self, slower: int) -> None:
        """Explain ``slower`` times less often."""
        self._slower = self.explainer.slower = slower

    def _explain_anew(self, now_ns: int) -> None:
        if now_ns - self._anew_ns < EXPLAINED_NS:
            return  # the reason may persist; the failure is shown meanwhile
        self._anew, self._anew_ns = self.explainer.failure, now_ns
        self.explainer = begun_anew(
            self.explainer, self._source.header, self._history, self._landmarks.consume_verdict
        )
        self.explainer.slower, self.explainer.memory = self._slower, self._memory

    def _with_problems(self, frame: Frame) -> Frame:
        """Return the frame with the problems of the history and of the explanation."""
        anew = f"{self._anew}; it restarted, without the time before" if self._anew else ""
        problems = tuple(filter(None, (self._history.problem, anew)))
        return replace(frame, problems=(*frame.problems, *problems)) if problems else frame

    def latest(self) -> Frame | None:
        return self.transport.latest()

    def present(self) -> tuple[Frame, Explained] | None:
        frame = self.frame_now
        return (frame, explained_by(self.explainer)) if frame is not None else None

    def explained(self) -> Explained:
        return self.transport.explained()

    def failure(self) -> str | None:
        return self._failure or self.recorder.failure or self.transport.failure()

    def fail(self, sentence: str) -> None:
        """Report a failure outside of the feed."""
        self._failure = sentence

    def recording(self) -> RecordingState | None:
        return self.recorder.state()

    def log_lines(self, after: int) -> tuple[int, list[str]]:
        return self._log.lines(after, whole=bool(self.outcome())) if self._log else (0, [])

    def outcome(self) -> str:
        return self._outcome() if self._outcome is not None else ""

    def close(self) -> None:
        """End the source and wait for its last mark."""
        self.transport.close()
        self._source.close()
        self.thread.join()
        self._history.close()

"""Reads a recording once, in the background, for the landmarks of its time bar."""

from __future__ import annotations

import logging
import threading
import time

from gputop.playback.bookmarks import Landmarks
from probes.source import MARK, MARKER, Sample
from replay.items import ItemReader

FINEST_NS, COARSEST_NS = 1_000_000_000, 10_000_000_000  # between two explanations
_LOG = logging.getLogger(__name__)
_STEPS = 300  # explanations of a recording, if the coarsest step allows
_REST = 1.0  # pause after an explanation, as a multiple of its time: the player and the screen go first


class Survey:
    """Collects the landmarks of a recording; the reader may be used by others meanwhile."""

    def __init__(self, reader: ItemReader) -> None:
        self.landmarks = Landmarks()
        self.failure = ""
        self._reader = reader
        self._closed = False
        self.thread = threading.Thread(target=self._run, name="gputop-survey", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def close(self) -> None:
        self._closed = True
        if self.thread.ident is not None:
            self.thread.join()

    def _run(self) -> None:
        try:
            for sample in self._reader.samples(MARKER):
                self.landmarks.consume_marker(sample)
            self.read()
        except Exception as error:  # the bar keeps what was found until then
            _LOG.exception("the survey of a recording stopped")
            self.failure = f"{type(error).__name__}: {error}"

    def read(self) -> None:
        from gputop.analysis.window import Window  # late: the first frame does not need it

        marks = self._reader.marks
        traced = self._reader.header.get("calls_observed") is not False
        window = Window(self._reader.header) if traced else None
        step = min(max((int(marks[-1]) - int(marks[0])) // _STEPS, FINEST_NS), COARSEST_NS)
        due = int(marks[0]) + step
        for item in self._reader.items():
            if self._closed:
                return
            closed = window.feed(item) if window is not None else False
            if isinstance(item, Sample) and item.kind == MARK:
                self.landmarks.consume_mark(item)
            if window is None or not closed or window.explained_ns < window.end_ns:
                continue
            if window.end_ns >= due or window.end_ns in (marks[-1], window.ended_ns):
                due = window.end_ns + step
                began = time.thread_time()
                self.landmarks.consume_verdict(window.verdict())
                time.sleep((time.thread_time() - began) * _REST)

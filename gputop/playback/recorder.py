"""Records a live session on request; the history and the recording share their bytes."""

from __future__ import annotations

import threading
import time

from gputop.engine.tally import FileSums
from gputop.format import format_bytes
from gputop.playback.feed import RecordingState
from probes.source import Item
from replay.coding.file_format import SessionError
from replay.past.history import History
from replay.past.keep_history import Disguised, HistoryCopy
from replay.writer import SessionWriter


def _stopped(text: str) -> str:
    """Return a notice about a recording that has failed, with the next step."""
    notice = text if text.startswith("recording ") else f"recording stopped: {text}"
    return f"{notice}; R starts another one"


class Recorder:
    """Owns the history and the recording.

    ``write`` and ``finish`` are for the thread that reads the source, all else for that of the screen.
    """

    def __init__(
        self,
        history: History,
        writer: SessionWriter | None = None,
        *,
        owner: tuple[int, int] | None = None,
        private: bool = False,
    ) -> None:
        """Start with the recording of the command line, if any.

        Args:
            history: The history of all items.
            writer: A new session file for all items.
            owner: User and group id behind sudo, for later files.
            private: Hide the names of processes that are not watched in files.
        """
        self.history = history
        self.failure: str | None = None
        self._owner, self._private = owner, private
        self._writer = writer
        self._started = time.monotonic()
        self._notice = ""
        self._copying: threading.Thread | None = None
        self._ending: threading.Thread | None = None
        self._lock = threading.Lock()
        if writer is not None:
            history.tee(Disguised(writer) if private else writer)

    # -- the thread that reads the source ---------------------------------------------------------

    def write(self, item: Item) -> None:
        try:
            self.history.write(item)
        except SessionError as error:
            self.failure = f"the live history and the recording are incomplete: {error}"
        if self.history.tee_failure:
            self.failure = _stopped(self.history.tee_failure)
            self.history.tee(None)
            self._end()

    def finish(self) -> None:
        """Complete the file at the end of the session."""
        for thread in (self._copying, self._ending):
            if thread is not None:
                thread.join()
        self.history.flush()
        self.history.tee(None)
        self._end()

    def _end(self) -> None:
        with self._lock:
            writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            writer.close()
        except SessionError as error:
            self.failure = _stopped(str(error))
        else:
            size = format_bytes(writer.size_bytes)
            self._notice = f"recorded {writer.path}, {size}; see it with: gputop replay {writer.path}"

    # -- the thread of the screen -----------------------------------------------------------------

    def held(self) -> tuple[int, int]:
        return self.history.span_ns, self.history.size_bytes

    def default_path(self) -> str:
        return time.strftime("gputop-%Y%m%d-%H%M%S.msgpack")

    def state(self) -> RecordingState | None:
        writer = self._writer
        if writer is None:
            return None
        return RecordingState(str(writer.path), writer.size_bytes, time.monotonic() - self._started)

    def start(self, path: str, *, history: bool) -> str:
        copy = HistoryCopy(self.history, whole=history)
        try:
            writer = SessionWriter(
                path,
                copy.header,
                owner=self._owner,
                private=self._private,
                overwrite=False,
                sums=FileSums(),
            )
        except SessionError as error:
            return str(error)
        self._started = time.monotonic() - (self.history.span_ns / 1e9 if history else 0)
        self._writer, self.failure = writer, None
        copying = threading.Thread(target=self._copy, args=(copy, writer), name="gputop-keep", daemon=True)
        self._copying = copying
        copying.start()
        return ""

    def _copy(self, copy: HistoryCopy, writer: SessionWriter) -> None:
        try:
            copy.copy_into(writer, private=self._private)
        except SessionError as error:
            self.failure = _stopped(str(error))
            self._end()

    def stop(self) -> None:
        def end(copying: threading.Thread | None) -> None:
            if copying is not None:
                copying.join()
            self.history.tee(None)
            self._end()

        # closing waits for the disk
        ending = threading.Thread(target=end, args=(self._copying,), name="gputop-keep", daemon=True)
        self._ending = ending
        ending.start()

    def pop_notice(self) -> str:
        notice, self._notice = self._notice, ""
        return notice

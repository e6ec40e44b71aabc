"""A progress bar on standard error, removed at the end.

After the first second, an interrupt ends only the reading, and the command reports what it has read; a second
interrupt ends the command.
"""

from __future__ import annotations

import io
import signal
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from probes.process.realtime import Latch
from probes.source import MARK, Item, Sample

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

INTERRUPTED = 130  # exit status of a partial result
AFTER_S = 1.0  # no bar before
# importing and drawing the bar costs up to 150 ms
WORTH_S = 1.5
_EVERY_S = 0.5


class _Terminal(io.TextIOBase):
    """Standard error for the bar; a terminal that is gone is ignored."""

    encoding = property(lambda _self: sys.stderr.encoding)

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return sys.stderr.fileno()

    def write(self, text: str) -> int:
        with suppress(OSError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            sys.stderr.flush()


class ProgressBar:
    """A context that shows a bar for what takes longer than 1.5 s.

    Args:
        doing: The bar's first label.
        partial: True if a partial result is useful: then an interrupt only ends the reading.
    """

    def __init__(self, doing: str, *, partial: bool = False) -> None:
        self.stopped = False  # True after such an interrupt
        self._partial, self._reading = partial, False
        self._doing = doing
        self._shown = sys.stderr.isatty()
        self._bar: Bar | None = None
        self._began = time.monotonic()
        self._due = self._began + AFTER_S
        self._lock = threading.RLock()  # a signal may end the bar while it is made
        self._over = Latch()
        self._part = 0.0
        self._interrupted = signal.getsignal(signal.SIGINT)

    def __enter__(self) -> ProgressBar:
        if self._shown or self._partial:
            self._interrupted = signal.getsignal(signal.SIGINT)
            if self._interrupted is not signal.SIG_IGN:
                signal.signal(signal.SIGINT, self._interrupt)
        if self._shown:
            threading.Thread(target=self._begin_later, name="gputop-progress", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def through(self, items: Iterable[Item], marks: int) -> Iterable[Item]:
        """Return the same items; the bar follows the marks among them."""
        return self._followed(items, marks) if self._shown or self._partial else items

    def goes_on(self, doing: str) -> None:
        """Begin another task; its progress is unknown until items or parts are counted."""
        with self._lock:
            self._doing, self._part, self._reading = doing, 0.0, False
            if self._bar is not None:
                self._bar.reset(self._bar.task_ids[0], description=doing, total=None)

    def parts(self, done: int, of: int) -> None:
        """Set the progress of the task."""
        with self._lock:
            self._part, self._reading = done / of, done < of
            self._move()

    def _followed(self, items: Iterable[Item], marks: int) -> Iterable[Item]:
        passed, began = 0, time.monotonic()
        self._reading = True
        for item in items:
            if self.stopped:
                break
            if isinstance(item, Sample) and item.kind == MARK:
                passed += 1
                now = time.monotonic()
                if now >= self._due:
                    self._due = now + _EVERY_S
                    self._part = min(passed / max(marks, 1), 1.0)
                    if (now - began) / self._part >= WORTH_S:
                        self._begin()
                    self._move()
            yield item
        self._reading = False

    def _begin_later(self) -> None:
        if not self._over.wait(WORTH_S):
            self._begin()

    def _begin(self) -> None:
        with self._lock:
            if self._shown and self._bar is None:
                self._bar = self._started()

    def _started(self) -> Bar:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
        console = Console(file=_Terminal())  # type: ignore[arg-type]
        bar = Bar(
            *columns,
            console=console,
            transient=True,
            refresh_per_second=1 / _EVERY_S,
            redirect_stdout=False,  # nothing else is written, and the bar itself uses sys.stderr
            redirect_stderr=False,
        )
        bar.add_task(self._doing, total=None)
        bar.start()
        console.show_cursor(True)  # a killed process could not restore it
        return bar

    def _move(self) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], total=1.0, completed=self._part)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        long = time.monotonic() - self._began >= AFTER_S
        if self._partial and self._reading and long and not self.stopped:
            self.stopped = True
            return
        self._end()
        if callable(self._interrupted):
            self._interrupted(number, frame)

    def _end(self) -> None:
        if not self._shown:
            signal.signal(signal.SIGINT, self._interrupted)
            return
        self._over.set()
        with self._lock:
            self._shown = False
            bar, self._bar = self._bar, None
            if bar is not None:
                bar.stop()
        signal.signal(signal.SIGINT, self._interrupted)

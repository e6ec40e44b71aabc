"""How far a command is with a file: a bar on standard error where that is a terminal, gone at the end."""

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

from probes.source import MARK, Item, Sample

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

AFTER_S = 1.0  # what is over before needs no bar
# importing and drawing the bar costs up to 150 ms: no more than 2 % of what it is shown for
WORTH_S = 8.0
_EVERY_S = 0.5


class _Terminal(io.TextIOBase):
    """Standard error for the bar: a terminal that has gone is no reason to end."""

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


class Progress:
    """Shows a bar after a second, where it is known by then that eight pass, else after eight; a context.

    Args:
        doing: What is done first, in a word or two.
    """

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._shown = sys.stderr.isatty()
        self._bar: Bar | None = None
        self._due = time.monotonic() + AFTER_S
        self._lock = threading.RLock()  # of the bar, which a signal may end while it is made
        self._timer = threading.Timer(WORTH_S, self._begin)
        self._part = 0.0  # of what is done now
        self._interrupted = signal.getsignal(signal.SIGINT)

    def __enter__(self) -> Progress:
        """Nothing is shown yet."""
        if self._shown:
            self._interrupted = signal.signal(signal.SIGINT, self._interrupt)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Takes the bar away."""
        self._end()

    def through(self, items: Iterable[Item], marks: int) -> Iterable[Item]:
        """The same items; the bar follows the marks among them.

        Args:
            items: Of a recording.
            marks: How many of them are marks.
        """
        return self._followed(items, marks) if self._shown else items

    def goes_on(self, doing: str) -> None:
        """Something else is done now; how far it is, nobody knows, unless it goes through items."""
        with self._lock:
            self._doing, self._part = doing, 0.0
            if self._bar is not None:
                self._bar.reset(self._bar.task_ids[0], description=doing, total=None)

    def parts(self, done: int, of: int) -> None:
        """So many of so many parts are done."""
        with self._lock:
            self._part = done / of
            self._move()

    def _followed(self, items: Iterable[Item], marks: int) -> Iterable[Item]:
        passed, began = 0, time.monotonic()
        for item in items:
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
            redirect_stdout=False,  # nothing is written meanwhile, and the bar itself goes by sys.stderr
            redirect_stderr=False,
        )
        bar.add_task(self._doing, total=None)
        bar.start()
        console.show_cursor(True)  # who is killed cannot give it back
        return bar

    def _move(self) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], total=1.0, completed=self._part)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._end()
        if callable(self._interrupted):
            self._interrupted(number, frame)

    def _end(self) -> None:
        if not self._shown:
            return
        self._timer.cancel()
        with self._lock:
            self._shown = False
            bar, self._bar = self._bar, None
            if bar is not None:
                bar.stop()
        signal.signal(signal.SIGINT, self._interrupted)

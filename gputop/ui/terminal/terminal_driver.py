"""Textual's driver for a terminal, which may disappear; the end does not wait for the input thread."""

from __future__ import annotations

import os
import select
import signal
import termios
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from io import TextIOWrapper
from typing import IO, Any, cast

from textual.drivers.linux_driver import LinuxDriver

_GONE = 128 + signal.SIGHUP
_MOST_WAITING = 1 << 16  # bytes


class QuickDriver(LinuxDriver):
    """Restores the terminal at the end of the program, and ends the program when the terminal is gone.

    Textual joins its input thread, which takes up to 0.2 s; here that thread ends by itself while probes are
    detached.

    When a terminal disappears, only the processes in its foreground get SIGHUP. Any other one would read the
    end of file in a busy loop and, since Textual's writing thread has died, wait for ever to write. So the
    terminal is polled.

    SIGSTOP stops the process without notice, unlike ctrl+z. After SIGCONT, Textual would enter application
    mode twice, and leave the terminal without echo at the end.

    Both signals are handled in the loop: Textual's own handlers write to the terminal and deadlock if they
    interrupt a write. A terminal that disappears sends SIGCONT and SIGHUP just when blocked writes go on.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._file = cast("TextIOWrapper", TerminalOutput(self._file))
        self._reading: threading.Thread | None = None
        self._watched = False
        self._owned = False  # True in application mode

    def start_application_mode(self) -> None:
        """Enter application mode."""
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if self._key_thread is not None:
            self._key_thread.join()
        self._key_thread = self._reading
        self._owned = True
        if not self._watched:
            self._watched = True
            threading.Thread(target=self._until_gone, name="gputop-terminal", daemon=True).start()

    def _run_input_thread(self) -> None:
        # A key that is discarded between select and read leaves it reading until the next line: as a daemon,
        # it does not keep the program from ending.
        self._reading = threading.Thread(target=super()._run_input_thread, name="textual-input", daemon=True)
        self._reading.start()

    def run_input_thread(self) -> None:
        # a program that shares a non-blocking terminal may have read the key
        while True:
            with suppress(BlockingIOError):
                super().run_input_thread()
                return

    def _until_gone(self) -> None:
        terminal = select.poll()
        terminal.register(self.fileno, 0)  # POLLHUP is always reported
        terminal.poll()
        self.exit_event.set()
        self._soon(partial(self._app.exit, _GONE, return_code=_GONE))

    def _soon(self, do: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(do)

    def disable_input(self) -> None:
        """Stop reading keys; wait for the input thread only if it will start again (ctrl+z)."""
        if not self._app._exit or self.exit_event.is_set():
            super().disable_input()
            return
        signal.signal(signal.SIGWINCH, signal.SIG_DFL)
        self._disable_mouse_support()
        self.exit_event.set()
        try:
            termios.tcflush(self.fileno, termios.TCIFLUSH)
        except termios.error:
            return  # the terminal is gone

    def stop_application_mode(self) -> None:
        """Clear the screen before leaving it: tmux would keep it below the prompt after a resize."""
        self._owned = False
        self.write("\x1b[2J")
        super().stop_application_mode()

    def _sigtstp_application(self, *_: object) -> None:
        """Restore the terminal, unless another program has it, and stop."""
        if self._owned and self._auto_restart:
            self._soon(super()._sigtstp_application)
        else:
            os.kill(os.getpid(), signal.SIGSTOP)

    def _sigcont_application(self, *_: object) -> None:
        """Continue after ctrl+z or SIGSTOP: enter application mode again."""
        self._soon(self._go_on)

    def _go_on(self) -> None:
        if self._owned and self._auto_restart and not self._app._exit:
            self.suspend_application_mode()
            self._must_signal_resume = True
        if self._must_signal_resume:
            super()._sigcont_application()


class TerminalOutput:
    """A writer to a terminal that may be gone, or non-blocking.

    A program that shares the terminal may have made it non-blocking for all. Text without room is written
    later; Python's files would drop it.
    """

    def __init__(self, file: IO[str] | None) -> None:
        assert file is not None
        self._file = file
        self._waiting = bytearray()

    def write(self, text: str) -> None:
        self._waiting += text.encode(errors="replace")
        if len(self._waiting) >= _MOST_WAITING:
            self.flush()

    def flush(self) -> None:
        with suppress(OSError):
            while self._waiting:
                try:
                    del self._waiting[: os.write(self.fileno(), self._waiting)]
                except BlockingIOError:
                    room = select.poll()
                    room.register(self.fileno(), select.POLLOUT)
                    room.poll()
        self._waiting.clear()

    def fileno(self) -> int:
        return self._file.fileno()

"""Textual's driver for a terminal, which may go away; at the end no thread waits for its input thread."""

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
    """Restores the terminal as the program ends, and ends the program when the terminal has gone.

    Textual joins its input thread, which looks for the end every 0.1 s and then waits 0.1 s more. At the
    end of the program need not wait for that: the thread ends by itself while probes are detached.

    A terminal that has gone is told to the processes in its foreground by SIGHUP. Whoever is not one of them
    (another session, a window that passes no signal on) would read its end again and again on a CPU of its
    own, and, as the thread that writes has died of it, wait for ever for room in what is to be written.

    Whoever is held by SIGSTOP is not asked before, as by ctrl+z: Textual would take the terminal a second
    time when it goes on, and leave it at the end as the first time had made it, where no key is shown.

    Both signals are heeded in the loop. Textual writes to the terminal where the signal is met; if that is in
    the middle of a write, it waits for itself for ever. A terminal that goes sends SIGCONT as well as SIGHUP,
    just when the writes that it has kept waiting go on.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._file = cast("TextIOWrapper", TerminalOutput(self._file))
        self._watched = False
        self._owned = False  # the terminal, by application mode

    def start_application_mode(self) -> None:
        """Enter application mode."""
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self._owned = True
        if not self._watched:
            self._watched = True
            threading.Thread(target=self._until_gone, name="gputop-terminal", daemon=True).start()

    def run_input_thread(self) -> None:
        # where others have made the terminal non-blocking they may have read the key meanwhile
        while True:
            with suppress(BlockingIOError):
                super().run_input_thread()
                return

    def _until_gone(self) -> None:
        terminal = select.poll()
        terminal.register(self.fileno, 0)  # its end is reported in any case
        terminal.poll()
        self.exit_event.set()  # no key can come
        self._soon(partial(self._app.exit, _GONE, return_code=_GONE))

    def _soon(self, do: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop has ended: so does the screen
            self._loop.call_soon_threadsafe(do)

    def disable_input(self) -> None:
        """Stop reading keys; wait for the thread only when it will be started again (after ctrl+z)."""
        if not self._app._exit or self.exit_event.is_set():
            super().disable_input()
            return
        signal.signal(signal.SIGWINCH, signal.SIG_DFL)
        self._disable_mouse_support()
        self.exit_event.set()
        try:
            termios.tcflush(self.fileno, termios.TCIFLUSH)
        except termios.error:
            return  # the terminal is gone; there is nothing to flush

    def stop_application_mode(self) -> None:
        """Clear before leaving: tmux keeps the last picture below the prompt after a resize."""
        self._owned = False
        self.write("\x1b[2J")
        super().stop_application_mode()

    def _sigtstp_application(self, *_: object) -> None:
        """Restore the terminal and stop; at once where another program has the terminal."""
        if self._owned and self._auto_restart:
            self._soon(super()._sigtstp_application)
        else:
            os.kill(os.getpid(), signal.SIGSTOP)

    def _sigcont_application(self, *_: object) -> None:
        """Go on: take the terminal that was given back for ctrl+z; or, after SIGSTOP, that others had."""
        self._soon(self._go_on)

    def _go_on(self) -> None:
        if self._owned and self._auto_restart and not self._app._exit:
            self.suspend_application_mode()
            self._must_signal_resume = True
        if self._must_signal_resume:
            super()._sigcont_application()


class TerminalOutput:
    """Accepts what is written to a terminal, also when that has gone, or another program's mode is in force.

    A program that shares the terminal may have made it non-blocking for all of them. What has no room then is
    written once there is some: Python's files would drop it.
    """

    def __init__(self, file: IO[str] | None) -> None:
        assert file is not None  # a terminal, as the screen is
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

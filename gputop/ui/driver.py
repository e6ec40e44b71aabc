"""Textual's driver for a terminal, without the wait for its input thread at the end."""

from __future__ import annotations

import signal
import termios

from textual.drivers.linux_driver import LinuxDriver


class QuickDriver(LinuxDriver):
    """Gives the terminal back at once when the program ends.

    Textual joins its input thread, which looks for the end every 0.1 s and then waits 0.1 s more. At the
    end of the program nobody needs to wait for that: the thread ends by itself while probes are detached.
    """

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
        self.write("\x1b[2J")
        super().stop_application_mode()

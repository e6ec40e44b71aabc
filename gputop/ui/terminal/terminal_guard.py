"""Watches over the terminal while the screen is up: what a crash leaves undone, another process undoes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path
from types import TracebackType

_SCRIPT = Path(__file__).with_name("last_resort.py")
_KEYS = 6  # place in what tcgetattr returns


class TerminalGuard:
    """While it is entered, a crash gives the terminal back: see ``last_resort.py``.

    Where no further process can be had there is no guard, and the screen comes all the same.
    """

    def __init__(self) -> None:
        self._pipe = -1
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> TerminalGuard:
        """Start the process; does not wait for it."""
        with suppress(OSError, termios.error):
            self._start()
        return self

    def _start(self) -> None:
        modes = termios.tcgetattr(0)
        before = [*modes[:_KEYS], [key if isinstance(key, int) else key[0] for key in modes[_KEYS]]]
        ended, self._pipe = os.pipe()
        try:
            # of a session of its own: what is typed to end gputop is not for it
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_SCRIPT), str(ended), "1", json.dumps(before)],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(ended,),
                start_new_session=True,
            )
        finally:
            os.close(ended)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The terminal is as it was: the process has nothing to do."""
        if self._pipe >= 0:
            with suppress(OSError):
                os.write(self._pipe, b"q")
            os.close(self._pipe)
            self._pipe = -1
        if self._process is not None:
            self._process.wait()

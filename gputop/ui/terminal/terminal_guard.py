"""Has a second process restore the terminal after a crash."""

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
    """A context in which a crash restores the terminal, by ``last_resort.py``; none if that cannot start."""

    def __init__(self) -> None:
        self._pipe = -1
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> TerminalGuard:
        """Start the process, without waiting for it."""
        with suppress(OSError, termios.error):
            self._start()
        return self

    def _start(self) -> None:
        modes = termios.tcgetattr(0)
        before = [*modes[:_KEYS], [key if isinstance(key, int) else key[0] for key in modes[_KEYS]]]
        ended, self._pipe = os.pipe()
        try:
            # in a session of its own, so that ^C does not end it
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
        """End the process: the terminal is restored."""
        if self._pipe >= 0:
            with suppress(OSError):
                os.write(self._pipe, b"q")
            os.close(self._pipe)
            self._pipe = -1
        if self._process is not None:
            self._process.wait()

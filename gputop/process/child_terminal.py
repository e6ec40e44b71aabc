"""A pseudo-terminal for the observed command, so that it has no access to ours.

A process with a descriptor of a terminal can read its input and change its modes, and with it as controlling
terminal can type into it. The command may run as another user, so it gets a terminal of its own, and a small
process relays between the two.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import select
import termios
from collections.abc import Iterable
from contextlib import suppress

from gputop.process import terminal_relay

_ENDING_S = 2.0  # for a slow terminal to show the last output


def ours(streams: Iterable[int]) -> list[int]:
    """Return the descriptors that are a terminal."""
    return [stream for stream in streams if os.isatty(stream)]


class ChildTerminal:
    """The command's terminal, and the process that relays it.

    It must be made before the command is forked, and before there are threads.

    Args:
        reads: Whether our standard input is relayed to it.
        shown: Our terminal, which shows its output.
        owner: User who may open it by name; None: gputop's.
    """

    def __init__(self, *, reads: bool, shown: int, owner: int | None) -> None:
        self.descriptor, self._inner = os.openpty()
        with suppress(termios.error):
            modes = termios.tcgetattr(shown)
            modes[1] &= ~termios.ONLCR  # ours does that to what is relayed
            termios.tcsetattr(self._inner, termios.TCSANOW, modes)
        if owner is not None:
            os.fchown(self._inner, owner, -1)
        os.fchmod(self._inner, 0o600)
        ended, self._life = os.pipe()
        self._done, done = os.pipe()
        gputop = os.getpid()
        self._relay = os.fork()
        if self._relay == 0:
            for descriptor in (self._inner, self._life, self._done):
                os.close(descriptor)
            terminal_relay.run(gputop, self.descriptor, shown, reads=reads, ended=ended, done=done)
        os.close(ended)
        os.close(done)
        atexit.register(self.close)

    def adopt(self, streams: Iterable[int]) -> None:
        """In the command, which leads a session: make it the controlling terminal and these streams."""
        fcntl.ioctl(self._inner, termios.TIOCSCTTY, 0)
        for stream in streams:
            os.dup2(self._inner, stream)

    def started(self) -> None:
        """Close the inner end, which only the forked command keeps."""
        os.close(self._inner)

    def close(self) -> None:
        """Wait until all output is shown and our terminal is restored.

        Processes that the command left behind may go on printing.
        """
        life, self._life = self._life, -1
        if life < 0:
            return
        atexit.unregister(self.close)
        os.close(life)
        select.select([self._done], [], [], _ENDING_S)
        os.close(self._done)
        with suppress(ChildProcessError):
            os.waitpid(self._relay, os.WNOHANG)

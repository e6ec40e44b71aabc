"""A terminal of its own for the command that is watched, so that it has none of ours.

Whoever has a descriptor of a terminal can read what is typed there and change how it works, and whose
controlling terminal it is can type into it. The command may be another user's, so it gets a pseudo-terminal;
a small process relays between that and ours.
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

_ENDING_S = 2.0  # for a terminal that takes what was printed last slowly


def ours(streams: Iterable[int]) -> list[int]:
    """Those of these descriptors that are a terminal."""
    return [stream for stream in streams if os.isatty(stream)]


class ChildTerminal:
    """The command's terminal, and the process that relays it.

    To be made before the command is forked, and before there are threads.

    Args:
        reads: Whether what is typed at our standard input goes there.
        shown: Our terminal, which shows what is printed there.
        owner: User who may open it by name; None: as gputop.
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
        """In the command, which leads a session: takes it as its controlling terminal, for these streams."""
        fcntl.ioctl(self._inner, termios.TIOCSCTTY, 0)
        for stream in streams:
            os.dup2(self._inner, stream)

    def started(self) -> None:
        """The command has been forked: it alone holds the inner end now."""
        os.close(self._inner)

    def close(self) -> None:
        """Waits until all that was printed is shown and our terminal is as it was.

        What the command left behind may go on printing.
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

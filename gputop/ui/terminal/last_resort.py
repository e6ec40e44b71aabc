"""Restores the terminal when gputop could not: a small process of its own that outlives a crash.

Run as a script by ``terminal_guard.py``. A library that crashes, a signal that cannot be caught and a
machine without memory leave no time for anything; a terminal that was left raw shows nothing of what is
typed. Reads a pipe until it ends: a byte before means that gputop has done it itself. Knows nothing of
gputop, so that it starts fast and stays small.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import termios

# what Textual turns on: the other screen, no cursor, the mouse, pastes, the focus, keys told apart
_UNDO = b"\x1b[0m\x1b[<u" + b"".join(
    b"\x1b[?%dl" % mode for mode in (1000, 1002, 1003, 1015, 1006, 2004, 1004, 1049)
)
_CURSOR = b"\x1b[?25h"
_MESSAGE = (
    b"gputop: gputop was killed (by a crash in a library, or by a signal); "
    b"the terminal has been restored, and a recording is readable up to its last second\r\n"
)
_LOCAL = 3  # place in what tcgetattr returns


def main(pipe: int, terminal: int, before: str) -> None:
    """Wait for the end of gputop.

    Args:
        pipe: Ends when gputop does.
        terminal: What the screen is on.
        before: How it was, as ``tcgetattr`` tells it, in JSON.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)  # they mean gputop, whose end ends us
    if os.read(pipe, 1):
        return
    now = termios.tcgetattr(terminal)[_LOCAL]
    if not now & (termios.ICANON | termios.ISIG):  # as the screen makes it; a shell may have been faster
        termios.tcsetattr(terminal, termios.TCSANOW, json.loads(before))
    os.write(terminal, _UNDO + _CURSOR + _MESSAGE)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    except (OSError, termios.error):
        sys.exit(1)  # the terminal has gone as well

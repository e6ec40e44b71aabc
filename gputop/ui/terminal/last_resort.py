"""Restores the terminal after a crash of gputop, in a small process of its own.

Run as a script by ``terminal_guard.py``. A crash in a library, SIGKILL and a lack of memory leave the
terminal raw, without echo. Reads a pipe until its end; a byte before it means that gputop has restored the
terminal. Imports nothing of gputop, so that it starts fast and stays small.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import termios

# Textual's modes: alternate screen, no cursor, mouse, bracketed paste, focus, kitty keys
_UNDO = b"\x1b[0m\x1b[<u" + b"".join(
    b"\x1b[?%dl" % mode for mode in (1000, 1002, 1003, 1015, 1006, 2004, 1004, 1049)
)
_CURSOR = b"\x1b[?25h"
_MESSAGE = (
    b"gputop: ended by a crash in a library, or by a signal; "
    b"the terminal has been restored, and a recording is readable up to its last second\r\n"
)
_LOCAL = 3  # place in what tcgetattr returns


def main(pipe: int, terminal: int, before: str) -> None:
    """Wait for the end of gputop, then restore the terminal if needed.

    Args:
        pipe: Ends when gputop does.
        terminal: The terminal's descriptor.
        before: Its former attributes (``tcgetattr``), in JSON.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)  # they are for gputop
    if os.read(pipe, 1):
        return
    now = termios.tcgetattr(terminal)[_LOCAL]
    if not now & (termios.ICANON | termios.ISIG):  # still raw: a shell may have restored it
        termios.tcsetattr(terminal, termios.TCSANOW, json.loads(before))
    os.write(terminal, _UNDO + _CURSOR + _MESSAGE)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    except (OSError, termios.error):
        sys.exit(1)  # the terminal is gone, too

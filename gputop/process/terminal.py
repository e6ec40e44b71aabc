"""Capabilities of the terminal, and its status line."""

from __future__ import annotations

import locale
import os
import shutil
import sys
import termios
from contextlib import suppress
from typing import TextIO

from gputop.errors import CommandError

WEB_DRIVER = "textual.drivers.web_driver:WebDriver"


def has_terminal() -> bool:
    """True if standard input and output are a terminal."""
    return bool(sys.stdin) and sys.stdin.isatty() and sys.stdout.isatty()


def in_browser() -> bool:
    """True if ``gputop web`` started this process, whose screen a browser draws."""
    return os.environ.get("TEXTUAL_DRIVER") == WEB_DRIVER


def require_terminal() -> None:
    """Raise CommandError unless the screen has a terminal, or a user's browser."""
    if not has_terminal() and not in_browser():
        raise CommandError("the screen needs a terminal; use --once or --json, or gputop record")


_PLAIN = ("C", "POSIX")


def prefers_ascii() -> bool:
    """True if the locale has no block characters.

    Python switches the C locale to UTF-8, so the variables as set by the user come first.
    """
    typed = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "")
    coerced = typed == "C.UTF-8" and not os.environ.get("LC_ALL") and os.environ.get("LANG") in _PLAIN
    return typed in _PLAIN or coerced or "utf" not in locale.getpreferredencoding(False).lower()


def terminal_width(stream: TextIO) -> int | None:
    """Return the columns of a terminal; None for a log or a pipe."""
    if not stream.isatty():
        return None
    return shutil.get_terminal_size().columns


class StatusLine:
    """One line on standard error that is rewritten in place; nothing if that is no terminal.

    For a command that writes to the same terminal the last row is reserved, as apt does. While the command
    controls the terminal (an editor or a shell with line editing: no canonical mode) nothing is written.

    Args:
        shared: Whether a command writes to the terminal.
        terminal: The command's own terminal, whose modes apply; None: ours.
    """

    def __init__(self, *, shared: bool, terminal: int | None = None) -> None:
        self._stream = sys.stderr
        self._shared = shared
        self._terminal = terminal
        self._rows = 0  # of the terminal when its last row was reserved

    def write(self, text: str) -> None:
        """Replace the line's text."""
        if not self._stream.isatty():
            return
        size = os.get_terminal_size(self._stream.fileno())
        text = text[: max(size.columns - 1, 1)]
        if not self._shared:
            self._put(f"\r\x1b[K{text}")
        elif self._canonical():
            if self._rows != size.lines:
                self._rows = size.lines
                # a fresh line above the last row, then scrolling stops there
                self._put(f"\n\x1b[A\x1b7\x1b[1;{size.lines - 1}r\x1b8")
            self._put(f"\x1b7\x1b[{size.lines};1H\x1b[K{text}\x1b8")

    def close(self) -> None:
        """End the line and release the last row."""
        if not self._stream.isatty():
            return
        if not self._shared:
            self._put("\n")
        elif self._rows:
            self._put(f"\x1b7\x1b[r\x1b[{self._rows};1H\x1b[K\x1b8")

    def _canonical(self) -> bool:
        try:
            modes = termios.tcgetattr(self._stream.fileno() if self._terminal is None else self._terminal)
            return bool(modes[3] & termios.ICANON)
        except termios.error:
            return False

    def _put(self, text: str) -> None:
        with suppress(OSError):  # the terminal has gone; other output does not depend on it
            self._stream.write(text)
            self._stream.flush()

"""What the terminal can do."""

from __future__ import annotations

import locale
import os
import shutil
import sys
from typing import TextIO

from gputop.errors import CommandError


def require_terminal() -> None:
    """Raises CommandError unless standard input and output are a terminal."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandError("the screen needs a terminal; use --once or --json, or gputop record")


def prefers_ascii() -> bool:
    """Whether the locale has no block characters."""
    return "utf" not in locale.getpreferredencoding(False).lower()


def terminal_width(stream: TextIO) -> int | None:
    """Columns when the stream is a terminal, else None: a log or a pipe has no width."""
    if not stream.isatty():
        return None
    return shutil.get_terminal_size().columns


def status_line(stream: TextIO, text: str) -> None:
    """Rewrites one line on a terminal; does nothing elsewhere, so that logs stay clean."""
    if stream.isatty():
        width = max(os.get_terminal_size(stream.fileno()).columns - 1, 20)
        stream.write("\r" + text[:width].ljust(width))
        stream.flush()

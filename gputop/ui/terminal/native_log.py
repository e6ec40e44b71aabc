"""Holds back what native libraries write to descriptors 1 and 2 while the screen is up."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from types import TracebackType
from typing import IO

KEPT_BYTES = 1 << 20


class NativeLog:
    """A context around the screen that redirects descriptors 1 and 2 to a file.

    The screen draws on a copy of the terminal's descriptor, so that messages of drivers do not garble it, and
    are kept.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile("w+b", prefix="gputop-native-")  # noqa: SIM115 (lives with the guard)
        self._terminal: IO[str] | None = None
        self._saved: list[tuple[int, int]] = []
        self._streams = (sys.__stdout__, sys.__stderr__)
        self._seen = 0
        self._lines = 0

    def __enter__(self) -> NativeLog:
        """Redirect 1 and 2 to the file; Textual gets a copy of the terminal's descriptor."""
        for stream in self._streams:
            if stream is not None:
                stream.flush()
        self._terminal = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
        self._saved = [(fd, os.dup(fd)) for fd in (1, 2)]
        for fd in (1, 2):
            os.dup2(self._file.fileno(), fd)
        # Textual draws on sys.__stderr__ and reads the terminal's size from sys.__stdout__
        sys.__stdout__ = sys.__stderr__ = self._terminal  # type: ignore[misc]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.__stdout__, sys.__stderr__ = self._streams  # type: ignore[misc]
        for fd, saved in self._saved:
            os.dup2(saved, fd)
            os.close(saved)
        self._saved = []
        if self._terminal is not None:
            with suppress(OSError):  # the terminal is gone
                self._terminal.close()

    def count(self) -> int:
        """How many lines were held back so far."""
        size = os.fstat(self._file.fileno()).st_size
        while self._seen < size:
            block = os.pread(self._file.fileno(), min(size - self._seen, 65_536), self._seen)
            if not block:
                break
            self._seen += len(block)
            self._lines += block.count(b"\n")
        return self._lines

    def lines(self) -> list[str]:
        """Return the newest lines."""
        size = os.fstat(self._file.fileno()).st_size
        start = max(size - KEPT_BYTES, 0)
        return os.pread(self._file.fileno(), KEPT_BYTES, start).decode("utf-8", "replace").splitlines()

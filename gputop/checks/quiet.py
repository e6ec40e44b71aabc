"""Holds back what libraries that are tried write to standard error."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_KEPT_LINES = 40


@contextmanager
def held_back() -> Iterator[Callable[[], list[str]]]:
    """Standard error goes into a file meanwhile; call what it yields for the last lines of it."""
    lines: list[str] = []
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile("w+b") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield lambda: lines
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            lines += file.read().decode(errors="replace").splitlines()[-_KEPT_LINES:]

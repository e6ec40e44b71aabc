"""Holds back what libraries that are tried write to standard error."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_KEPT_LINES = 40


@contextmanager
def held_back() -> Iterator[Callable[[], list[str]]]:
    """Standard error goes into a file meanwhile; call what it yields for the last lines of it."""
    lines: list[str] = []
    sys.stderr.flush()
    try:
        file = tempfile.TemporaryFile("w+b")  # noqa: SIM115
        saved = os.dup(2)
    except OSError:  # no place for it: then it is seen at once
        yield lambda: lines
        return
    with file:
        os.dup2(file.fileno(), 2)
        try:
            yield lambda: lines
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            with suppress(OSError):
                file.seek(0)
                lines += file.read().decode(errors="replace").splitlines()[-_KEPT_LINES:]

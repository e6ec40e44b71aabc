"""Standard input, output and errors are open, also where they were closed: else a file gets their number."""

from __future__ import annotations

import os
import sys
from typing import TextIO

# what is written to an output that is not there fails and is told, instead of being thrown away
_FLAGS = {0: os.O_RDONLY, 1: os.O_RDONLY, 2: os.O_WRONLY}


def complete() -> None:
    """Opens the null device in the place of what is closed."""
    for number, flags in _FLAGS.items():
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)  # the lowest number that is free: this one
    sys.stdin = sys.stdin or _stream(0, "r")
    sys.stdout = sys.stdout or _stream(1, "w")
    sys.stderr = sys.stderr or _stream(2, "w")


def _stream(number: int, mode: str) -> TextIO:
    return open(number, mode, encoding="utf-8", errors="surrogateescape", closefd=False)  # type: ignore[return-value]

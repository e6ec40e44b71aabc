"""Messages on standard error and text on standard output, safe for a terminal.

They hold names of files and processes, which other users choose.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from gputop.errors import OutputError


def print_message(text: str) -> None:
    """Print a sentence to stderr, if that is open."""
    _write(f"gputop: {_harmless(text)}\n")


def show(text: str) -> None:
    """Print lines, with control characters escaped.

    Raises:
        OutputError: Standard output cannot be written.
        BrokenPipeError: The reader is gone.
    """
    put("\n".join(map(_harmless, text.split("\n"))))


def put(text: str) -> None:
    """Write data for programs to standard output. Raises as ``show``."""
    with writing():
        sys.stdout.write(text)
        sys.stdout.flush()


@contextmanager
def writing() -> Iterator[None]:
    """Context manager: turn an OSError into an OutputError. Raises as ``show``."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(
            f"the output cannot be written: {error.strerror}; nothing else was harmed"
        ) from error


def silence(number: int) -> None:
    """Discard everything further on standard output (1) or error (2), also Python's flush at exit."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
    except OSError:
        if number == 1:
            sys.stdout = io.StringIO()
        else:
            sys.stderr = io.StringIO()
        return
    os.dup2(null, number)
    os.close(null)


def print_traceback(error: BaseException) -> None:
    """Print an error's traceback, as Python would, for debugging."""
    for part in traceback.format_exception(error):
        # a place has a line of its own for the code there; a message is one, whatever is in it
        lines = part.splitlines() if part.startswith("  File ") else [part.strip("\n")]
        for line in lines:
            _write(f"{_harmless(line)}\n")


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        silence(2)


def _harmless(text: str) -> str:
    try:
        from gputop.format import escape_text  # an import that commands without output need not pay
    except Exception:  # a failing import may be the error to be printed
        return ascii(text)[1:-1]
    return escape_text(text)

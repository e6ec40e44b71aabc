"""Reads a trace of another tool; whose it is, its content tells, not its name."""

from __future__ import annotations

import os
import stat

from gputop.errors import SessionNotFoundError, SessionUnreadableError
from gputop.imports.chrome import read_chrome
from gputop.imports.ingero import is_ingero, read_ingero
from gputop.imports.nsys import is_nsys, read_nsys
from gputop.imports.recorded import ImportFileError, Trace
from gputop.imports.tables import Tables

_SQLITE, _GZIP = b"SQLite format 3\x00", b"\x1f\x8b"


def read_trace(path: str) -> Trace:
    """What a trace holds.

    Raises:
        SessionNotFoundError: There is no such file.
        SessionUnreadableError: It cannot be read.
        ImportFileError: It is none that gputop knows, or is damaged.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise SessionUnreadableError(f"{path} is not a regular file: name a trace")
        with open(path, "rb") as file:
            head = file.read(4096)
    except FileNotFoundError as error:
        raise SessionNotFoundError(f"there is no file {path}: check the name") from error
    except OSError as error:
        raise SessionUnreadableError(f"{path} cannot be read: {error.strerror}") from error
    if head.startswith(_SQLITE):
        with Tables(path) as tables:
            if is_ingero(tables):
                return read_ingero(tables)
            if is_nsys(tables):
                return read_nsys(tables)
        raise ImportFileError(f"{path} is an SQLite database, but neither Ingero's nor one of nsys export")
    if head.startswith(_GZIP) or head.lstrip()[:1] in (b"{", b"["):
        return read_chrome(path)
    raise ImportFileError(
        f"{path} is no trace that gputop can import: it takes Ingero's databases, Chrome traces of "
        "torch.profiler (.json, .json.gz), and what nsys export --type sqlite writes"
    )

"""Reads a trace of another tool; whose it is, its content tells, not its name."""

from __future__ import annotations

import os
import shlex
import stat

from gputop.errors import SessionNotFoundError, SessionUnreadableError
from gputop.imports.chrome import read_chrome
from gputop.imports.ingero import is_ingero, read_ingero
from gputop.imports.nsys import is_nsys, read_nsys
from gputop.imports.recorded import ImportFileError, Trace
from gputop.imports.tables import Tables
from gputop.library.foreign import GZIP, named, recognise
from replay.ownership import is_session

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
                trace = read_nsys(tables)
                trace.contents = named("table", sorted(tables.columns))
                return trace
            found = named("table", sorted(tables.columns))
        raise ImportFileError(
            f"{path} is an SQLite database with {found}: Ingero's has a table events with timestamp, source, "
            "op and duration, that of nsys export has StringIds and CUPTI_ACTIVITY_KIND_…"
        )
    if not head:
        raise ImportFileError(f"{path} is empty: was its writing interrupted?")
    if is_session(head):
        raise ImportFileError(
            f"{path} is a gputop recording already: see it with: gputop explain {shlex.quote(path)}"
        )
    known = recognise(path)
    packed = head.startswith(_GZIP) and (known is None or known.what != GZIP)
    if packed or head.lstrip()[:1] in (b"{", b"["):
        return read_chrome(path)
    what = f"{path} is {known.what}" if known is not None else f"{path} is of no kind that gputop knows"
    raise ImportFileError(
        f"{what}, no trace that gputop can import: it takes Ingero's databases, Chrome traces of "
        "torch.profiler (.json, .json.gz), and what nsys export --type sqlite writes"
        + (f"; {known.command}" if known is not None and known.command else "")
    )

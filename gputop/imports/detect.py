"""Reads a trace of another tool, which is recognised by content, not by name."""

from __future__ import annotations

import os
import shlex
import stat
import tempfile
from typing import Final

from gputop.api.foreign_files import named, recognise
from gputop.errors import SessionNotFoundError, SessionUnreadableError
from gputop.imports.chrome import read_chrome
from gputop.imports.gathered import GatheredTrace, ImportFileError
from gputop.imports.ingero import is_ingero, read_ingero
from gputop.imports.nsys import is_nsys, read_nsys
from gputop.imports.opened import head_of, is_packed, unpacked
from gputop.imports.sqlite_tables import Tables
from gputop.imports.wprof import is_wprof, read_wprof
from replay.folders import opened
from replay.ownership import is_session

_SQLITE: Final = b"SQLite format 3\x00"


def read_trace(path: str, folder: str | None = None) -> GatheredTrace:
    """Return the content of a trace.

    Args:
        folder: For temporary files, as large as the trace; None: the system's.

    Raises:
        SessionNotFoundError: There is no such file.
        SessionUnreadableError: It cannot be read.
        ImportFileError: Its format is unknown, or it is damaged.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise SessionUnreadableError(f"{path} is not a regular file: name a trace")
        with os.fdopen(opened(path), "rb") as file:
            head = file.read(4096)
    except FileNotFoundError as error:
        raise SessionNotFoundError(f"there is no file {path}: check the name") from error
    except OSError as error:
        raise SessionUnreadableError(f"{path} cannot be read: {error.strerror}") from error
    if not head:
        raise ImportFileError(f"{path} is empty: was its writing interrupted?")
    if is_session(head):
        raise ImportFileError(
            f"{path} is a gputop recording already: see it with: gputop explain {shlex.quote(path)}"
        )
    packed = is_packed(head)
    if packed:
        head = head_of(path)
    if head.startswith(_SQLITE) and packed:
        with tempfile.NamedTemporaryFile(dir=folder) as file:  # SQLite needs random access
            with unpacked(path) as pieces:
                file.writelines(pieces)
            file.flush()
            return _database(file.name, folder)
    if head.startswith(_SQLITE):
        return _database(path, folder)
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        return read_wprof(path, folder) if is_wprof(head) else read_chrome(path, folder)
    known = recognise(path)
    what = f"{path} is {known.what}" if known is not None else f"{path} is of no kind that gputop knows"
    raise ImportFileError(
        f"{what}, no trace that gputop can import: it imports Chrome traces of torch.profiler (.json) and "
        "the output of nsys export --type sqlite, Ingero and wprof -R -J, also packed with gzip, zstd or zip"
        + (f"; {known.command}" if known is not None and known.command else "")
    )


def _database(path: str, folder: str | None) -> GatheredTrace:
    with Tables(path) as tables:
        if is_ingero(tables):
            return read_ingero(tables, folder)
        found = named("table", sorted(tables.columns))
        if is_nsys(tables):
            trace = read_nsys(tables, folder)
            trace.contents = found
            return trace
    raise ImportFileError(
        f"{path} is an SQLite database with {found}: Ingero's has a table events with timestamp, source, "
        "op and duration, that of nsys export has StringIds and CUPTI_ACTIVITY_KIND_…"
    )

"""Reads a trace of another tool; whose it is, its content tells, not its name."""

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
    """What a trace holds.

    Args:
        folder: For temporary files, of which a large trace needs as much as it is large; None: the system's.

    Raises:
        SessionNotFoundError: There is no such file.
        SessionUnreadableError: It cannot be read.
        ImportFileError: It is none that gputop knows, or is damaged.
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
    if head.startswith(_SQLITE):
        return _unpacked_database(path, folder) if packed else _database(path, folder)
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        return read_wprof(path, folder) if is_wprof(head) else read_chrome(path, folder)
    known = recognise(path)
    what = f"{path} is {known.what}" if known is not None else f"{path} is of no kind that gputop knows"
    raise ImportFileError(
        f"{what}, no trace that gputop can import: it takes Chrome traces of torch.profiler (.json), what "
        "nsys export --type sqlite writes, Ingero's databases, what wprof -R -J writes; all of it "
        "packed with gzip, zstd, zip" + (f"; {known.command}" if known is not None and known.command else "")
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


def _unpacked_database(path: str, folder: str | None) -> GatheredTrace:
    """SQLite reads files at any place, so that it has to lie unpacked."""
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        with unpacked(path) as pieces:
            file.writelines(pieces)
        file.flush()
        return _database(file.name, folder)

"""Opens session files, with the library's own errors."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from gputop.errors import (
    AccountingError,
    GputopError,
    SessionDamagedError,
    SessionNotFoundError,
    SessionTooNewError,
    SessionUnreadableError,
)
from probes.source import Item
from replay.coding.file_format import (
    DamagedError,
    ForeignError,
    MissingFileError,
    NewerError,
    SessionError,
)
from replay.reader import SessionReader

_LOG = logging.getLogger(__name__)
_KINDS: tuple[tuple[type[SessionError], type[GputopError]], ...] = (
    (MissingFileError, SessionNotFoundError),
    (DamagedError, SessionDamagedError),
    (NewerError, SessionTooNewError),
)


class Progress(Protocol):
    """Progress of the work; ``gputop.commands.progress`` draws a bar.

    Attributes:
        stopped: True if the work is to end with its result so far; ``through`` ends then.
    """

    stopped: bool

    def through(self, items: Iterable[Item], marks: int) -> Iterable[Item]:
        """Yield the items, of which so many are marks, and count them."""

    def parts(self, done: int, of: int) -> None:
        """Report finished parts, and their total."""

    def goes_on(self, doing: str) -> None:
        """Report the next phase of the work."""


class _Silent:
    """No reports, no stop."""

    stopped = False

    def through(self, items: Iterable[Item], marks: int) -> Iterable[Item]:
        return items

    def parts(self, done: int, of: int) -> None:
        pass

    def goes_on(self, doing: str) -> None:
        pass


SILENT: Final[Progress] = _Silent()


def open_file(path: str) -> SessionReader:
    """Open a session file, or a folder of segments, with at least one frame.

    Raises:
        SessionNotFoundError: There is no such file.
        SessionUnreadableError: It may not or cannot be read.
        SessionDamagedError: It is no session, or holds nothing to show.
        SessionTooNewError: A newer gputop recorded it.
    """
    try:
        if os.path.isdir(path):
            from replay.segments import SegmentsReader  # also writes, which no other file needs here

            reader: SessionReader = SegmentsReader(path)
        else:
            reader = SessionReader(path)
    except SessionError as error:
        kind = next((ours for theirs, ours in _KINDS if isinstance(error, theirs)), SessionUnreadableError)
        raise kind(_reason(path, error)) from error
    if len(reader.marks) == 0:
        reader.close()
        raise SessionDamagedError(f"{path} holds no complete frame: the recording ended before its first one")
    return reader


def _reason(path: str, error: SessionError) -> str:
    """The problem; of another program's file what it is, and the command for it."""
    if not (isinstance(error, ForeignError) or os.path.isdir(path)):
        return str(error)
    from gputop.api.foreign_files import recognise  # not needed for recordings

    known = recognise(path)
    return known.sentence(path) if known is not None else str(error)


def interrupted(until_ns: int, duration_ns: int) -> str:
    """Return the note of an interrupted report; times in ns from the start of the recording."""
    return (
        f"interrupted: this covers the first {until_ns / 1e9:.1f} s of {duration_ns / 1e9:.1f} s and nothing "
        "of the rest"
    )


@contextmanager
def understood(path: str) -> Iterator[None]:
    """Turn exceptions by intact but invalid data into ``SessionDamagedError``.

    Files are untrusted: a checksum proves that nothing was damaged, not that gputop wrote it.
    """
    try:
        yield
    except AccountingError as error:
        if os.environ.get("GPUTOP_TRACEBACK"):
            raise
        _LOG.exception("the times of %s contradict each other", path)
        raise SessionDamagedError(
            f"{path} holds times that contradict each other ({error}); was it edited, or its machine's clock "
            "broken? If gputop recorded it, please report it"
        ) from error
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError) as error:
        if os.environ.get("GPUTOP_TRACEBACK"):
            raise
        _LOG.exception("%s is not understood", path)
        raise SessionDamagedError(
            f"{path} holds data that this gputop does not understand ({type(error).__name__}: {error}); "
            "was it made by another program?"
        ) from error

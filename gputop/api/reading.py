"""Opens session files for everybody above, and says in errors of the library's own what is wrong with one."""

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
    """Reports how far the work is; ``gputop.commands.progress`` draws a bar of it.

    Attributes:
        stopped: The work is to end with what is known; ``through`` ends then.
    """

    stopped: bool

    def through(self, items: Iterable[Item], marks: int) -> Iterable[Item]:
        """The same items, of which so many are marks, as they are taken."""

    def parts(self, done: int, of: int) -> None:
        """So many of so many parts are done."""

    def goes_on(self, doing: str) -> None:
        """Something else is done now."""


class _Silent:
    """Reports nothing, and stops nothing."""

    stopped = False

    def through(self, items: Iterable[Item], marks: int) -> Iterable[Item]:
        return items

    def parts(self, done: int, of: int) -> None:
        pass

    def goes_on(self, doing: str) -> None:
        pass


SILENT: Final[Progress] = _Silent()


def open_file(path: str) -> SessionReader:
    """Opens a session file, or a folder of segments, that holds at least one frame.

    Raises:
        SessionNotFoundError: There is no such file.
        SessionUnreadableError: It may not or cannot be read.
        SessionDamagedError: It is no session, or holds nothing to show.
        SessionTooNewError: A newer gputop recorded it.
    """
    try:
        reader = _segments(path) if os.path.isdir(path) else SessionReader(path)
    except SessionError as error:
        kind = next((ours for theirs, ours in _KINDS if isinstance(error, theirs)), SessionUnreadableError)
        raise kind(_reason(path, error)) from error
    if len(reader.marks) == 0:
        reader.close()
        raise SessionDamagedError(f"{path} holds no complete frame: the recording ended before its first one")
    return reader


def _reason(path: str, error: SessionError) -> str:
    """What is wrong; of another program's file what it is, and what to type for it."""
    if not (isinstance(error, ForeignError) or os.path.isdir(path)):
        return str(error)
    from gputop.api.foreign_files import recognise  # recordings need none of it

    known = recognise(path)
    return known.sentence(path) if known is not None else str(error)


def _segments(path: str) -> SessionReader:
    from replay.segments import SegmentsReader  # it writes, too, which no other file needs here

    return SegmentsReader(path)


def interrupted(until_ns: int, duration_ns: int) -> str:
    """The note of a report that is of a part only; ns from the start of the recording."""
    return (
        f"interrupted: this covers the first {until_ns / 1e9:.1f} s of {duration_ns / 1e9:.1f} s and nothing "
        "of the rest"
    )


@contextmanager
def understood(path: str) -> Iterator[None]:
    """Turns what intact data of an unknown shape provokes into a sentence.

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

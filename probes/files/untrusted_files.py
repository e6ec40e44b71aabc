"""Files of others: opened once, compared with their mapping, read within bounds, never mapped themselves.

A path leads where its owner wants, at each use anew. So a file is read and probed through one descriptor. A
read of a file that its owner makes shorter returns less; a mapping would end gputop by a signal.

Where a child reads (``reader``), this process has a place only (O_PATH): getting its length, reading it or
closing an open descriptor could all wait for a file system served by another user.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from probes.files import file_reader

Identity = tuple[int, int]  # device, inode

_CHUNK = 1 << 20
_OURS = "/proc/self/fd/"
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Of a file: device and inode, bytes, its owner's number; ``UNKNOWN`` where it was not read."""

    identity: Identity
    size: int
    owner: int


class File:
    """A regular file, open for reading, or only its place where a child reads it.

    Attributes:
        identity: Device and inode.
        size: Bytes when it was opened; it may have changed since.
        owner: Number of the user that it belonged to then.
        descriptor: Its number; ``close`` ends it.
    """

    def __init__(self, descriptor: int, facts: FileIdentity | None = None) -> None:
        self.descriptor = descriptor
        facts = facts or _facts(os.fstat(descriptor))
        self.identity, self.size, self.owner = facts.identity, facts.size, facts.owner

    @property
    def path(self) -> Path:
        """A path that leads to this very file while it is open, for calls of the kernel with a path."""
        return Path(f"{_OURS}{self.descriptor}")

    @property
    def version(self) -> tuple[int, int]:
        """(size, time of the last change in ns) now."""
        status = os.fstat(self.descriptor)
        return status.st_size, status.st_mtime_ns

    def again(self) -> File:
        """The same file under another number. Raises OSError."""
        return File(os.dup(self.descriptor), FileIdentity(self.identity, self.size, self.owner))

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from a place; fewer at the end, none outside of the file. Raises OSError."""
        if not 0 <= offset < self.size or size <= 0:
            return b""
        return os.pread(self.descriptor, min(size, self.size - offset), offset)

    def chunks(self, most: int, overlap: int = 0) -> Iterator[bytes]:
        """The file's data, a megabyte at a time; each begins with the last bytes of the one before.

        Holes are left out: a file of many gigabytes costs its owner nothing. Raises OSError.

        Args:
            most: Bytes after which it ends.
            overlap: How many of the last bytes.
        """
        offset = 0
        while most > 0:
            try:
                offset = max(os.lseek(self.descriptor, offset, os.SEEK_DATA), offset)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole
                    return
                raise
            data = self.read(offset, min(_CHUNK, most))
            if not data:
                return
            yield data
            most -= len(data)
            if offset + len(data) >= self.size:
                return
            offset += max(len(data) - overlap, 1)

    def close(self) -> None:
        os.close(self.descriptor)

    def __enter__(self) -> File:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def opened(path: Path | str, identity: Identity | None = None) -> File:
    """Opens a regular file of another user.

    Args:
        path: Where it is.
        identity: Which file it must be; None for any, which this process opens by itself.

    Raises:
        OSError: It cannot be opened; ENOEXEC where it is no regular file; ESTALE where it is another one;
            ETIMEDOUT where its file system does not answer.
    """
    reader = file_reader.current()
    if reader is not None and identity is not None:
        if str(path).startswith(_OURS):  # open already, and its place is all that is used
            return File(os.dup(int(str(path)[len(_OURS) :])), FileIdentity(identity, UNKNOWN, UNKNOWN))
        (size, owner), descriptor, _answer = reader.place(str(path), identity)
        return File(descriptor, FileIdentity(identity, size, owner))
    with placed(path, identity) as place:
        return reading(place.descriptor)


def opened_for(
    job: str, path: Path, identity: Identity, what: list[Any], shown: str
) -> tuple[File, tuple[Any] | None]:
    """The same, and the answer of a job of the reader's about the file; None where there is no reader.

    Raises:
        OSError, file_reader.UnreadableError: As ``Reader.request``.
    """
    reader = file_reader.current()
    if reader is None or str(path).startswith(_OURS):
        return opened(path, identity), None
    (size, owner), descriptor, answer = reader.place(str(path), identity, job, what, shown)
    return File(descriptor, FileIdentity(identity, size, owner)), (answer,)


def placed(path: Path | str, identity: Identity | None = None) -> File:
    """The place of a regular file. Others are not opened: a pipe would wait, a device may do something.

    Raises:
        OSError: As ``opened``.
    """
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        status = os.fstat(place)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.ENOEXEC, "not a regular file", str(path))
        if identity not in (None, (status.st_dev, status.st_ino)):
            raise OSError(errno.ESTALE, "another file has taken its place", str(path))
        return File(place, _facts(status))
    except BaseException:
        os.close(place)
        raise


def reading(place: int) -> File:
    """Opens a place for reading. Raises OSError."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    return File(os.open(f"{_OURS}{place}", flags))


def _facts(status: os.stat_result) -> FileIdentity:
    return FileIdentity((status.st_dev, status.st_ino), status.st_size, status.st_uid)

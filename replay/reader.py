"""Reading a session file, which may be torn, damaged or made to do harm."""

from __future__ import annotations

import errno
import io
import os
import stat
from typing import Any

import msgpack  # type: ignore[import-untyped, unused-ignore]
import numpy as np

from replay.coding import file_format as fmt
from replay.coding.file_format import DamagedError, ForeignError, MissingFileError, NewerError, SessionError
from replay.items import ChunkTable, ItemReader, mark_rows_of
from replay.ownership import is_session
from replay.read_limits import Allowance
from replay.scan import Scan, ScannedFile, index_of, pieces_of


class SessionReader(ItemReader):
    """Yields the items of a session file in the order in which they were written; see ``ItemReader``."""

    def __init__(self, path: str | os.PathLike[str], *, follow: bool = True) -> None:
        """Open a file, read its header and find its chunks.

        Raises:
            SessionError: it is no session file, was made by a newer major version, or cannot be read.
        """
        self.path = os.fspath(path)
        self._descriptor = _open(self.path, follow=follow)
        try:
            super().__init__(ScannedFile(self._descriptor))
            self.header, start, damaged = _header(self.path, self._file)
            if damaged:
                self._problem("the header is damaged; its copy was used and nothing is missing")
            self._load(start)
        except OSError as error:
            os.close(self._descriptor)
            raise SessionError(f"{self.path} cannot be read: {error.strerror}") from error
        except BaseException:
            os.close(self._descriptor)
            raise

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self._descriptor)

    def _load(self, start: int) -> None:
        entries = index_of(self._file, start)
        if entries is None:
            known, start = pieces_of(self._file, start)
            scan = Scan(self._file, start, known)
            entries = scan.entries
            self._report(scan)
        kind, last = np.array(entries.kind, np.int64), np.array(entries.t_last, np.int64)
        rows = mark_rows_of(entries.kinds, kind)
        self._use(ChunkTable(entries.kinds, kind, last, entries.offset, rows))
        # A seek must end with its mark, so a damaged one does not count (6 µs each to find out).
        allowance = Allowance(self._file.size)
        intact = [row for row in rows.tolist() if self.item_at(row, allowance) is not None]
        self._use(ChunkTable(entries.kinds, kind, last, entries.offset, np.array(intact, np.int64)))

    def _report(self, scan: Scan) -> None:
        size = self._file.size
        torn = scan.gaps[-1] if scan.gaps and sum(scan.gaps[-1]) == size else None
        for offset, length in scan.gaps:
            if (offset, length) != torn:
                self._problem(f"{sized(length)} at offset {offset} are damaged and skipped")
        if torn is not None:
            self._problem(
                f"the last {sized(torn[1])} are incomplete (the recorder was killed, or the file was cut); "
                "everything before is intact"
                if len(scan.gaps) == 1
                else f"the last {sized(torn[1])} are incomplete or damaged"
            )
        elif not scan.closed:
            self._problem(
                "the recorder did not finish the file (it was killed, or is still running): "
                "up to its last second may be missing"
            )
        elif not scan.gaps:
            self._problem("the index is damaged; it was rebuilt and nothing is missing")


def _open(path: str, *, follow: bool) -> int:
    try:
        # O_NONBLOCK: a FIFO must be refused, not waited for.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    except FileNotFoundError as error:
        raise MissingFileError(f"there is no file {path}: check the name") from error
    except PermissionError as error:
        raise SessionError(f"{path} may not be read by you: use its owner's account or sudo") from error
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ELOOP and not follow:
            raise SessionError(f"{path} is a symbolic link: name what it leads to") from error
        raise SessionError(f"{path} cannot be read: {error}") from error
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode):
        os.close(descriptor)
        raise SessionError(f"{path} is not a regular file: name a recorded session")
    if facts.st_size == 0:
        os.close(descriptor)
        raise DamagedError(f"{path} is empty: the recorder wrote nothing; record again")
    return descriptor


def _header(path: str, file: ScannedFile) -> tuple[dict[str, Any], int, bool]:
    """(header, offset of the first byte after it, True if its first copy is damaged)."""
    data = file.read(0, fmt.MAX_HEADER_BYTES + fmt.MAX_PREFIX_BYTES)
    if not is_session(data[:64]):
        raise ForeignError(f"{path} is not a gputop session: name a file that gputop recorded")
    found = _header_copy(file, data)
    header, start, damaged = found if found is not None else (*_header_map(path, data), False)
    major, minor = header.get("major"), header.get("minor")
    if type(major) is not int or type(minor) is not int or major < 1:
        raise DamagedError(f"the header of {path} is damaged: use a copy or record again")
    if major > fmt.MAJOR:
        raise NewerError(
            f"{path} was recorded by a newer gputop (format {major}.{minor}, this one reads {fmt.MAJOR}.x): "
            "upgrade gputop to replay it"
        )
    return header, start, damaged


def _header_copy(file: ScannedFile, data: bytes) -> tuple[dict[str, Any], int, bool] | None:
    """The copy with a checksum, which is the first chunk."""
    place = data.find(fmt.MARKER)
    chunk = file.chunk_at(place) if place >= 0 else None
    body = file.body(chunk) if chunk is not None and chunk.kind == fmt.HEADER else None
    if chunk is None or body is None:
        return None
    try:
        packed = fmt.inflate(body, fmt.MAX_HEADER_BYTES)
        header = fmt.unpack(packed)
    except ValueError:
        return None
    return (header, chunk.end, packed != data[:place]) if isinstance(header, dict) else None


def _header_map(path: str, data: bytes) -> tuple[dict[str, Any], int]:
    limits = fmt.unpack_limits(len(data))
    unpacker = msgpack.Unpacker(io.BytesIO(data), strict_map_key=False, max_buffer_size=len(data), **limits)
    try:
        header = unpacker.unpack()
    except msgpack.OutOfData as error:
        raise DamagedError(f"{path} ends within its header: nothing was recorded; record again") from error
    except (msgpack.UnpackException, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise DamagedError(f"the header of {path} is damaged: use a copy or record again") from error
    return (header if isinstance(header, dict) else {}), int(unpacker.tell())


def sized(count: int) -> str:
    """A size as in messages."""
    return f"{count} bytes" if count < 1000 else f"{count / 1000:.1f} kB"

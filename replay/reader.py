"""Reading a session file, which may be torn, damaged or made to do harm."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from typing import Any, Final

import msgpack  # type: ignore[import-untyped, unused-ignore]
import numpy as np
import numpy.typing as npt

from probes.source import APIS, CLIENT, FILES, FRAMES, MARK, NAMES, NOTE, PROBLEM, PROCESS, Item, Sample
from replay import format as fmt
from replay.decoding import decode_records
from replay.format import RECORDS, SessionError
from replay.ownership import is_session
from replay.scan import File, Scan, index_of

# Facts hold until they are replaced, so a seek needs all of them from the start.
FACTS: Final = frozenset({PROCESS, CLIENT, NAMES, FILES, FRAMES, APIS, PROBLEM, NOTE})
_MOST_PROBLEMS: Final = 50


class SessionReader:
    """Yields the items of a session file in the order in which they were written.

    Attributes:
        header: facts that hold for the whole session.
        marks: times of the marks in file order, nanoseconds.
        problems: what is damaged or missing, in sentences; grows while items are read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open a file, read its header and find its chunks.

        Raises:
            SessionError: it is no session file, was made by a newer major version, or cannot be read.
        """
        self.path = os.fspath(path)
        self.problems: list[str] = []
        self._descriptor = _open(self.path)
        try:
            self._file = File(self._descriptor)
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
        self._closed = False

    def items(self) -> Iterator[Item]:
        """Everything that is intact, in file order."""
        return self._rows(range(len(self._entries)))

    def items_until(self, mark_index: int, records_since_ns: int, samples_since_ns: int) -> Iterator[Item]:
        """What is needed to show the frame of one mark.

        Args:
            mark_index: into ``marks``; its sample is the last item.
            records_since_ns: chunks of records that end before this time are left out.
            samples_since_ns: samples before this time are left out, unless they are facts.

        Raises:
            IndexError: there is no such mark.
        """
        end = self._mark_row(mark_index) + 1
        kinds = self._entries.kinds
        facts = np.array([kind in FACTS for kind in kinds], bool)
        records = np.array([kind == RECORDS for kind in kinds], bool)
        kind, last = self._kind[:end], self._last[:end]
        wanted = facts[kind] | (last >= np.where(records[kind], records_since_ns, samples_since_ns))
        wanted[end - 1] = True
        return self._rows(np.flatnonzero(wanted).tolist())

    def items_between(self, after_mark: int, until_mark: int) -> Iterator[Item]:
        """The items after one mark up to and including another.

        Args:
            after_mark: into ``marks``; -1 for the start of the file.
            until_mark: into ``marks``; ``len(marks)`` for the end of the file.

        Raises:
            IndexError: there is no such mark.
        """
        start = 0 if after_mark == -1 else self._mark_row(after_mark) + 1
        whole = until_mark == len(self.marks)
        return self._rows(range(start, len(self._entries) if whole else self._mark_row(until_mark) + 1))

    def close(self) -> None:
        """Give the file back; iterators end."""
        if not self._closed:
            self._closed = True
            os.close(self._descriptor)

    def _load(self, start: int) -> None:
        entries = index_of(self._file, start)
        if entries is None:
            scan = Scan(self._file, start)
            entries = scan.entries
            self._report(scan)
        self._entries = entries
        self._kind = np.array(entries.kind, np.int64)
        self._last = np.array(entries.t_last, np.int64)
        self._damaged: set[int] = set()
        numbers = [number for number, kind in enumerate(entries.kinds) if kind == MARK]
        rows = np.flatnonzero(np.isin(self._kind, numbers)).tolist()
        # A seek must end with its mark, so a damaged one does not count (6 µs each to find out).
        self._mark_rows = [row for row in rows if self._item(row) is not None]
        self.marks: npt.NDArray[np.int64] = self._last[self._mark_rows]

    def _report(self, scan: Scan) -> None:
        size = self._file.size
        torn = scan.gaps[-1] if scan.gaps and sum(scan.gaps[-1]) == size else None
        for offset, length in scan.gaps:
            if (offset, length) != torn:
                self._problem(f"{_bytes(length)} at offset {offset} are damaged and skipped")
        if torn is not None:
            self._problem(
                f"the last {_bytes(torn[1])} are incomplete (the recorder was killed, or the file was cut); "
                "everything before is intact"
                if len(scan.gaps) == 1
                else f"the last {_bytes(torn[1])} are incomplete or damaged"
            )
        elif not scan.closed:
            self._problem(
                "the recorder did not finish the file (it was killed, or is still running): "
                "up to its last second may be missing"
            )
        elif not scan.gaps:
            self._problem("the index is damaged; it was rebuilt and nothing is missing")

    def _mark_row(self, mark_index: int) -> int:
        if not 0 <= mark_index < len(self._mark_rows):
            raise IndexError(f"no mark {mark_index}: the session has {len(self._mark_rows)}")
        return self._mark_rows[mark_index]

    def _rows(self, rows: Iterator[int] | range | list[int]) -> Iterator[Item]:
        for row in rows:
            if self._closed:
                return
            item = self._item(row)
            if item is not None:
                yield item

    def _item(self, row: int) -> Item | None:
        offset = self._entries.offset[row]
        kind = self._entries.kinds[self._entries.kind[row]]
        try:
            chunk = self._file.chunk_at(offset)
            body = self._file.body(chunk) if chunk is not None else None
            if chunk is None or body is None or chunk.kind != kind:
                raise ValueError("the checksum does not match")
            if kind == RECORDS:
                return decode_records(body, chunk.count)
            data = fmt.unpack(fmt.inflate(body, fmt.MAX_SAMPLE_BYTES))
            if not isinstance(data, dict):
                raise ValueError("a sample that is no map")
            return Sample(kind, chunk.t_first, data)
        except (ValueError, OSError) as error:
            if row not in self._damaged:
                self._damaged.add(row)
                self._problem(f"a chunk ({kind[:40]}) at offset {offset} is damaged and skipped: {error}")
            return None

    def _problem(self, text: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(text)
        elif len(self.problems) == _MOST_PROBLEMS:
            self.problems.append("there are more problems of this kind")


def _open(path: str) -> int:
    try:
        # O_NONBLOCK: a FIFO must be refused, not waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise SessionError(f"there is no file {path}: check the name") from error
    except PermissionError as error:
        raise SessionError(f"{path} may not be read by you: use its owner's account or sudo") from error
    except (OSError, ValueError) as error:
        raise SessionError(f"{path} cannot be read: {error}") from error
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode):
        os.close(descriptor)
        raise SessionError(f"{path} is not a regular file: name a recorded session")
    if facts.st_size == 0:
        os.close(descriptor)
        raise SessionError(f"{path} is empty: the recorder wrote nothing; record again")
    return descriptor


def _header(path: str, file: File) -> tuple[dict[str, Any], int, bool]:
    """The header, the offset of the first byte after it, and whether its first copy is damaged."""
    data = file.read(0, fmt.MAX_HEADER_BYTES + fmt.MAX_PREFIX_BYTES)
    if not is_session(data[:64]):
        raise SessionError(f"{path} is not a gputop session: name a file that gputop recorded")
    found = _header_copy(file, data)
    header, start, damaged = found if found is not None else (*_header_map(path, data), False)
    major, minor = header.get("major"), header.get("minor")
    if type(major) is not int or type(minor) is not int or major < 1:
        raise SessionError(f"the header of {path} is damaged: use a copy or record again")
    if major > fmt.MAJOR:
        raise SessionError(
            f"{path} was recorded by a newer gputop (format {major}.{minor}, this one reads {fmt.MAJOR}.x): "
            "upgrade gputop to replay it"
        )
    return header, start, damaged


def _header_copy(file: File, data: bytes) -> tuple[dict[str, Any], int, bool] | None:
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
        raise SessionError(f"{path} ends within its header: nothing was recorded; record again") from error
    except (msgpack.UnpackException, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise SessionError(f"the header of {path} is damaged: use a copy or record again") from error
    return (header if isinstance(header, dict) else {}), int(unpacker.tell())


def _bytes(count: int) -> str:
    return f"{count} bytes" if count < 1000 else f"{count / 1000:.1f} kB"

"""The frame of a session file: header map, chunks, footer; and limits of plausible sizes.

The file is a plain stream of msgpack objects. A chunk is an array of eight, whose integers are written at
full width, so that the bytes before the body have a known length and start with a fixed pattern: after
damage the next chunk is found by looking for that pattern.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any, Final

import msgpack  # type: ignore[import-untyped, unused-ignore]

FORMAT_NAME: Final = "gputop.session"
MAJOR: Final = 1
MINOR: Final = 1

RECORDS: Final = "records"
INDEX: Final = "index"
HEADER: Final = "header"
SNAPSHOT: Final = "snapshot"
TOTALS: Final = "totals"
RESERVED: Final = frozenset({RECORDS, INDEX, HEADER, SNAPSHOT, TOTALS})  # no kinds of samples

SYNC: Final = b"gtop\xf5\x9cCK"
MARKER: Final = b"\x98\xc4\x08" + SYNC  # array of 8 whose first element is bin(8)
_FIXED: Final = struct.Struct(">BBB8sBIBIBqBqBIBB")
_BODY: Final = struct.Struct(">BI")
_TRAILER: Final = struct.Struct(">BB8sQ")
_TRAILER_MAGIC: Final = b"gtopINDX"
TRAILER_BYTES: Final = _TRAILER.size
SMALLEST_CHUNK: Final = _FIXED.size + 1 + _BODY.size

# Limits: a writer never exceeds them, to a reader more is damage.
MAX_RECORDS: Final = 1 << 16  # records in one chunk
MAX_BODY_BYTES: Final = 16 << 20
MAX_SAMPLE_BYTES: Final = 2 << 20  # one sample, unpacked
MAX_HEADER_BYTES: Final = 1 << 20
MAX_KIND_BYTES: Final = 64
MAX_ITEMS: Final = 1 << 18  # elements of one array or map
MAX_TIME: Final = (1 << 63) - 1
MAX_PREFIX_BYTES: Final = _FIXED.size + MAX_KIND_BYTES + _BODY.size


# An empty array is a byte in a file and 64 in memory: a file full of them was made to fill memory.
_CONTAINERS: Final = frozenset({*range(0x80, 0xA0), *range(0xDC, 0xE0)})
_NO_CONTAINERS: Final = bytes(sorted(set(range(256)) - _CONTAINERS))
_FREE_CONTAINERS: Final = 4096
# bytes of objects other than texts and bytes, by their first one
_SIZES: Final = {**{0xCC + power: 1 + (1 << power) for power in range(4)}, 0xCA: 5, 0xCB: 9} | {
    **{0xD0 + power: 1 + (1 << power) for power in range(4)},
    **{0xDC: 3, 0xDD: 5, 0xDE: 3, 0xDF: 5},
}
# of texts and bytes whose length stands before them: bytes of that length
_LENGTHS: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}


class SessionError(Exception):
    """A session file cannot be read or written; the text is one clear sentence with the next step."""


class MissingFileError(SessionError):
    """There is no such file."""


class DamagedError(SessionError):
    """It is no session, or so damaged that nothing of it can be read."""


class ForeignError(DamagedError):
    """It is another program's file."""


class NewerError(SessionError):
    """A newer gputop recorded it, in a format that this one does not know."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The place and the prefix of a chunk; times in nanoseconds, CLOCK_MONOTONIC."""

    offset: int
    kind: str
    t_first: int
    t_last: int
    count: int  # records, or 1 for a sample
    prefix_bytes: int
    body_bytes: int
    crc: int  # of the body
    intact: bool = False  # the body was seen and matches

    @property
    def end(self) -> int:
        """Offset of the first byte after it."""
        return self.offset + self.prefix_bytes + self.body_bytes


def pack_chunk(kind: str, t_first: int, t_last: int, count: int, body: bytes) -> bytes:
    """One chunk as msgpack.

    Returns:
        ``[SYNC, crc of the rest, crc of the body, t_first, t_last, count, kind, body]``.

    Raises:
        SessionError: when it is larger than any reader accepts.
    """
    name = kind.encode("utf-8", "replace")
    if len(name) > MAX_KIND_BYTES or len(body) > MAX_BODY_BYTES:
        raise SessionError(f"a chunk of kind {kind[:40]!r} is too large to be stored ({len(body)} bytes)")
    crc = zlib.crc32(body)
    fields = (0xCE, crc, 0xD3, t_first, 0xD3, t_last, 0xCE, count, 0xD9, len(name))
    rest = _FIXED.pack(0x98, 0xC4, 8, SYNC, 0xCE, 0, *fields)[16:] + name + _BODY.pack(0xC6, len(body))
    return MARKER + struct.pack(">BI", 0xCE, zlib.crc32(rest)) + rest + body


def parse_prefix(data: bytes, offset: int) -> Chunk | None:
    """The chunk whose prefix is at the start of some bytes.

    Args:
        data: up to ``MAX_PREFIX_BYTES`` bytes of the file from ``offset`` on.
        offset: where they start in the file.

    Returns:
        The chunk, its body not yet read; None when there is no intact chunk prefix.
    """
    if len(data) < SMALLEST_CHUNK or not data.startswith(MARKER):
        return None
    values = _FIXED.unpack_from(data)
    marks, crc_rest, crc, t_first, t_last, count, name_bytes = values[4::2], *values[5::2]
    name_end = _FIXED.size + name_bytes
    end = name_end + _BODY.size
    if marks != (0xCE, 0xCE, 0xD3, 0xD3, 0xCE, 0xD9) or name_bytes > MAX_KIND_BYTES or len(data) < end:
        return None
    tag, body_bytes = _BODY.unpack_from(data, name_end)
    if tag != 0xC6 or zlib.crc32(data[16:end]) != crc_rest or body_bytes > MAX_BODY_BYTES:
        return None
    kind = data[_FIXED.size : name_end].decode("utf-8", "replace")
    return Chunk(offset, kind, t_first, t_last, count, end, body_bytes, crc)


def pack_trailer(index_offset: int) -> bytes:
    """The last object of a closed file: 16 bytes with the place of the index."""
    return _TRAILER.pack(0xC4, 16, _TRAILER_MAGIC, index_offset)


def parse_trailer(data: bytes) -> int | None:
    """Offset of the index, when ``data`` is the trailer of a closed file."""
    if len(data) != TRAILER_BYTES:
        return None
    tag, length, magic, offset = _TRAILER.unpack(data)
    return int(offset) if (tag, length, magic) == (0xC4, 16, _TRAILER_MAGIC) else None


def pack(value: Any) -> bytes:
    """Plain data as msgpack; strings that are no Unicode lose the offending characters."""
    packed: bytes = msgpack.packb(value, unicode_errors="replace")
    return packed


def unpack(data: bytes) -> Any:
    """Plain data from msgpack that may be hostile.

    Raises:
        ValueError: damaged, too deep or with extension types.
    """
    most = _FREE_CONTAINERS + len(data) // 4
    # numbers and texts have such bytes as well: they are distinguished only where there are many
    if len(data.translate(None, _NO_CONTAINERS)) > most and _too_many_containers(data, most):
        raise ValueError("more arrays and maps than a sample holds")
    try:
        return msgpack.unpackb(data, strict_map_key=False, **unpack_limits(len(data)))
    except (msgpack.UnpackException, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"not msgpack: {error}") from error


def _too_many_containers(data: bytes, most: int) -> bool:
    """True if so many arrays and maps begin in msgpack, and not within its numbers and texts."""
    place, found, end = 0, 0, len(data)
    while place < end and found <= most:
        first = data[place]
        if first in _CONTAINERS:
            found += 1
        if first in _LENGTHS:
            start = place + 1 + _LENGTHS[first]
            place = start + int.from_bytes(data[place + 1 : start], "big")
        elif 0xA0 <= first < 0xC0:
            place += 1 + (first & 0x1F)
        else:
            place += _SIZES.get(first, 1)
    return found > most


def unpack_limits(size: int) -> dict[str, Any]:
    """Arguments for msgpack that bound what ``size`` bytes may become."""
    return {
        "raw": False,
        "unicode_errors": "replace",
        "max_str_len": size,
        "max_bin_len": size,
        "max_array_len": min(size, MAX_ITEMS),
        "max_map_len": min(size, MAX_ITEMS),
        "max_ext_len": 0,
    }


def inflate(data: bytes, limit: int) -> bytes:
    """Decompress at most ``limit`` bytes.

    Raises:
        ValueError: damaged, incomplete, or more than ``limit`` bytes.
    """
    unpacker = zlib.decompressobj()
    try:
        result = unpacker.decompress(data, limit + 1)
    except zlib.error as error:
        raise ValueError(f"compressed data is damaged: {error}") from error
    if len(result) > limit or not unpacker.eof:
        raise ValueError("compressed data is longer than it may be, or incomplete")
    return result

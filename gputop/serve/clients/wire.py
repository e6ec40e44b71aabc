"""What goes over the daemon's socket: maps in msgpack, each behind its length, of bounded size both ways.

A client says what it wants in its first message, and nothing after it:
``{"gputop": 1, "ask": "follow" | "status" | "snap" | "off", ...}``. The daemon answers with maps whose ``k``
says what they are: ``header``, ``items`` (chunks as a session file has them), ``dropped``, ``status``,
``done``, ``error``, ``end``.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from probes.source import Item
from replay.coding import file_format as fmt
from replay.items import item_in

VERSION: Final = 1
SOCKET: Final = "/run/gputop/gputop.sock"
MOST_REQUEST: Final = 4096  # bytes that a client may say
MOST_MESSAGE: Final = 32 << 20  # bytes of one message of the daemon
CHUNKS: Final = 1 << 20  # bytes of chunks that are put into one message, but for a larger chunk
_LENGTH: Final = struct.Struct(">I")
_CREDENTIALS: Final = struct.Struct("3i")


class WireError(Exception):
    """The other side says what it may not, or has gone; the text is a sentence."""


def packed(message: Mapping[str, Any]) -> bytes:
    """A message as it is sent. Raises ValueError for what is too large."""
    body = fmt.pack(message)
    if len(body) > MOST_MESSAGE:
        raise ValueError(f"a message of {len(body)} bytes")
    return _LENGTH.pack(len(body)) + body


class Incoming:
    """Bytes in, messages out, of bounded size."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The messages that are complete with these bytes.

        Raises:
            WireError: A message is too long, or no map.
        """
        self._bytes += data
        while len(self._bytes) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._bytes)
            if size > self._most:
                raise WireError(f"a message of {size} bytes, where at most {self._most} are taken")
            end = _LENGTH.size + size
            if len(self._bytes) < end:
                return
            body = bytes(self._bytes[_LENGTH.size : end])
            del self._bytes[:end]
            try:
                message = fmt.unpack(body)
            except ValueError as error:
                raise WireError(f"a message that cannot be read: {error}") from error
            if not isinstance(message, dict):
                raise WireError("a message that is no map")
            yield message


def items_of(chunks: bytes) -> Iterator[Item]:
    """The items of an ``items`` message.

    Raises:
        WireError: They are damaged.
    """
    at = 0
    while at < len(chunks):
        try:
            item, size = item_in(memoryview(chunks)[at:])
        except ValueError as error:
            raise WireError(f"the daemon's items are damaged: {error}") from error
        yield item
        at += size


def messages_of(chunks: list[bytes]) -> Iterator[bytes]:
    """Chunks as ``items`` messages of bounded size."""
    part: list[bytes] = []
    size = 0
    for chunk in chunks:
        if part and size + len(chunk) > CHUNKS:
            yield packed({"k": "items", "chunks": b"".join(part)})
            part, size = [], 0
        part.append(chunk)
        size += len(chunk)
    if part:
        yield packed({"k": "items", "chunks": b"".join(part)})


def peer(connection: socket.socket) -> tuple[int, int, int]:
    """(process, user, group) at the other end, as the kernel says. Raises OSError."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(data)
    return pid, uid, gid

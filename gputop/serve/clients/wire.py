"""The protocol of the daemon's socket: maps in msgpack, each preceded by its length, bounded both ways.

A client sends one message, its request: ``{"gputop": 1, "ask": "follow" | "status" | "snap" | "off", ...}``.
The daemon answers with maps whose ``k`` is their kind: ``header``, ``items`` (chunks as in a session file),
``dropped``, ``status``, ``done``, ``error``, ``end``.
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
MOST_REQUEST: Final = 4096  # bytes of a request
MOST_MESSAGE: Final = 32 << 20  # bytes of one message of the daemon
CHUNKS: Final = 1 << 20  # bytes of chunks in a message, unless one chunk is larger
_LENGTH: Final = struct.Struct(">I")
_CREDENTIALS: Final = struct.Struct("3i")


class WireError(Exception):
    """The peer violated the protocol, or has gone; the text is a sentence."""


def packed(message: Mapping[str, Any]) -> bytes:
    """Encode a message. Raises ValueError if it is too large."""
    body = fmt.pack(message)
    if len(body) > MOST_MESSAGE:
        raise ValueError(f"a message of {len(body)} bytes")
    return _LENGTH.pack(len(body)) + body


class Incoming:
    """Bounded decoder: bytes in, messages out."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield the messages that these bytes complete.

        Raises:
            WireError: A message is too long, or no map.
        """
        self._bytes += data
        while len(self._bytes) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._bytes)
            if size > self._most:
                raise WireError(f"a message of {size} bytes, where the limit is {self._most}")
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
    """Yield the items of an ``items`` message.

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
    """Yield chunks as ``items`` messages of bounded size."""
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
    """Return the kernel's (process, user, group) of the peer. Raises OSError."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(data)
    return pid, uid, gid

"""The protocol of the process that reads files of others: its answers are read within bounds."""

from __future__ import annotations

import array
import os
import select
import socket
import time
from contextlib import suppress
from typing import Any

import msgpack  # type: ignore[import-untyped, unused-ignore]

NUMBER_BYTES = 4  # of the process that answers, in front of its answer
_MOST_BYTES = 5 << 20  # of an answer; the probes of a library take 20 KB, a source file up to 4 MB
_LONGEST = 200  # characters of a reason
_LOOK_S = 0.1  # seconds


class Patience:
    """The time for an answer, counted in waits of limited length.

    A machine that stands still, or whose processors are all busy, lets the clock run on without any work:
    after two such seconds the answer is late, and nothing is wrong with the file.
    """

    def __init__(self, seconds: float) -> None:
        self._left_s = seconds

    def wait(self, channel: socket.socket) -> None:
        """Waits for data. Raises TimeoutError when the time is over."""
        look = select.poll()
        look.register(channel, select.POLLIN)
        while self._left_s > 0:
            began = time.monotonic()
            there = look.poll(_LOOK_S * 1e3)
            self._left_s -= min(time.monotonic() - began, _LOOK_S)
            if there:
                return
        raise TimeoutError


class UnreadableError(Exception):
    """The file is not of the expected kind; the message has the difference."""


class EndedError(Exception):
    """The reader has ended."""


def received(channel: socket.socket, patience: Patience) -> tuple[bytes, int]:
    """All data until the other end is closed, and the descriptor in front.

    Raises:
        TimeoutError: It is not closed in time.
        ValueError: It is too much.
    """
    parts: list[bytes] = []
    size, found = 0, -1
    try:
        while True:
            patience.wait(channel)
            data, control, _, _ = channel.recvmsg(1 << 16, socket.CMSG_SPACE(4))
            for level, kind, content in control:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS) and found < 0:
                    found = array.array("i", content[:4])[0]
                    os.set_inheritable(found, False)
            if not data:
                return b"".join(parts)[found >= 0 :], found
            parts.append(data)
            size += len(data)
            if size > _MOST_BYTES:
                raise ValueError("an endless answer")
    except ConnectionResetError:
        return b"".join(parts), found
    except (TimeoutError, ValueError):
        let_go(found)
        raise


def unpacked(data: bytes) -> list[Any]:
    """[kind, value] from a process that may have been compromised. Raises ValueError."""
    try:
        answer = msgpack.unpackb(data, strict_map_key=False)
    except (TypeError, msgpack.UnpackException) as error:
        raise ValueError("no answer") from error
    if not isinstance(answer, list) or len(answer) != 2:
        raise ValueError("no answer")
    return answer


def found_in(answer: list[Any], shown: str) -> Any:
    """Raises UnreadableError, OSError."""
    kind, value = answer
    if kind == "error" and isinstance(value, list) and len(value) == 2 and isinstance(value[0], int):
        raise OSError(value[0], str(value[1])[:_LONGEST], shown)
    if kind != "found":
        raise UnreadableError(str(value)[:_LONGEST])
    return value


def let_go(descriptor: int) -> None:
    if descriptor >= 0:
        with suppress(OSError):
            os.close(descriptor)

"""An answer in a thread of its own, so that a slow reader delays only itself: the past as a session."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from typing import Any, Final

from gputop.serve.clients import wire
from gputop.serve.clients.user_past import Past
from gputop.serve.daemon import Daemon
from replay.coding.chunker import Chunker

WAITS_S: Final = 20.0  # longest wait of an answer for its reader, in total
ABORTABLE_S: Final = 0.5  # of waits: after that it may be aborted for another request


class Answering:
    """The connection of one answer.

    Attributes:
        account: The account that the requesting user counts for.
    """

    def __init__(self, connection: socket.socket, account: int) -> None:
        self._connection, self.account = connection, account
        self._waited_s, self._waits_since = 0.0, 0.0

    @property
    def waited_s(self) -> float:
        """Time spent waiting for the reader."""
        since = self._waits_since
        return self._waited_s + (time.monotonic() - since if since else 0.0)

    def sendall(self, data: bytes) -> None:
        """Send; raises OSError when the reader has gone, or was too slow in total."""
        rest = memoryview(data)
        while rest:
            left = WAITS_S - self._waited_s
            if left <= 0:
                raise TimeoutError
            self._connection.settimeout(left)
            self._waits_since = time.monotonic()
            try:
                rest = rest[self._connection.send(rest) :]
            finally:
                self._waited_s, self._waits_since = self.waited_s, 0.0

    def abort(self) -> None:
        """End it: the current send fails."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)


MOST_S = 86400.0


def send_past(daemon: Daemon, connection: Answering, uid: int, message: dict[str, Any]) -> None:
    """Send the ring's last seconds, as a user may see them. Raises OSError."""
    seconds = message.get("seconds")
    reach = float(seconds) if isinstance(seconds, int | float) and 0 < seconds < MOST_S else MOST_S
    past = Past(daemon.history, daemon.explainer, uid, time.monotonic_ns() - int(reach * 1e9))
    chunks: list[bytes] = []
    chunker = Chunker(lambda kind, first, last, count, chunk: chunks.append(chunk))
    reported = False
    for item in past.items():
        if not reported:
            connection.sendall(wire.packed({"k": "header", "data": past.header}))
            reported = True
        chunker.write(item)
        if sum(map(len, chunks)) >= wire.CHUNKS:
            for part in wire.messages_of(chunks):
                connection.sendall(part)
            chunks.clear()
    chunker.flush()
    for part in wire.messages_of(chunks):
        connection.sendall(part)
    connection.sendall(wire.packed({"k": "done"}))

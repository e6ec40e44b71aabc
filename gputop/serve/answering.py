"""An answer that takes a thread: who reads it slowly waits for nobody's patience but its own."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from typing import Final

WAITS_S: Final = 20.0  # that an answer waits for its reader, all its waits together
GIVES_WAY_S: Final = 0.5  # of waits: after them it gives way to another question


class Answering:
    """The connection of one answer, as who makes the answer has it.

    Attributes:
        account: Who answers for the user that asked.
    """

    def __init__(self, connection: socket.socket, account: int) -> None:
        """Begin.

        Args:
            connection: Of who asked; is closed at the end.
            account: Whose it counts as.
        """
        self._connection, self.account = connection, account
        self._waited_s, self._waits_since = 0.0, 0.0

    @property
    def waited_s(self) -> float:
        """How long it has waited for its reader until now."""
        since = self._waits_since
        return self._waited_s + (time.monotonic() - since if since else 0.0)

    def sendall(self, data: bytes) -> None:
        """Sends; raises OSError when the reader has gone, or taken too long for all that was sent."""
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

    def give_way(self) -> None:
        """Ends it: what is being sent fails."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

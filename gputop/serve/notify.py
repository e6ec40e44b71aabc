"""Tells systemd how the daemon is (sd_notify(3)): a datagram to the socket that it named, if it named one."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


class Notifier:
    """Says ``READY=1``, ``WATCHDOG=1``, ``STOPPING=1``; does nothing where nobody listens."""

    def __init__(self) -> None:
        """Take what systemd said in the environment."""
        path = os.environ.pop("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        self._socket = (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) if path else None
        )

    def tell(self, *lines: str) -> None:
        """Sends lines such as ``STATUS=…``; one that systemd does not take is no reason to end."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.sendto("\n".join(lines).encode(), socket.MSG_DONTWAIT, self._address)

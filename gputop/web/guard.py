"""Access to the server: with the token, from the server's own page, under the server's own name.

The token stands behind the ``#`` of the address, which browsers do not send. The page sends it as a
subprotocol when it connects. There is no cookie: cookies of 127.0.0.1 go to every port of it, which any user
may listen on. Without a token every open page of the browser could connect, and every user of the machine.
The requested host name is checked against DNS rebinding: names that resolve to 127.0.0.1.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

TOKEN_BYTES: Final = 32
PROTOCOL: Final = "gputop"  # the subprotocol beside the token
_NAMED: Final = "127.0.0.1"
LOOPBACK: Final = (_NAMED, "::1", "localhost")
# the browser is likely on the other side, which forwards 127.0.0.1
_ELSEWHERE: Final = ("SSH_CONNECTION", "WSL_DISTRO_NAME")


def own_host(environment: Mapping[str, str] = os.environ) -> str:
    """Return a random loopback address; behind ssh and in WSL, 127.0.0.1.

    At a fixed address, a worker or cached page of another user's server would come between the page and this
    server.
    """
    if any(environment.get(name) for name in _ELSEWHERE):
        return _NAMED
    return ".".join(map(str, (127, *(1 + secrets.randbelow(254) for _ in range(3)))))


@dataclass(frozen=True, slots=True)
class Guard:
    """Decides on a request."""

    # host, port: where the server listens
    host: str
    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(TOKEN_BYTES))  # required to connect

    @property
    def names(self) -> frozenset[str]:
        """Host names of the server with its port: ``127.0.0.1:8000``."""
        hosts = {self.host, *(LOOPBACK if _is_loopback(self.host) else ())}  # for ssh forwarding
        return frozenset(f"{_bracketed(host)}:{self.port}" for host in hosts)

    @property
    def origin(self) -> str:
        """The origin of the server's page."""
        return f"http://{_bracketed(self.host)}:{self.port}"

    @property
    def address(self) -> str:
        """The address to open in the browser."""
        return f"{self.origin}/#token={self.token}"

    def refusal(self, headers: Mapping[str, str], *, socket: bool) -> str:
        """Return why a request is refused, or "".

        Args:
            headers: The request's headers, case-insensitive.
            socket: True for the connection of the screen, which needs the origin and the token; the page
                itself holds no data.
        """
        if headers.get("Host", "") not in self.names:
            return "unknown host name for this server"
        origin = headers.get("Origin", "")
        if (origin or socket) and origin not in {f"http://{name}" for name in self.names}:
            return "the request comes from another site"
        if socket and not self._is_offered(headers.get("Sec-WebSocket-Protocol", "")):
            return "open the whole address that gputop web printed, with its token"
        return ""

    def _is_offered(self, protocols: str) -> bool:
        offered = protocols.replace(" ", "").partition(",")
        right = secrets.compare_digest(offered[2].encode("utf-8", "replace"), self.token.encode())
        return offered[0] == PROTOCOL and right


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host

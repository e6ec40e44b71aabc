"""Who may talk to the server: who has the token, from the server's own page, under the server's own name.

The token stands behind the ``#`` of the address, which a browser sends to no server. The page keeps it, and
says it when it connects (as a subprotocol, which goes to this server alone). There is no cookie: cookies of
127.0.0.1 go to every port of it, and to any user who listens there. Without a token every page that is open
in the same browser could connect, and every user of the machine. A name that somebody makes point to
127.0.0.1 would count as the page's own (DNS rebinding), so the name that was requested counts, too.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

TOKEN_BYTES: Final = 32
PROTOCOL: Final = "gputop"  # that the page asks for beside the token, and is granted
_NAMED: Final = "127.0.0.1"
LOOPBACK: Final = (_NAMED, "::1", "localhost")
_ELSEWHERE: Final = (
    "SSH_CONNECTION",
    "WSL_DISTRO_NAME",
)  # the browser is on the other side, which knows 127.0.0.1


def own_host(environment: Mapping[str, str] = os.environ) -> str:
    """An address of this machine alone, another one each time.

    What another user's server at 127.0.0.1 left in the browser (a worker, pages in the cache) is of that
    address, and would be between the page and its next server.

    Args:
        environment: Says whether the browser is likely to be elsewhere: behind ssh, or Windows' own.
    """
    if any(environment.get(name) for name in _ELSEWHERE):
        return _NAMED
    return ".".join(map(str, (127, *(1 + secrets.randbelow(254) for _ in range(3)))))


@dataclass(frozen=True, slots=True)
class Guard:
    """Decides on one request.

    Attributes:
        host, port: Where the server listens.
        token: What who steers the screen has to say.
    """

    host: str
    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(TOKEN_BYTES))

    @property
    def names(self) -> frozenset[str]:
        """How the server is called in addresses: ``127.0.0.1:8000``."""
        hosts = {self.host, *(LOOPBACK if _is_loopback(self.host) else ())}  # as ssh leads there
        return frozenset(f"{_bracketed(host)}:{self.port}" for host in hosts)

    @property
    def origin(self) -> str:
        """What the server's page is of."""
        return f"http://{_bracketed(self.host)}:{self.port}"

    @property
    def address(self) -> str:
        """What is typed into the browser."""
        return f"{self.origin}/#token={self.token}"

    def refusal(self, headers: Mapping[str, str], *, socket: bool) -> str:
        """Why a request is refused; "" where it is not.

        Args:
            headers: Of the request, whatever their letters' case.
            socket: Whether it asks for the connection that steers the screen, which names its page, and the
                token; the page itself holds nothing.
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

"""Who may talk to the server: a token in the first address, then a cookie; no foreign page, no foreign name.

Without it every page that is open in the same browser could connect to the server, and every user of the
machine. A name that somebody makes point to 127.0.0.1 would count as the page's own (DNS rebinding), so the
name that was asked for counts, too.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

TOKEN_BYTES = 32
NO_COOKIE = "open the whole address that gputop web printed, with its token"
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class Guard:
    """Decides on one request.

    Attributes:
        host, port: Where the server listens.
        token: What the first address has to hold.
        session: What the cookie holds after that.
    """

    host: str
    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(TOKEN_BYTES))
    session: str = field(default_factory=lambda: secrets.token_urlsafe(TOKEN_BYTES))

    @property
    def cookie(self) -> str:
        """Its name: cookies of one machine are those of all its ports."""
        return f"gputop_{self.port}"

    @property
    def names(self) -> frozenset[str]:
        """How the server is called in addresses: ``127.0.0.1:8000``."""
        hosts = {self.host, *(LOOPBACK if self.host in LOOPBACK else ())}
        return frozenset(f"{_bracketed(host)}:{self.port}" for host in hosts)

    @property
    def address(self) -> str:
        """What is typed into the browser."""
        return f"http://{_bracketed(self.host)}:{self.port}/?token={self.token}"

    def refusal(self, headers: Mapping[str, str], cookies: Mapping[str, str], *, socket: bool) -> str:
        """Why a request is refused; "" where it is not.

        Args:
            headers: Of the request, whatever their letters' case.
            cookies: That came with it.
            socket: Whether it asks for the connection that steers the screen, which names its page.
        """
        if headers.get("Host", "") not in self.names:
            return "this server is not called that"
        origin = headers.get("Origin", "")
        if (origin or socket) and origin not in {f"http://{name}" for name in self.names}:
            return "this page is not of this server"
        if not secrets.compare_digest(cookies.get(self.cookie, "").encode(), self.session.encode()):
            return NO_COOKIE
        return ""

    def is_token(self, told: str) -> bool:
        """Whether the first address held the token."""
        return secrets.compare_digest(told.encode(), self.token.encode())


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host

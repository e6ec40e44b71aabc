"""An HTTP or TLS POST to an untrusted server, with one deadline for all of it and a bounded answer.

Only the status and Retry-After are read; the body is left in the socket. No cookie or connection is kept, no
redirect followed, no proxy or ``.netrc`` used: data goes to the named address and to no other.
"""

from __future__ import annotations

import base64
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

MOST_HEAD: Final = 16 << 10  # bytes of an answer until its head is complete
_MOST_REASON: Final = 100  # characters of a response's reason
READ_BYTES: Final = 4096
_PORTS: Final = {"http": 80, "https": 443}
OWN_PORTS: Final = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
_USUAL_FIRST: Final = 1024
_LOOPBACK: Final = re.compile(r"localhost|127(\.\d{1,3}){3}|::1")
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5]\d\d)(?: ([^\r\n]*))?\r?(?:\n|\Z)")
_HEAD_ENDS: Final = re.compile(rb"\r?\n\r?\n")
_LATER: Final = re.compile(rb"\nretry-after:[ \t]*(\d{1,6})[ \t]*\r?(?:\n|\Z)", re.IGNORECASE)
_UNFIT: Final = re.compile(r"[\r\n\0]")


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The relevant part of an HTTP response."""

    status: int  # the status code
    reason: str  # the server's text beside it; untrusted
    retry_after: str = ""  # Retry-After in seconds, as a text; "" if absent


class PostError(OSError):
    """The server did not answer with HTTP; the text is a sentence's end."""


def is_roots_alone(scheme: str, host: str, port: int | None) -> bool:
    """True if the peer's identity is certain: by TLS, or a port of this machine that only root can bind.

    Args:
        scheme: ``http`` or ``https``.
        host: Host of the address.
        port: None: the scheme's default.
    """
    if scheme == "https":
        return True
    try:
        with open(OWN_PORTS, encoding="ascii") as file:
            first = int(file.read(32))
    except (OSError, ValueError):
        first = _USUAL_FIRST
    # not this machine's other addresses: a container, and processes with raw sockets there, have their own
    return _LOOPBACK.fullmatch(host) is not None and (port or _PORTS[scheme]) < first


def trusting(verify: bool | str | None, cert: str | tuple[str, str] | None) -> ssl.SSLContext:
    """Return a TLS context that verifies the peer.

    Raises:
        OSError: A certificate cannot be read (``ssl.SSLError`` is one).
    """
    place = verify if isinstance(verify, str) else None
    folder = place if place is not None and os.path.isdir(place) else None
    context = ssl.create_default_context(cafile=None if folder else place, capath=folder)
    if cert is not None:
        context.load_cert_chain(*((cert,) if isinstance(cert, str) else cert))
    return context


def post(
    address: str,
    headers: Mapping[str, str],
    body: bytes,
    timeout_s: float,
    context: Callable[[], ssl.SSLContext],
) -> HttpAnswer:
    """Send, and read the head of the response.

    Args:
        address: The URL; a user name and password in it are sent by basic authentication.
        headers: Headers beside those that HTTP needs.
        body: The data.
        timeout_s: For everything together, except the resolver's time for a name.
        context: Makes the TLS context.

    Raises:
        OSError: No response (``TimeoutError``: in time; ``PostError``: not HTTP).
    """
    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    deadline = time.monotonic() + timeout_s
    connection = connected_to(host, port, deadline)
    try:
        if parts.scheme == "https":
            connection.settimeout(_left(deadline))
            connection = context().wrap_socket(connection, server_hostname=host)
        _send(connection, _head(address, headers, len(body)), deadline)
        _send(connection, body, deadline)
        return _answer(connection, deadline)
    finally:
        connection.close()


def connected_to(host: str, port: int, deadline: float) -> socket.socket:
    """Connect to the first address of a host that accepts, with one deadline for all addresses."""
    last: OSError = PostError(f"there is no address of {host}")
    for family, kind, protocol, _name, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        connection = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
        try:
            connection.settimeout(_left(deadline))
            connection.connect(place)
        except OSError as error:
            connection.close()
            last = error
        else:
            return connection
    raise last


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _head(address: str, headers: Mapping[str, str], size: int) -> bytes:
    parts = urlsplit(address)
    place = parts.netloc.rpartition("@")[2]
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    own = {"Host": place, "Connection": "close", "Content-Length": str(size)}
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        own["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in {**own, **headers}.items())]
    if any(_UNFIT.search(line) for line in lines):
        raise PostError("a header of the request contains a line break")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def _send(connection: socket.socket, data: bytes, deadline: float) -> None:
    rest = memoryview(data)
    while rest:
        connection.settimeout(_left(deadline))
        rest = rest[connection.send(rest) :]


def _answer(connection: socket.socket, deadline: float) -> HttpAnswer:
    came = b""
    while True:
        connection.settimeout(_left(deadline))
        data = connection.recv(READ_BYTES)
        came += data
        answer = answer_of(came, ended=not data)
        if answer is not None:
            return answer


def answer_of(came: bytes, *, ended: bool) -> HttpAnswer | None:
    """Return the response in some bytes; None while its head is incomplete.

    Args:
        came: All bytes so far, with interim responses (status 1xx).
        ended: Whether the connection has ended.

    Raises:
        PostError: It is not HTTP, or is too long.
    """
    at = 0
    while end := _HEAD_ENDS.search(came, at):
        head = came[at : end.start()]
        found = _STATUS.match(head)
        if found is None:
            raise PostError("it does not answer with HTTP")
        status = int(found[1])
        if status >= 200:
            later = _LATER.search(head)
            reason = (found[2] or b"")[:_MOST_REASON].decode("latin-1")
            return HttpAnswer(status, reason, later[1].decode() if later is not None else "")
        at = end.end()
    if len(came) > MOST_HEAD:
        raise PostError(f"its answer's head is longer than {MOST_HEAD >> 10} kB")
    if ended:
        raise PostError("it closes the connection without an answer")
    return None

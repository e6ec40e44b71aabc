"""One POST over HTTP or TLS to an untrusted server: one deadline for all of it, a bounded answer.

Of the answer the status is read, and when to come again; what follows its head is left in the socket. Nothing
of an answer is kept: no cookie, no connection, and no redirect is followed. No proxy and no ``.netrc`` is
used: what is sent goes to the address that was named and to no other.
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
_MOST_REASON: Final = 100  # characters of what it says beside its number
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
    """What of an answer counts.

    Attributes:
        status: The number.
        reason: What it says beside it; anybody's text.
        retry_after: Seconds as it says them; "" where it does not.
    """

    status: int
    reason: str
    retry_after: str = ""


class PostError(OSError):
    """The other side did not answer, or not as HTTP does; the text is a sentence's end."""


def is_roots_alone(scheme: str, host: str, port: int | None) -> bool:
    """Whether nobody but who is meant can be at the other end: TLS, or a port of this machine that is root's.

    Args:
        scheme: ``http`` or ``https``.
        host: As in the address.
        port: None: the usual one.
    """
    if scheme == "https":
        return True
    try:
        with open(OWN_PORTS, encoding="ascii") as file:
            first = int(file.read(32))
    except (OSError, ValueError):
        first = _USUAL_FIRST
    # a container, and who may open raw sockets there, has addresses of its own
    return _LOOPBACK.fullmatch(host) is not None and (port or _PORTS[scheme]) < first


def trusting(verify: bool | str | None, cert: str | tuple[str, str] | None) -> ssl.SSLContext:
    """Checks who is at the other end.

    Raises:
        OSError: One of them cannot be read (``ssl.SSLError`` is one).
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
    """Sends, and reads the head of the answer.

    Args:
        address: Where; a name and a password in it are sent as HTTP's own.
        headers: Beside those that HTTP needs.
        body: What is sent.
        timeout_s: For everything together, but the resolver's own time for a name.
        context: Makes what TLS needs.

    Raises:
        OSError: It came to nothing; ``TimeoutError``: in time. ``PostError``: what came is no answer.
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
    """To the first of its addresses that takes it; however many there are, until the deadline."""
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
        raise PostError("a header of the request has a line's end in it")
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
    """The answer that some bytes are; None where its head is not complete.

    Args:
        came: All that came until now, with what is reported before the answer (status 1xx).
        ended: Whether no more will come.

    Raises:
        PostError: It is none, or is too long.
    """
    at = 0
    while end := _HEAD_ENDS.search(came, at):
        head = came[at : end.start()]
        found = _STATUS.match(head)
        if found is None:
            raise PostError("what it answers is no HTTP")
        status = int(found[1])
        if status >= 200:
            later = _LATER.search(head)
            reason = (found[2] or b"")[:_MOST_REASON].decode("latin-1")
            return HttpAnswer(status, reason, later[1].decode() if later is not None else "")
        at = end.end()
    if len(came) > MOST_HEAD:
        raise PostError(f"its answer's head is longer than {MOST_HEAD >> 10} kB")
    if ended:
        raise PostError("it ends the connection instead of an answer")
    return None

"""``gputop web`` for a test, and what a browser says to it."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from probes.proc.procfs import descendants
from tests.conftest import needed
from tests.gputop_command import GPUTOP
from tests.rootless_support import as_nobody

RECORDING = Path(__file__).resolve().parents[1] / "recordings" / "numpy-sync.msgpack"
PATIENCE_S = 120.0


@contextmanager
def served(*words: str, as_root: bool = False) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """(the server, its whole address); run by nobody where we are root, unless it has to be root."""
    needed("textual_serve")
    prefix = as_nobody() if os.geteuid() == 0 and not as_root else ()
    server = subprocess.Popen(
        [*prefix, *GPUTOP, "web", *words, "--port", "0"], stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stderr is not None
        found = re.search(r"http://\S+", server.stderr.readline())
        assert found, server.stderr.read()
        yield server, found[0]
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(PATIENCE_S) == 0
        assert not descendants((server.pid,))


def asked(address: str, path: str = "/", **headers: str) -> tuple[int, str, dict[str, str]]:
    """(status, text, headers) of the answer to a request with these headers."""
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE_S)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    told = answer.status, answer.read().decode("latin-1"), dict(answer.getheaders())
    connection.close()
    return told


def token_of(address: str) -> str:
    """As the page reads it from its address."""
    return urlsplit(address).fragment.removeprefix("token=")


def socket_headers(address: str, token: str, origin: str = "") -> dict[str, str]:
    """Of a request for the connection that steers the screen, by the server's own page or another one."""
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    own = f"http://{urlsplit(address).netloc}"
    return upgrade | {
        "Sec-WebSocket-Key": "a" * 22 + "==",
        "Sec-WebSocket-Protocol": f"gputop, {token}",
        "Origin": origin or own,
    }


@contextmanager
def steering(address: str) -> Iterator[socket.socket]:
    """The connection of a browser that has the token."""
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE_S)
    connection.request("GET", "/ws", headers=socket_headers(address, token_of(address)))
    assert connection.sock.recv(4096).startswith(b"HTTP/1.1 101")
    try:
        yield connection.sock
    finally:
        connection.close()


def frame(text: str) -> bytes:
    """A message of a browser: masked, by zeros."""
    data = text.encode()
    return b"\x81\xfe" + len(data).to_bytes(2, "big") + b"\0" * 4 + data


def screens(server: subprocess.Popen[str]) -> list[int]:
    """The processes that draw a screen: children of the server.

    One that is forked and executes no program yet is none: the server waits for that, so to stop it would
    stop the server.
    """
    children = [pid for pid in descendants((server.pid,)) if parent(pid) == server.pid]
    return [pid for pid in children if _command(pid) != _command(server.pid)]


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def parent(pid: int) -> int:
    """Of a process, 0 where it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0

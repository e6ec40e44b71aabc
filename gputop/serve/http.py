"""The metrics' HTTP server: this machine alone, or who has the token; TLS where a certificate is named."""

from __future__ import annotations

import hmac
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

_PATIENCE_S: Final = 10.0
_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Address:
    """Where metrics are told, and to whom.

    Attributes:
        token: What has to stand behind ``Authorization: Bearer``; "": nobody has to say one.
        certificate: A file with certificate and key, for TLS; "" without.
        names: What it may be called by who asks, the port aside; empty: anything. A web page can make a name
            of its own point to this machine (DNS rebinding), and would be told all without a token.
    """

    host: str
    port: int
    token: str = ""
    certificate: str = ""
    names: frozenset[str] = frozenset()


class MetricsServer(ThreadingHTTPServer):
    """Answers ``/metrics`` and ``/healthz``; at most so many requests at a time."""

    daemon_threads = True
    request_queue_size = 16

    def __init__(self, address: Address, registry: CollectorRegistry, healthy: Callable[[], bool]) -> None:
        """Listen; ``start`` answers.

        Args:
            address: Where.
            registry: Of the metrics.
            healthy: Whether the daemon observes.

        Raises:
            OSError: The port is taken, or the certificate cannot be read (``ssl.SSLError``).
        """
        self.address, self.registry, self.healthy = address, registry, healthy
        self.free = threading.BoundedSemaphore(_AT_ONCE)
        super().__init__((address.host, address.port), _Handler)
        self._context: ssl.SSLContext | None = None
        if address.certificate:
            try:
                self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                self._context.load_cert_chain(address.certificate)
            except OSError:
                self.server_close()
                raise

    def finish_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own: the handshake as well, so that nobody waits for another."""
        if not self.free.acquire(blocking=False):
            return
        connection = [request]  # TLS puts another one in its place
        late = threading.Timer(_PATIENCE_S, _cut, (connection,))  # of all, not of each byte
        late.daemon = True
        late.start()
        try:
            request.settimeout(_PATIENCE_S)
            if self._context is not None:
                connection[0] = self._context.wrap_socket(request, server_side=True)
            super().finish_request(connection[0], client_address)
        finally:
            late.cancel()
            self.free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who goes away in the middle is no error of ours."""

    def start(self) -> None:
        """Answers from now on."""
        threading.Thread(target=self.serve_forever, name="gputop-metrics", daemon=True).start()

    def stop(self) -> None:
        """Ends."""
        self.shutdown()
        self.server_close()


def _cut(connection: list[socket.socket]) -> None:
    """Who has not read its answer by now gets none."""
    with suppress(OSError):  # it has gone
        connection[0].shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer
    server_version, sys_version = "gputop", ""
    timeout = _PATIENCE_S

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/healthz":
            self._answer(200 if self.server.healthy() else 503, "text/plain", b"")
        elif path != "/metrics":
            self._answer(404, "text/plain", b"/metrics and /healthz are here\n")
        elif not self._called_by_name():
            self._answer(403, "text/plain", b"without a token, ask localhost or 127.0.0.1\n")
        elif not self._allowed():
            self._answer(401, "text/plain", b"a token is asked for\n")
        else:
            encode, kind = choose_encoder(self.headers.get("Accept", ""))
            self._answer(200, kind, encode(self.server.registry))

    def _called_by_name(self) -> bool:
        names = self.server.address.names
        return not names or urlsplit("//" + self.headers.get("Host", "")).hostname in names

    def _allowed(self) -> bool:
        token = self.server.address.token
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        return not token or hmac.compare_digest(given.encode(), token.encode())

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Says nothing: a scrape is no news."""

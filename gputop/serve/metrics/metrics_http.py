"""The HTTP server of metrics: for this machine only, or with a token; TLS with a certificate."""

from __future__ import annotations

import hmac
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from gputop.serve.rate_limit import RateLimiter, thread_cpu_s

PATIENCE_S: Final = 10.0
AT_ONCE: Final = 64
_COMERS: Final = (200.0, 64.0)  # accepted connections in a second, and at once
MAKING: Final = (0.1, 2.0)  # CPU seconds that answers may cost in a second, and at once
_OPENMETRICS: Final = "application/openmetrics-text"


@dataclass(frozen=True, slots=True)
class Address:
    """Address of the metrics server, and its access control."""

    host: str
    port: int
    token: str = ""  # required bearer token; "": none
    certificate: str = ""  # a file with certificate and key, for TLS; "": none
    # accepted host names of requests; empty: any. A web page can point a name of its own at this machine (DNS
    # rebinding), and could read the metrics if no token is required
    names: frozenset[str] = frozenset()


@dataclass(eq=False, slots=True)
class _OpenRequest:
    """A request being answered."""

    connection: socket.socket  # TLS puts another one in its place
    since_s: float
    thread: threading.Thread = field(default_factory=threading.current_thread)


class MetricsServer(ThreadingHTTPServer):
    """Answers ``/metrics`` and ``/healthz``, with a limit on requests at a time."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: Address, registry: CollectorRegistry, healthy: Callable[[], bool]) -> None:
        """Listen; ``start`` answers.

        Raises:
            OSError: The port is in use, or the certificate cannot be read (``ssl.SSLError``).
        """
        self.address, self.registry, self.healthy = address, registry, healthy
        self._lock, self._making = threading.Lock(), threading.Lock()
        self._open: list[_OpenRequest] = []  # who is answered, the oldest first
        self._comers, self._pace = RateLimiter(*_COMERS), RateLimiter(*MAKING)
        self._made: dict[str, tuple[str, bytes]] = {}  # the last response by format
        self._accepting: threading.Thread | None = None
        self._answers_s = 0.0
        super().__init__((address.host, address.port), _Handler)
        self._context: ssl.SSLContext | None = None
        if address.certificate:
            try:
                self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                self._context.load_cert_chain(address.certificate)
            except OSError:
                self.server_close()
                raise

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept the next connection; those beyond the rate limit wait in the kernel."""
        time.sleep(self._comers.spend())
        return super().get_request()

    @property
    def spent_s(self) -> float:
        """CPU time caused by requests."""
        with self._lock:
            threads = [*(one.thread for one in self._open), *filter(None, [self._accepting])]
            return self._answers_s + sum(map(thread_cpu_s, threads))

    def response(self, accept: str) -> tuple[str, bytes]:
        """Return content type and text of the metrics; the previous ones above the CPU limit."""
        wanted = _OPENMETRICS if choose_encoder(accept)[1].startswith(_OPENMETRICS) else ""
        with self._making:
            if wanted in self._made and self._pace.owed_s():
                return self._made[wanted]
            begun_s = time.thread_time()
            encode, kind = choose_encoder(wanted)
            self._made[wanted] = kind, encode(self.registry)
            self._pace.spend(time.thread_time() - begun_s)
            return self._made[wanted]

    def finish_request(self, request: Any, client_address: Any) -> None:
        """In its own thread, with the TLS handshake, so that no connection delays another."""
        opened = _OpenRequest(request, time.monotonic())
        with self._lock:
            for oldest in self._open[: max(len(self._open) - AT_ONCE + 1, 0)]:
                _cut(oldest)  # requests are answered at once: a long connection is idle
            self._open.append(opened)
        try:
            request.settimeout(PATIENCE_S)
            if self._context is not None:
                opened.connection = self._context.wrap_socket(request, server_side=True)
            super().finish_request(opened.connection, client_address)
        finally:
            with self._lock:
                self._open = [one for one in self._open if one is not opened]
                self._answers_s += time.thread_time()

    def service_actions(self) -> None:
        """Cut requests that are too old; one time limit for all of it, not for each byte."""
        with self._lock:
            late = [one for one in self._open if time.monotonic() - one.since_s > PATIENCE_S]
        for request in late:
            _cut(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: a client that disconnects is none."""

    def start(self) -> None:
        self._accepting = threading.Thread(target=self.serve_forever, name="gputop-metrics", daemon=True)
        self._accepting.start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


def _cut(request: _OpenRequest) -> None:
    with suppress(OSError):  # disconnected already
        request.connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer
    server_version, sys_version = "gputop", ""
    timeout = PATIENCE_S

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/healthz":
            self._answer(200 if self.server.healthy() else 503, "text/plain", b"")
        elif path != "/metrics":
            self._answer(404, "text/plain", b"/metrics and /healthz are here\n")
        elif (names := self.server.address.names) and self._host() not in names:
            self._answer(403, "text/plain", b"without a token only localhost and 127.0.0.1 are served\n")
        elif not self._allowed():
            self._answer(401, "text/plain", b"a bearer token is required\n")
        else:
            self._answer(200, *self.server.response(self.headers.get("Accept", "")))

    def _host(self) -> str | None:
        return urlsplit("//" + self.headers.get("Host", "")).hostname

    def _allowed(self) -> bool:
        token = self.server.address.token
        sent = self.headers.get("Authorization", "").removeprefix("Bearer ")
        return not token or hmac.compare_digest(sent.encode(), token.encode())

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: scrapes are frequent."""

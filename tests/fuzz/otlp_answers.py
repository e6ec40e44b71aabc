"""What whoever holds a collector's port answers: any bytes, cut anywhere."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from random import Random
from typing import Any

from gputop.serve.metrics import post
from tests.conftest import needed
from tests.fuzz import mutation
from tests.fuzz.target import Target

_LINES = (
    b"HTTP/1.1 200 OK", b"HTTP/1.0 503 Busy", b"HTTP/1.1 100 Continue", b"HTTP/1.1 307 \xff\x1b[2J",
    b"Retry-After: 7", b"retry-after:\t120 ", b"Retry-After: Wed, 21 Oct 2099 07:28:00 GMT",
    b"Retry-After: -1", b"Retry-After: 1e999", b"Set-Cookie: a=b; Domain=127.0.0.1", b"Location: http://127.0.0.1:1/",
    b"Transfer-Encoding: chunked", b"Content-Length: 99999999999999999999", b"Content-Encoding: gzip",
    b"X: " + b"y" * 9000, b"", b"HTTP/9.9 999 x", b"HTTP/1.1 2\xb90 OK", b": \0", b"\r",
)  # fmt: skip


def _seeds() -> list[bytes]:
    heads = (
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 429 Too Many\r\nRetry-After: 30\r\n\r\nbody",
        b"HTTP/1.1 404 Not Found\n\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 102 Processing\r\n\r\n" * 40,
    )
    return [bytes([size]) + head for size in (1, 9, 255) for head in heads]


def _mutate(data: bytes, random: Random) -> bytes:
    lines = data[1:].split(b"\r\n")
    at = random.randrange(len(lines))
    match random.randrange(5):
        case 0:
            return mutation.some_bytes(data, random)
        case 1:
            lines[at] = random.choice(_LINES)
        case 2:
            lines.insert(at, random.choice(_LINES))
        case 3:
            lines *= random.choice((2, 30))
        case _:
            lines[at] = mutation.some_bytes(lines[at], random)
    return data[:1] + b"\r\n".join(lines)[:100_000]


class _Connection:
    """One that says this, so much at a time, and then no more."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size = data, size
        self.read = 0

    def settimeout(self, _seconds: float) -> None: ...
    def close(self) -> None: ...

    def send(self, data: Any) -> int:
        return len(data)

    def recv(self, most: int) -> bytes:
        data = self._data[self.read : self.read + min(self._size, most)]
        self.read += len(data)
        return data


def _run(data: bytes, _folder: Path) -> None:
    http = needed("opentelemetry.exporter.otlp.common.http")
    otlp: Any = needed("gputop.serve.metrics.otlp")
    connection = _Connection(data[1:], 1 + 16 * data[0] if data else 1)
    really, post.connected_to = post.connected_to, lambda *_: connection  # type: ignore[assignment, return-value]
    session = otlp.LocalSession()
    try:
        with contextlib.suppress(OSError):
            answer = session.request(url="http://127.0.0.1/v1/metrics", headers={}, data=b"x", timeout=60.0)
            if not 200 <= answer.status_code < 600 or len(answer.reason) > 100:
                raise AssertionError("an answer that is none")
            later = http._extract_retry_after(_Result(answer.headers))
            if later is not None and not (math.isfinite(later) and 0 <= later < 1e6):
                raise AssertionError(f"to be tried again in {later} s")
    finally:
        post.connected_to = really
    if connection.read > post.MOST_HEAD + post.READ_BYTES:
        raise AssertionError(f"{connection.read} bytes of an answer were read")
    if len(session.why) > 300 or (session.cookies and list(session.cookies)):
        raise AssertionError("something of an answer is kept")


class _Result:
    """As the exporter asks for headers."""

    def __init__(self, headers: Any) -> None:
        self._headers = headers

    def headers(self) -> Any:
        return self._headers


TARGET = Target(_seeds, _mutate, _run)

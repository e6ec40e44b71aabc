"""A collector that answers without end, drop by drop, or is somebody else: nobody waits, nothing piles up."""

from __future__ import annotations

import re
import resource
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gputop.errors import CommandError
from tests.conftest import needed, skip_or_fail
from tests.waiting import wait_until

TOKEN = "Bearer secret"
PATIENCE_S = 60.0  # of a hostile server, with nobody there any more
OK = b"HTTP/1.1 200 OK\r\n"
BLOCK = b"x" * 65536

Saying = Callable[[socket.socket], Iterator[bytes]]


@contextmanager
def holding_the_port(say: Saying, certificate: Path | None = None) -> Iterator[tuple[str, list[bytes]]]:
    """Somebody who took a collector's port; its address, and the requests that came."""
    listening = socket.create_server(("127.0.0.1", 0))
    requests: list[bytes] = []
    over = threading.Event()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if certificate is not None:
        context.load_cert_chain(certificate)

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(PATIENCE_S)
            if certificate is not None:
                connection = context.wrap_socket(connection, server_side=True)
            requests.append(_request(connection))
            for data in say(connection):
                if over.is_set():
                    return
                connection.sendall(data)

    def run() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=run, daemon=True).start()
    try:
        scheme = "http" if certificate is None else "https"
        yield f"{scheme}://127.0.0.1:{listening.getsockname()[1]}", requests
    finally:
        over.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def _request(connection: socket.socket) -> bytes:
    """All of it, so that the end of the connection is no reset."""
    came = b""
    while True:
        came += connection.recv(65536)
        head, _, body = came.partition(b"\r\n\r\n")
        size = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        if size is not None and len(body) >= int(size[1]):
            return came


def _endless(head: bytes, block: bytes, pause_s: float = 0.0) -> Saying:
    def say(_connection: socket.socket) -> Iterator[bytes]:
        yield head
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            yield block
            time.sleep(pause_s)

    return say


def _cookies(_connection: socket.socket) -> Iterator[bytes]:
    lines = b"".join(
        b"Set-Cookie: c%d-%d=%s\r\n" % (time.monotonic_ns(), at, b"y" * 4000) for at in range(50)
    )
    yield OK + lines + b"Content-Length: 0\r\n\r\n"


ATTACKS: dict[str, Saying] = {
    "a body without end": _endless(OK + b"\r\n", BLOCK),
    "a body of an error without end": _endless(b"HTTP/1.1 400 Bad\r\n\r\n", BLOCK),
    "a length that is never reached": _endless(OK + b"Content-Length: 99999999999\r\n\r\n", BLOCK),
    "chunks without end": _endless(
        OK + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + BLOCK + b"\r\n"
    ),
    "a chunk's size without end": _endless(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"0" * 65536),
    "headers without end": _endless(OK, b"X-A: " + b"y" * 60_000 + b"\r\n"),
    "a header without end": _endless(OK + b"X-A: ", BLOCK),
    "a status without end": _endless(b"HTTP/1.1 200 ", BLOCK),
    "no answer, but news of it without end": _endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a status drop by drop": _endless(b"HTTP/1.1 200 ", b"O", 0.05),
    "headers drop by drop": _endless(OK, b"X: y\r\n", 0.05),
    "a body drop by drop": _endless(OK + b"Content-Length: 99999\r\n\r\n", b"z", 0.05),
    "news of it drop by drop": _endless(b"", b"HTTP/1.1 102 Processing\r\n\r\n", 0.05),
    "nothing": _endless(b"", b"", 0.05),
    "cookies": _cookies,
}


def sender_to(address: str, told: list[str], collect: Callable[[], Any] = list) -> Any:
    """One that sends at once, and again and again."""
    otlp = needed("gputop.serve.metrics.otlp")
    return otlp.Sender(otlp.destination(address, 0.05), collect, {"service.name": "gputop"}, told.append)


def _tried(sender: Any, count: int, begun: float) -> bool:
    """Whether it has tried so often, or for so long."""
    return sender.sent + sender.failed > count or time.monotonic() - begun > 20


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.slow
def test_whatever_holds_the_port_one_exchange_ends_in_time_and_leaves_nothing(
    attack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with holding_the_port(ATTACKS[attack]) as (address, requests):
        sender = sender_to(address, [])
        tries: list[float] = []
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        sender.start()
        while len(tries) < 3 and sum(tries) < PATIENCE_S:
            begun, count = time.monotonic(), len(tries)
            wait_until(partial(_tried, sender, count, begun), "a try")
            tries.append(time.monotonic() - begun)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        sender.stop()
    assert requests
    assert max(tries) < 10.0  # a second, however busy the machine
    assert grown < 40_000  # kB


def test_addresses_that_take_nothing_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name may have any number of them."""
    from gputop.serve.metrics import post

    with ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(2):  # its queue is full: what comes now waits for ever
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", full.getsockname())]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_words, **_named: found * 30)
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            post.post("http://many.example/", {}, b"", 0.5, ssl.create_default_context)
        assert time.monotonic() - begun < 10.0


def made_certificate(folder: Path) -> Path:
    """Of 127.0.0.1, by itself."""
    if shutil.which("openssl") is None:
        skip_or_fail("no openssl to make a certificate: make setup")
    key, pem = folder / "key.pem", folder / "both.pem"
    words = (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    )
    files = ["-keyout", str(key), "-out", str(pem)]
    subprocess.run(["openssl", *words.split(), *files], check=True, capture_output=True)
    pem.write_text(pem.read_text() + key.read_text())
    return pem


# -- tokens --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS"])
@pytest.mark.parametrize(
    "header", ["Authorization=Bearer%20secret", "x-honeycomb-team=secret", "Cookie=a%3Db"]
)
@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:4318",
        "http://localhost:4318",
        "http://[::1]:4318",
        "http://collector:80",
        "http://10.1.2.3",
    ],
)
def test_a_token_goes_to_nobody_who_may_be_somebody_else(
    variable: str, header: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    otlp = needed("gputop.serve.metrics.otlp")
    monkeypatch.setenv(variable, header)
    with pytest.raises(CommandError, match=r"would be sent in the clear to .*https://") as refused:
        otlp.destination(address)
    assert "secret" not in str(refused.value)
    otlp.destination(address.replace("http:", "https:"))
    monkeypatch.setenv(variable, "X-Scope-OrgID=tenant")  # Mimir's name of a tenant is none
    otlp.destination(address)


def test_a_password_in_the_address_is_a_token() -> None:
    otlp = needed("gputop.serve.metrics.otlp")
    with pytest.raises(CommandError, match="the password in the address"):
        otlp.destination("http://me:secret@127.0.0.1:4318")


def test_a_port_is_roots_where_the_kernel_keeps_it_for_root(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from gputop.serve.metrics import post

    first = tmp_path / "first"
    monkeypatch.setattr(post, "OWN_PORTS", str(first))
    assert post.is_roots_alone("http", "127.0.0.1", 1023)
    for text, port, roots in (
        ("1024", 1023, True),
        ("1024", 1024, False),
        ("0", 80, False),
        ("80", None, False),
    ):
        first.write_text(f"{text}\n")
        assert post.is_roots_alone("http", "localhost", port) is roots
    assert not post.is_roots_alone("http", "127.0.0.1.evil.example", 1)


def test_a_token_comes_by_tls_to_whom_the_certificate_names_and_to_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = made_certificate(tmp_path)
    strange: list[str] = []
    told: list[str] = []
    with holding_the_port(lambda _connection: iter([OK + b"\r\n"]), certificate) as (address, requests):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20secret")
        stranger = sender_to(address, strange)  # the system does not know its certificate
        stranger.start()
        wait_until(lambda: strange, "a sentence")
        stranger.stop()
        assert not any(TOKEN.encode() in one for one in requests)
        assert "certificate" in strange[0]
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(certificate))
        sender = sender_to(address, told)
        sender.start()
        wait_until(lambda: sender.sent, "a sending")
        sender.stop()
    assert told == []
    assert any(TOKEN.encode() in one for one in requests)


def test_neither_a_proxy_nor_netrc_of_the_environment_gets_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    netrc = tmp_path / "netrc"
    netrc.write_text("default login me password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    fine = lambda _connection: iter([OK + b"\r\n"])  # noqa: E731
    with holding_the_port(fine) as (address, requests), holding_the_port(fine) as (proxy, stolen):
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        sender = sender_to(address, told)
        sender.start()
        wait_until(lambda: sender.sent, "a sending")
        sender.stop()
    assert (told, stolen) == ([], [])
    assert not any(b"authorization" in one.lower() for one in requests)

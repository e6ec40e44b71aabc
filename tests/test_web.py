"""``gputop web``: the same screen in a browser, for whoever has the address, and for nobody else."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from gputop.simgpu import library_build
from tests.browser import visiting
from tests.cli_support import run
from tests.conftest import needed, skip_or_fail
from tests.gputop_command import GPUTOP
from tests.observed_demo import SLEEPS
from tests.rootless_support import as_nobody
from tests.serving import calling, serving
from tests.waiting import HANGS_S
from tests.web_pages import PATIENCE_S, RECORDING, frame, screens, served, steering


def test_a_browser_shows_the_screen_and_its_keys_work() -> None:
    with served(str(RECORDING)) as (_server, address), visiting() as browser:
        page = browser.open(address)
        browser.wait_for(page, "WHY is the GPU idle?")
        browser.wait_for(page, "FIX 1 ")
        assert page.url.endswith("/"), "the token is not left in the address"
        page.keyboard.press("w")  # without a click before
        browser.wait_for(page, "from the return of cudaMemcpyAsync")
        for key, refusal in (("x", "the browser cannot save"), ("R", "the browser cannot record")):
            page.keyboard.press(key)
            browser.wait_for(page, refusal)
        home = urlsplit(address).netloc
        assert {urlsplit(one).netloc for one in browser.asked if not one.startswith("data:")} == {home}
        slow = ("ping=", "task queue exceeded")  # what a busy machine has Chromium say
        assert not [text for text in browser.complaints if not text.startswith(slow)]


def test_browsers_look_at_one_observation_each_with_its_own_page_and_pause() -> None:
    with served() as (server, address), visiting() as browser:
        first, second = browser.open(address), browser.open(address)
        for page in (first, second):
            browser.wait_for(page, "palette")  # the last line: all was drawn, for the second one, too
        assert len(screens(server)) == 3, "two screens, and what observes for both"
        first.keyboard.press("?")
        browser.wait_for(first, "Back")
        second.keyboard.press("Space")
        browser.wait_for(second, "PAUSED")
        assert "Back" not in browser.terminal(second)
        assert "PAUSED" not in browser.terminal(first)
        first.close()
        _until(lambda: len(screens(server)) == 2)
        assert "PAUSED" in browser.terminal(second)
        browser.close_pages()
        _until(lambda: screens(server) == [])  # nobody looks any more


@pytest.mark.long
def test_browsers_have_a_replay_each() -> None:
    with served(str(RECORDING)) as (server, address), visiting() as browser:
        for _ in range(2):
            browser.wait_for(browser.open(address), "palette")
        assert len(screens(server)) == 2
        browser.close_pages()
        _until(lambda: screens(server) == [])


@pytest.mark.parametrize("sent", ["", "[" * 60_000, '["resize", {"width": Infinity, "height": 1}]'])
@pytest.mark.mainly("sent1")
def test_a_browser_that_goes_at_once_or_sends_nonsense_leaves_no_screen_and_no_traceback(sent: str) -> None:
    with served(str(RECORDING)) as (server, address):
        with steering(address) as connection:
            if sent:
                connection.sendall(frame(sent))
                with suppress(ConnectionError):
                    while connection.recv(4096):
                        pass  # until the server has enough of it
        _until(lambda: screens(server) == [])
    assert server.stderr is not None
    assert "Traceback" not in server.stderr.read()


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_root_is_refused_and_told_what_to_do() -> None:
    if os.geteuid() != 0:
        skip_or_fail("only root is refused")
    done = run("web", str(RECORDING))
    assert done.returncode == 1
    assert "run gputop web as yourself" in done.stderr
    assert "sudo gputop record" in done.stderr
    assert "as in a container: --allow-root" in done.stderr


def test_root_may_where_it_says_so() -> None:
    if os.geteuid() != 0:
        skip_or_fail("only root is refused")
    command = [*GPUTOP, "web", "--allow-root", "--port", "0", str(RECORDING)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        said = server.stderr.readline()
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=HANGS_S)
    assert re.search(r"http://127\.[\d.]+:\d+/#token=\S{40,}", said), said


@pytest.mark.dear
@pytest.mark.ebpf
def test_root_in_a_container_shows_calls_to_several_browsers_by_one_set_of_probes() -> None:
    library_build.ensure_built()
    demo = subprocess.Popen(
        [sys.executable, "-m", "gputop.demo", "numpy-sync", "3600"],
        env=library_build.environment(os.environ) | SLEEPS,
        stdout=subprocess.DEVNULL,
    )
    try:
        words = ("--allow-root", "--simgpu", "--pid", str(demo.pid))
        with served(*words, as_root=True) as (server, address), visiting() as browser:
            for _ in range(2):
                browser.wait_for(browser.open(address), "cudaMemcpyAsync")
            assert len(screens(server)) == 3, "two screens, and what observes for both"
            with pytest.raises(AssertionError), steering(address.replace("token=", "token=x")):
                pass  # refused: without the token nobody sees what root sees
    finally:
        demo.kill()
        demo.wait()


@pytest.mark.long
@pytest.mark.ebpf
def test_a_daemon_s_screen_is_in_a_browser_without_root_and_one_that_comes_late_has_all_names(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    home = tmp_path_factory.mktemp("daemon")
    for folder in (home, home.parent, home.parent.parent):
        folder.chmod(0o755)
    (home / "state").touch()
    (home / "state").chmod(0o666)
    with (
        serving(home) as daemon,
        calling(home, 100_000, 0.005, nobody=True),
        served("--socket", daemon.socket) as (server, address),
        visiting() as browser,
    ):
        for _ in range(2):  # the second one comes when all names have been sent
            page = browser.open(address)
            for text in ("cudaMemset", "python -c"):
                browser.wait_for(page, text)
        assert len(screens(server)) == 2
        assert daemon.status()["marks"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("no-such.msgpack",), "no-such.msgpack"),
        (("--host", "0.0.0.0"), "name an address"),
        (("--pid", "1", str(RECORDING)), "leave it or FILE out"),
        (("--simgpu", str(RECORDING)), "leave it or FILE out"),
        (("--socket", "--pid", "1"), "leave FILE, --pid and --simgpu out"),
        (("--host", "192.0.2.1"), "cannot listen on 192.0.2.1"),
    ],
)
@pytest.mark.mainly("words0-no-such.msgpack", "words5-cannot listen on 192.0.2.1")
def test_what_cannot_be_served_is_reported_before_a_browser_comes(words: tuple[str, ...], said: str) -> None:
    needed("textual_serve")
    prefix = as_nobody() if os.geteuid() == 0 else ()
    done = run("web", *words, program=(*prefix, *GPUTOP))
    assert done.returncode != 0
    assert said in done.stderr


def test_on_a_phone_s_width_the_answer_has_its_class_cause_line_and_fix() -> None:
    with served(str(RECORDING)) as (_server, address), visiting() as browser:
        page = browser.open("about:blank")
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto(address)
        for text in ("WHY sync-bound", "C02 proved", "at ", "FIX "):
            browser.wait_for(page, text)
        assert "too small" not in browser.terminal(page)


def test_a_page_with_another_token_says_so_and_one_resized_while_it_connects_has_its_size() -> None:
    with served(str(RECORDING)) as (_server, address), visiting() as browser:
        stranger = browser.open(f"{address.partition('#')[0]}#token=another")
        stranger.wait_for_selector(".refused", state="visible")
        assert not stranger.is_visible(".ended"), "nothing has ended"
        page = browser.open(address)
        browser.wait_for(page, "WHY")
        assert not page.is_visible(".refused")
        # the screen answers a size that is sent before the connection is there
        width = page.evaluate(
            """() => new Promise(answer => {
                const socket = new WebSocket("/ws?width=120&height=40");
                socket.binaryType = "arraybuffer";
                socket.send(JSON.stringify(["resize", { width: 38, height: 12 }]));
                let text = "";
                socket.addEventListener("message", message => {
                    text += new TextDecoder().decode(message.data);
                    const said = text.match(/too small .(\\d+x\\d+)/);
                    if (said) { answer(said[1]); socket.close(); }
                });
            })"""
        )
        assert width == "38x12"

"""A page in a real browser, which is offline and tells what the page requested and complained of."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import skip_or_fail

_COLOURS, _MOVES = re.compile(r"\x1b\[[0-9;]*m"), re.compile(r"\x1b\[[0-9;?<]*[A-Za-z]")


def _bytes(sent: str | bytes) -> bytes:
    return sent.encode() if isinstance(sent, str) else sent


@dataclass(slots=True)
class Opened:
    """A page that is shown.

    Attributes:
        page: Playwright's.
        asked: Addresses that it requested, itself left out.
        complaints: What the browser wrote to its console, and errors of scripts.
    """

    page: Any
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Visitor:
    """A browser that visits a server; all its pages have the same cookies.

    Attributes:
        context: Playwright's.
        asked: Addresses that were asked for.
        complaints: What the browser wrote to its console, and errors of scripts.
    """

    context: Any
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    received: dict[Any, list[bytes]] = field(default_factory=dict)

    def open(self, address: str) -> Any:
        """One more page, Playwright's."""
        page = self.context.new_page()
        frames = self.received.setdefault(page, [])
        page.on(
            "websocket", lambda socket: socket.on("framereceived", lambda sent: frames.append(_bytes(sent)))
        )
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("console", lambda message: self.complaints.append(_said(message)))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(address)
        return page

    def wait_for(self, page: Any, text: str, patience_s: float = 60.0) -> None:
        """Until a page's terminal was sent this text, in one piece."""
        deadline = time.monotonic() + patience_s
        while text not in self.terminal(page):
            assert time.monotonic() < deadline, f"{text!r} is not in {self.terminal(page)[-4000:]!r}"
            page.wait_for_timeout(50)

    def terminal(self, page: Any) -> str:
        """What a page's terminal was sent, without colours."""
        told = b"".join(self.received[page]).decode("utf-8", "replace")
        return _MOVES.sub("\n", _COLOURS.sub("", told))

    def close_pages(self) -> None:
        """Close them all."""
        for page in self.context.pages:
            page.close()


@contextmanager
def visiting() -> Iterator[Visitor]:
    """Headless Chromium that may ask the network."""
    with _chromium() as browser:
        yield Visitor(browser.new_context(viewport={"width": 1300, "height": 860}))


@contextmanager
def _chromium() -> Iterator[Any]:
    """Playwright's browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        skip_or_fail("playwright is not installed: pip install '.[exchange-test]'")
    browser_path = shutil.which("chromium")
    if browser_path is None:
        skip_or_fail("there is no browser: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def _said(message: Any) -> str:
    """What the browser wrote to its console, and about which address."""
    return f"{message.text} {message.location.get('url', '')}".strip()


@contextmanager
def opened(path: Path, *, width: int = 1200, dark: bool = False) -> Iterator[Opened]:
    """Shows a file in headless Chromium."""
    address = path.resolve().as_uri()
    with _chromium() as browser:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            offline=True,
        )
        page = context.new_page()
        found = Opened(page)
        page.on("request", lambda request: found.asked.append(request.url))
        page.on("console", lambda message: found.complaints.append(_said(message)))
        page.on("pageerror", lambda error: found.complaints.append(str(error)))
        page.on("dialog", lambda dialog: found.complaints.append(f"dialog: {dialog.message}"))
        page.goto(address)
        found.asked.remove(address)
        yield found

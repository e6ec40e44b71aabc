"""A page in a real browser, which is offline and tells what the page asked for and complained of."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import skip_or_fail


@dataclass(slots=True)
class Opened:
    """A page that is shown.

    Attributes:
        page: Playwright's.
        asked: Addresses that it asked for, itself left out.
        complaints: What the browser wrote to its console, and errors of scripts.
    """

    page: Any
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@contextmanager
def opened(path: Path, *, width: int = 1200, dark: bool = False) -> Iterator[Opened]:
    """Shows a file in headless Chromium."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        skip_or_fail("playwright is not installed: pip install '.[exchange-test]'")
    browser_path = shutil.which("chromium")
    if browser_path is None:
        skip_or_fail("there is no browser: apt-get install chromium")
    address = path.resolve().as_uri()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        try:
            context = browser.new_context(
                viewport={"width": width, "height": 900},
                color_scheme="dark" if dark else "light",
                offline=True,
            )
            page = context.new_page()
            found = Opened(page)
            page.on("request", lambda request: found.asked.append(request.url))
            page.on("console", lambda message: found.complaints.append(message.text))
            page.on("pageerror", lambda error: found.complaints.append(str(error)))
            page.on("dialog", lambda dialog: found.complaints.append(f"dialog: {dialog.message}"))
            page.goto(address)
            found.asked.remove(address)
            yield found
        finally:
            browser.close()

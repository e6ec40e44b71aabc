"""Small things of the screen: keys say what they do, hidden panes come back, glyphs follow the locale."""

from __future__ import annotations

import pytest

from gputop.process.terminal import prefers_ascii
from tests import fake_frames as fake
from tests import fake_reports as why
from tests.screen_support import running, text_of


@pytest.mark.slow
async def test_all_panes_bring_the_timeline_back() -> None:
    async with running(fake.frame(), (120, 44)) as (app, feed, pilot):
        timeline = app.screen.query_one("#timeline")
        assert not timeline.display, "it has nothing to show yet"
        feed.why = why.explained(why.finding())
        app.poll()
        await pilot.pause()
        assert timeline.display
        await pilot.press("t")
        await pilot.pause()
        assert not timeline.display
        assert "1 pane hidden [F]" in text_of(app)
        await pilot.press("F")
        await pilot.pause()
        assert timeline.display
        assert "hidden" not in text_of(app).splitlines()[0]


@pytest.mark.slow
@pytest.mark.parametrize("key", ["w", "question_mark", "exclamation_mark"])
async def test_on_a_page_q_goes_back_and_says_so(key: str) -> None:
    async with running(fake.frame(), (160, 44)) as (app, _feed, pilot):
        assert "q Quit" in text_of(app).splitlines()[-1]
        await pilot.press(key)
        await pilot.pause()
        foot = text_of(app).splitlines()[-1]
        assert "q Back" in foot
        assert "Quit" not in foot
        await pilot.press("q")
        await pilot.pause()
        assert "q Quit" in text_of(app).splitlines()[-1]


@pytest.mark.parametrize(
    ("variables", "ascii_only"),
    [
        ({"LC_ALL": "C"}, True),
        ({"LC_ALL": "POSIX", "LANG": "en_US.UTF-8"}, True),
        ({"LANG": "C"}, True),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),  # as Python makes the one above
        ({"LC_CTYPE": "C", "LANG": "en_US.UTF-8"}, True),
        ({"LC_ALL": "C.UTF-8", "LANG": "C"}, False),
        ({"LANG": "C.UTF-8"}, False),
        ({"LANG": "de_DE.UTF-8", "LC_CTYPE": "C.UTF-8"}, False),
        ({}, False),
    ],
)
def test_a_locale_without_utf_8_draws_with_ascii(
    variables: dict[str, str], ascii_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("locale.getpreferredencoding", lambda _do: "utf-8")
    assert prefers_ascii() is ascii_only

"""Questions over the screen: what is typed, what is suggested, who gets the answer."""

from __future__ import annotations

from typing import Any

import pytest
from textual.widgets import Input

from gputop.ui.panes.dialogs import MOST_CHARACTERS, FilterSuggester, Menu, Question
from tests import fake_frames as fake
from tests.screen_support import Shown


def asked(*arguments: Any, **options: Any) -> Shown:
    """A screen with a question."""
    screen = Shown(fake.frame(), size=(80, 24))
    screen.ask(Question(*arguments, **options))
    return screen


@pytest.mark.slow
def test_a_wrong_answer_leaves_the_question_open_and_a_right_one_closes_it() -> None:
    answers = list[str]()

    def answered(text: str) -> str:
        answers.append(text)
        return "" if text == "ok" else "not ok"

    screen = asked("p", answered, "o", hint="a word")
    assert "a word" in screen.text()
    screen.press("enter")
    assert "not ok" in screen.text()
    assert "a word" not in screen.text(), "the hint gives way to what is wrong"
    screen.press("k")
    assert "not ok" not in screen.text()
    screen.press("enter")
    assert not isinstance(screen.app.screen, Question)
    assert answers == ["o", "ok"]


def test_an_answer_may_ask_the_next_question() -> None:
    def first(text: str) -> str:
        screen.app.prompt(Question("second", lambda text: ""))
        return ""

    screen = asked("first", first)
    screen.press("enter")
    assert "second" in screen.text()
    assert "first" not in screen.text()


@pytest.mark.slow
def test_who_asks_hears_of_every_key_and_of_escape() -> None:
    heard = list[str]()
    screen = asked(
        "filter", lambda text: "", changed=heard.append, cancelled=lambda: heard.append("cancelled")
    )
    screen.press("a", "b", "backspace", "escape")
    assert heard == ["a", "ab", "a", "cancelled"]
    assert not isinstance(screen.app.screen, Question)


def test_a_text_has_an_end() -> None:
    screen = asked("p", lambda text: "", "x" * (MOST_CHARACTERS - 1))
    screen.press("end", "a", "b")
    assert len(screen.app.screen.query_one(Input).value) == MOST_CHARACTERS


def test_a_hostile_title_is_no_markup() -> None:
    assert "[red]x[/red]" in asked("[red]x[/red]", lambda text: "").text()


def test_the_menu_shows_the_place_of_what_was_chosen() -> None:
    chosen = list[int]()
    screen = Shown(fake.frame(), size=(80, 24))
    screen.ask(Menu("which", ["[one]", "two"], chosen.append))
    assert "[one]" in screen.text()
    screen.press("j", "enter")
    assert chosen == [1]
    assert not isinstance(screen.app.screen, Menu)


@pytest.mark.parametrize(
    ("typed", "suggested"),
    [
        ("gp", "gpu:"),
        ("user:a", "user:alice"),
        ("gpu:0 us", "gpu:0 user:"),
        ("", None),
        ("zz", None),
        ("gpu: ", None),
    ],
)
async def test_the_filter_completes_its_last_word(typed: str, suggested: str | None) -> None:
    suggester = FilterSuggester(["gpu:", "user:", "user:alice", "user:bob"])
    assert await suggester.get_suggestion(typed) == suggested


@pytest.mark.slow
def test_right_takes_what_the_filter_suggests() -> None:
    screen = Shown(fake.frame(), "slash")
    screen.type("gpu:3")
    screen.press("backspace")
    screen.type("3")
    screen.press("ctrl+u")
    screen.type("user:al")
    screen.press("right", "enter")
    assert screen.view.listing.filter.text == "user:alice"

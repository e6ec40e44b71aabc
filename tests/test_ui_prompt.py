"""A question in the last line: what is typed, what is shown, who gets the answer."""

from __future__ import annotations

import pytest

from gputop.ui.model.look import ASCII, UNICODE, Glyphs, line_width, plain
from gputop.ui.model.prompt import MOST_CHARACTERS, Prompt, Prompting


def typed(prompt: Prompt, *keys: str) -> Prompt:
    """The prompt after these keys; a single character types itself."""
    for key in keys:
        assert prompt.key(key, key if len(key) == 1 else None) == "open"
    return prompt


@pytest.mark.parametrize(
    ("keys", "text", "cursor"),
    [
        (("a", "b", "left", "c"), "run.gtpacb", 9),
        (("backspace", "home", "x"), "xrun.gt", 1),
        (("ctrl+a", "delete", "ctrl+e", "!"), "un.gtp!", 7),
        (("left", "left", "ctrl+k"), "run.g", 5),
        (("left", "ctrl+u"), "p", 0),
        (("left", "right", "right", "delete", "end"), "run.gtp", 7),
    ],
)
def test_keys_edit_the_line(keys: tuple[str, ...], text: str, cursor: int) -> None:
    prompt = typed(Prompt("file", "run.gtp"), *keys)
    assert (prompt.text, prompt.cursor) == (text, cursor)


def test_ctrl_w_deletes_a_word_or_the_last_part_of_a_path() -> None:
    assert typed(Prompt("p", "one two  "), "ctrl+w").text == "one "
    assert typed(Prompt("p", "/tmp/runs/a.gputop"), "ctrl+w").text == "/tmp/runs/"


def test_enter_ends_and_escape_cancels() -> None:
    assert Prompt("p").key("enter", "\r") == "done"
    assert Prompt("p").key("escape", "\x1b") == "cancelled"


def test_what_is_pasted_has_no_line_ends_and_no_escapes_and_an_end() -> None:
    prompt = Prompt("p", "ab")
    prompt.key("left", None)
    prompt.insert("1\n2\x1b[31m")
    assert prompt.text == "a12[31mb"
    prompt.insert("x" * 10_000)
    assert len(prompt.text) == MOST_CHARACTERS


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("text", ["", "short", "x" * 300, "日本語" * 60])
def test_the_line_fills_the_width_and_the_cursor_is_in_sight(width: int, text: str, glyphs: Glyphs) -> None:
    prompt = Prompt("go to", text, "-30s, 14:02 or 50%")
    for key in ("end", "left", "home"):
        prompt.key(key, None)
        line = prompt.line(width, glyphs)
        assert line_width(line) == width
        assert any(token == "badge.live" for _, token in line)


def test_the_hint_gives_way_to_what_is_wrong() -> None:
    prompt = Prompt("go to", "abc", "-30s, 14:02 or 50%")
    assert "14:02" in plain(prompt.line(80, UNICODE))
    prompt.error = "abc is no time"
    assert "abc is no time" in plain(prompt.line(80, UNICODE))
    assert "14:02" not in plain(prompt.line(80, UNICODE))
    prompt.key("backspace", None)
    assert "no time" not in plain(prompt.line(80, UNICODE))


def test_a_wrong_answer_leaves_the_question_open_and_a_right_one_closes_it() -> None:
    view, answers = Prompting(), list[str]()

    def answered(text: str) -> str:
        answers.append(text)
        return "" if text == "ok" else "not ok"

    view.ask(Prompt("p", "o"), answered)
    view.prompt_key("enter", None)
    assert view.prompt is not None
    assert view.prompt.error == "not ok"
    view.prompt_key("k", "k")
    view.prompt_key("enter", None)
    assert view.prompt is None
    assert answers == ["o", "ok"]


def test_an_answer_may_ask_the_next_question() -> None:
    view = Prompting()

    def first(text: str) -> str:
        view.ask(Prompt("second"), lambda text: "")
        return ""

    view.ask(Prompt("first"), first)
    view.prompt_key("enter", None)
    assert view.prompt is not None
    assert view.prompt.title == "second"


def test_who_asks_hears_of_every_key_and_of_escape() -> None:
    view, heard = Prompting(), list[str]()
    view.ask(
        Prompt("filter"), lambda text: "", changed=heard.append, cancelled=lambda: heard.append("cancelled")
    )
    for key in ("a", "b", "backspace"):
        view.prompt_key(key, key if len(key) == 1 else None)
    view.prompt_paste("cd")
    view.prompt_key("escape", None)
    assert heard == ["a", "ab", "a", "acd", "cancelled"]
    assert view.prompt is None

"""Nobody waits for the screen: what takes long is done in pieces, what is there already is not made anew."""

from __future__ import annotations

import asyncio

import pytest
from textual.renderables.background_screen import BackgroundScreen

from gputop.format import format_clock
from gputop.ui.terminal.palette import PALETTES
from tests import fake_frames as fake
from tests.screen_support import feed_frame, running, text_of


async def test_others_get_their_turn_for_every_widget_that_gets_another_theme() -> None:
    async with running(fake.frame()) as (app, _, pilot):
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        await app.refresh_css()
        counting.cancel()
        assert turns > len(list(app.screen.walk_children()))
        await pilot.pause()


async def test_all_widgets_get_another_theme_also_those_below_a_question() -> None:
    async with running(fake.frame()) as (app, _, pilot):
        await pilot.press("J")
        await pilot.pause()
        main, question = app.screen_stack[0], app.screen.query_one("#question")
        before = main.styles.background, question.styles.background
        app.wear(PALETTES["light"])
        await pilot.pause()
        assert {pane.styles.background for pane in main.query("Pane")} == {main.styles.background}
        assert before[0] != main.styles.background
        assert before[1] != question.styles.background


@pytest.mark.parametrize("key", ["J", "ctrl+p"])
async def test_below_a_question_and_the_palette_the_screen_goes_on_as_it_was_painted(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(BackgroundScreen, "__rich_console__")  # Textual's way: each sign is styled anew
    async with running(fake.frame(0)) as screen:
        first = text_of(screen[0]).splitlines()[:2]
        await screen[2].press(key)
        await screen[2].pause()
        assert text_of(screen[0]).splitlines()[:2] == first
        await feed_frame(screen, fake.frame(1))
        assert format_clock(fake.frame(1).wall_ns, fake.frame(1).utc_offset_s, millis=True) in text_of(
            screen[0]
        )

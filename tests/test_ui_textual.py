"""What Textual does for the screen: tabs, clicks, tooltips, marked text, the panes of a big terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.engine.calls.stack_table import Line
from gputop.engine.frame import OFF_CPU, StackRow
from gputop.ui.main_screen import MainScreen
from gputop.ui.model.pages import COLUMNS_HELP
from gputop.ui.page_screens import HelpPage, WhyPage
from gputop.ui.panes.flame_pane import FlamePane
from gputop.ui.panes.pane import key_at
from gputop.ui.panes.process_pane import Processes
from gputop.ui.panes.table_panes import CallsPane, LinesPane
from gputop.ui.panes.timeline_pane import TimelinePane
from tests import fake_frames as fake
from tests import fake_reports as why
from tests.screen_support import running, text_of


def place_of(text: str, part: str) -> tuple[int, int]:
    """Where on the screen a text begins: column, line."""
    y = next(place for place, line in enumerate(text.splitlines()) if part in line)
    return text.splitlines()[y].index(part), y


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_a_click_on_a_tab_opens_it(size: tuple[int, int]) -> None:
    async with running(fake.frame(), size) as (app, _, pilot):
        assert app.screen.query_one(CallsPane).display
        await pilot.click(offset=place_of(text_of(app), "Lines  "))
        await pilot.pause()
        assert app.screen.query_one(LinesPane).display
        assert not app.screen.query_one(CallsPane).display


@pytest.mark.parametrize(("key", "page"), [("question_mark", HelpPage), ("w", WhyPage)])
@pytest.mark.slow
async def test_a_click_on_a_key_in_brackets_presses_it(key: str, page: type) -> None:
    async with running(fake.frame(), (120, 40)) as (app, _, pilot):
        await pilot.press(key)
        assert isinstance(app.screen, page)
        await pilot.click(offset=place_of(text_of(app), "[Esc]"))
        await pilot.pause()
        assert isinstance(app.screen, MainScreen)


def test_only_what_is_a_key_can_be_clicked() -> None:
    text = "─ Help [Esc] back [w] page [docker] x"
    assert [key_at(text, text.index(part)) for part in ("[Esc", "[w", "[docker", "Help")] == [
        "escape",
        "w",
        "",
        "",
    ]
    assert key_at(text, text.index("] back")) == "escape"
    assert key_at(text, text.index(" back")) == ""


async def test_a_column_says_what_it_means_under_the_pointer() -> None:
    async with running(fake.frame(), (120, 40)) as (app, _, pilot):
        x, y = place_of(text_of(app), "RUNQ%")
        await pilot.hover(offset=(x + 2, y))
        await pilot.pause()
        assert app.screen.query_one(Processes).tooltip == COLUMNS_HELP["RUNQ%"]
        await pilot.hover(offset=(x + 2, y + 1))
        await pilot.pause()
        assert app.screen.query_one(Processes).tooltip is None


async def test_text_that_is_marked_with_the_mouse_is_copied() -> None:
    async with running(fake.frame(), (120, 40)) as (app, _, pilot):
        x, y = place_of(text_of(app), "alice")
        await pilot.mouse_down(offset=(x, y))
        await pilot.hover(offset=(x + 4, y))
        await pilot.mouse_up(offset=(x + 4, y))
        await pilot.pause()
        assert app.screen.get_selected_text() == "alice"
        await pilot.press("ctrl+c")
        assert app.clipboard == "alice"
        assert app.return_value is None, "it copies instead of quitting"
        await pilot.press("ctrl+c")
        assert app.return_value == 0


async def test_a_click_on_the_timeline_goes_there() -> None:
    async with running(fake.frame(), (120, 40), replay=True) as (app, feed, pilot):
        feed.why = replace(why.explained(why.finding()), lanes=why.lanes())
        app.poll()
        await pilot.pause()
        pane = app.screen.query_one(TimelinePane)
        now = pane.content_region
        await pilot.click(offset=(now.x + now.width - 20, now.y))
        await pilot.pause()
        end = fake.frame().time_ns
        assert end - 2 * fake.S < feed.transport.position_ns < end
        assert not feed.transport.playing


async def test_the_flame_graph_shows_where_the_time_goes_and_zooms() -> None:
    lines = [
        Line("/home/me/train.py", number, name) for number, name in ((9, "main"), (20, "step"), (30, "load"))
    ]
    stacks = (
        StackRow((lines[1], lines[0]), "cudaMemcpy", 10, 3 * fake.S),
        StackRow((lines[2], lines[0]), OFF_CPU, 10, fake.S),
    )
    row = replace(fake.process(0), stacks=stacks)
    async with running(replace(fake.frame(), processes=(row,)), (120, 40)) as (app, _, pilot):
        await pilot.press("down", "enter", "left")
        await pilot.press(*["right"] * 4)
        pane = app.screen.query_one(FlamePane)
        pane.focus()
        app.screen.query_one("#details").open(pane, focus=True)  # type: ignore[attr-defined]
        await pilot.pause()
        for part in ("main()", "step()", "load()", "75%"):
            assert part in text_of(app)
        await pilot.press("down", "down", "enter")
        await pilot.pause()
        assert "load()" not in text_of(app), "its neighbour is out of sight"
        await pilot.press("enter")
        await pilot.pause()
        assert "load()" in text_of(app)


async def test_a_calm_program_has_two_lines_and_an_idle_one_five() -> None:
    async with running(fake.frame(), (120, 40)) as (app, feed, pilot):
        heights = []
        for told in (
            why.explained(why.finding(), why.finding("C13", 900)),
            why.explained(told=why.account(0, 0)),
        ):
            feed.why = told
            app.poll()
            await pilot.pause()
            heights.append(app.screen.query_one("WhyPane").outer_size.height)
        assert heights[0] > heights[1]
        assert heights[0] <= 6

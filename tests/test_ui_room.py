"""Which pane has how much room: what is zoomed, what has the keys, what stands beside what."""

from __future__ import annotations

import pytest

from gputop.ui.panes.process_pane import Processes
from gputop.ui.panes.table_panes import CallsPane, LinesPane
from tests import fake_frames as fake
from tests import fake_reports as why
from tests.screen_support import running, text_of, until


@pytest.mark.slow
async def test_a_zoomed_table_stands_below_the_verdict_with_its_tabs() -> None:
    async with running(fake.frame(), (120, 40)) as (app, _, pilot):
        await pilot.press("tab", "tab", "tab")
        row = app.view.selected
        assert row is not None
        assert isinstance(app.focused, CallsPane)
        await pilot.press("z")
        await pilot.pause()
        text = text_of(app)
        assert "Processes" not in text
        assert text.index("LIVE") < text.index("WHY") < text.index(f"Flame  of {row.pid}")
        await pilot.press("tab")
        assert isinstance(app.focused, LinesPane), "the tabs work there"
        await pilot.press("z", "shift+tab", "shift+tab", "z")
        await pilot.pause()
        text = text_of(app)
        assert isinstance(app.focused, Processes)
        assert text.index("LIVE") < text.index("WHY") < text.index("Processes 4")
        assert "Flame" not in text


async def test_a_small_screen_draws_no_box_around_the_calls_that_have_the_keys() -> None:
    async with running(fake.frame(), (80, 24)) as (app, _, pilot):
        await pilot.press("tab", "tab", "tab")
        assert isinstance(app.focused, CallsPane)
        assert "╭" not in text_of(app)


@pytest.mark.slow
async def test_beside_the_tabs_stands_what_fits_whole() -> None:
    """Half of a range is another range: ``2.0us to 1`` was no ``2.0us to 16.8ms``."""
    async with running(fake.frame(), (120, 40)) as (app, _, pilot):

        def title() -> str:
            return next((line for line in text_of(app).splitlines() if "Calls  Lines" in line), "")

        assert " histogram 1.0us to 67.1ms" in title()
        for width in range(80, 120, 3):
            await pilot.resize_terminal(width, 20)
            await until(pilot, lambda: len(title()) == width, "the new width")  # noqa: B023
            line = title()
            assert ("histogram" in line) == ("histogram 1.0us to 67.1ms" in line)
            assert " rows" in line


async def test_a_wider_screen_has_every_column_of_a_narrower_one_and_no_shorter_name() -> None:
    async with running(fake.frame(), (120, 40)) as (app, _, pilot):
        before: set[str] = set()
        for size in ((120, 40), (160, 40), (180, 44), (200, 50), (250, 70)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            head, *rows = text_of(app).partition("Calls  Lines")[2].splitlines()[1:4]
            columns = set(head.replace("▾", " ").replace("│", " ").split())
            assert before <= columns, size
            assert "cudaLaunchKernel" in rows[1]
            before = columns


async def test_the_timeline_takes_no_line_that_it_leaves_blank() -> None:
    async with running(fake.frame(gpus=1), (200, 50)) as (app, feed, pilot):
        feed.why = why.explained(why.finding())
        for _ in range(2):
            app.poll()
            app.show()
            await pilot.pause()
        lanes = text_of(app).partition(" Timeline ")[2].partition("╰")[0].splitlines()[1:-1]
        assert "GPU 0" in lanes[0]
        assert [line for line in lanes if not line.strip(" │")] == []

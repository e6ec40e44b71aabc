"""Every key of every pane, pressed in three sizes: the screen stays whole, and one gets back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from textual.pilot import Pilot

from gputop.ui.app import GputopApp
from gputop.ui.panes.flame_pane import FlamePane
from gputop.ui.panes.gpu_panes import Gpus
from gputop.ui.panes.process_pane import Processes
from gputop.ui.panes.table_panes import CallsPane, LinesPane, ThreadsPane
from gputop.ui.panes.timeline_pane import TimelinePane
from gputop.ui.panes.why_pane import WhyPane
from tests import fake_frames as fake
from tests import fake_reports as why
from tests.screen_support import running, text_of

SIZES = [(80, 24), (120, 40), (200, 50)]
PANES = (WhyPane, Gpus, Processes, CallsPane, LinesPane, ThreadsPane, FlamePane, TimelinePane)
ENDS = {"q", "ctrl+c", "ctrl+q", "ctrl+z"}  # the program, or its terminal


async def _back(app: GputopApp, pilot: Pilot[int]) -> None:
    """To the main screen, with all panes."""
    for _ in range(4):
        if len(app.screen_stack) == 1:
            break
        await pilot.press("escape")
        await pilot.pause()
    assert len(app.screen_stack) == 1, "Escape leads back from everything"
    app.screen.minimize()
    await pilot.press("F")


def _keys(app: GputopApp) -> list[str]:
    """What can be pressed here."""
    return sorted({one.binding.key for one in app.screen.active_bindings.values() if one.enabled} - ENDS)


@pytest.mark.slow
@pytest.mark.mainly("size1")
@pytest.mark.parametrize("size", SIZES)
async def test_every_key_of_every_pane_leaves_a_whole_screen_that_escape_leads_back_from(
    size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # x and S write there
    frame = fake.frame(gpus=8, processes=12)
    pressed: set[str] = set()
    async with running(frame, size) as (app, feed, pilot):
        feed.why = replace(why.explained(why.finding(), diagnosis=why.diagnosis()), lanes=why.lanes(gpus=8))
        app.poll()
        await pilot.pause()
        for kind in PANES:
            pane = app.screen.query_one(kind)
            pane.focus()
            await pilot.pause()
            for key in [one for one in _keys(app) if kind is WhyPane or one not in pressed]:
                pane.focus()
                await pilot.press(key)
                await pilot.pause()
                pressed.add(key)
                lines = text_of(app).split("\n")
                assert app.crash is None, key
                assert len(lines) == size[1], key
                assert {cell_len(line) for line in lines} == {size[0]}, key
                await _back(app, pilot)
        assert {"w", "z", "G", "e", "o", "C", "t", "1", "F", "question_mark", "space", "T"} <= pressed

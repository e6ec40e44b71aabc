"""The timeline on the screen: what is kept of the past, when it has room, and its keys."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest

from gputop.analysis.answer.picture import COLUMN_NS, GPU_ROWS, GpuLane
from gputop.playback.feed import Explained
from gputop.ui.model.time.lanehistory import KEPT, MARKS, LaneHistory
from gputop.ui.panes.table_panes import ThreadsPane
from gputop.ui.panes.timeline_pane import TimelinePane
from gputop.ui.panes.why_pane import WhyPane
from tests import fake_frames as fake
from tests import fake_reports as why
from tests.screen_support import running, text_of
from tests.yardstick import turn_s

END = 100 * why.S


def test_a_newer_window_replaces_what_an_older_one_said() -> None:
    history = LaneHistory()
    history.append(why.lanes(END, columns=4))
    newer = replace(
        why.lanes(END, columns=4), gpus=(GpuLane("GPU 0", 0, why.shares(GPU_ROWS, 4, (0, 0, 4))),)
    )
    history.append(newer)
    shares, known = history.cells(("gpu", "GPU 0"), newer.first, 4, 1)
    assert (shares[0] == 255).all()
    assert known.tolist() == [1, 1, 1, 1]


def test_old_columns_and_lanes_are_forgotten() -> None:
    history = LaneHistory()
    first = why.lanes(END, columns=10)
    history.append(first)
    later = (first.first + KEPT + 5) * COLUMN_NS
    history.append(why.lanes(later, columns=10))
    assert history.cells(MARKS, first.first, 10, 1)[1].sum() == 5, "half of them made room"
    for number in range(300):
        history.append(replace(first, threads=(why.thread_lane(number, 10),)))
    assert history.cells(("states", 299), first.first, 10, 1)[1].all()
    assert not history.cells(("states", 0), first.first, 10, 1)[1].any()


@pytest.mark.parametrize(
    ("size", "there"), [((80, 24), False), ((99, 40), False), ((120, 40), True), ((200, 50), True)]
)
async def test_big_screens_have_it_and_t_shows_or_hides_it(size: tuple[int, int], there: bool) -> None:
    async with running(fake.frame(), size) as (app, feed, pilot):
        feed.why = why.explained(why.finding())
        app.poll()
        await pilot.pause()
        assert ("─ Timeline" in text_of(app)) is there
        await pilot.press("t")
        assert ("─ Timeline" in text_of(app)) is not there
        await pilot.press("t")
        assert ("─ Timeline" in text_of(app)) is there


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "keys"),
    [
        ((80, 20), "tl"), ((80, 24), "tl"), ((80, 36), "tl"), ((100, 36), "l"), ((120, 40), "l"),
        ((180, 44), "l"), ((250, 70), "l"),
    ],
)  # fmt: skip
async def test_beside_timeline_and_output_processes_and_calls_keep_a_row(
    size: tuple[int, int], keys: str
) -> None:
    async with running(fake.frame(gpus=2), size, replay=True) as (app, feed, pilot):
        feed.why = why.explained(why.finding())
        feed.output = [f"line {number}" for number in range(20)]
        app.poll()
        await pilot.press(*keys)
        await pilot.pause()
        processes, _, calls = text_of(app).partition("Processes ")[2].partition("Calls  ")
        assert "Timeline" in calls
        assert "line 19" in calls
        process, call = app.view.processes.selected_row, app.view.calls.selected_row
        assert process is not None
        assert call is not None
        assert f"{process.pid} " in processes
        assert call.api.removeprefix("cuda") in calls


async def test_on_a_tiny_screen_it_can_be_requested_beside_the_tables() -> None:
    async with running(fake.frame(), (40, 10)) as (app, feed, pilot):
        feed.why = why.explained(why.finding())
        app.poll()
        await pilot.press("t")
        assert "Timeline" in text_of(app)
        await pilot.press("t")
        assert "Timeline" not in text_of(app)


async def test_without_ebpf_it_is_not_there_and_says_why_where_it_is_requested() -> None:
    async with running(fake.frame(calls_observed=False), (120, 40)) as (app, _, pilot):
        assert "Timeline" not in text_of(app)
        await pilot.press("t")
        assert "no lanes: CUDA calls are unknown without eBPF" in text_of(app)


async def test_its_thread_is_the_one_that_the_cursor_was_put_on() -> None:
    async with running(fake.frame(processes=1), (120, 40)) as (app, feed, pilot):
        feed.why = why.explained(why.finding())
        app.poll()
        await pilot.pause()
        process = app.view.selected
        assert process is not None
        assert f"{process.pid} python  " in text_of(app).split("Timeline")[1]
        await pilot.press("tab", "tab", "tab", "tab", "tab", "down")
        assert isinstance(app.focused, ThreadsPane)
        thread = app.view.threads.selected_row
        assert thread is not None
        assert f"{thread.tid} " in text_of(app).split("Timeline")[1]


@pytest.mark.slow
async def test_up_and_down_on_it_choose_the_thread() -> None:
    async with running(fake.frame(processes=1, threads=3), (120, 40)) as (app, feed, pilot):
        feed.why = why.explained(why.finding())
        app.poll()
        await pilot.pause()
        await pilot.press("shift+tab")
        seen = set()
        for key in ("up", "up", "up", "down", "down", "down"):
            await pilot.press(key)
            subject = app.view.thread_subject()
            assert subject is not None
            assert f"{subject.tid} " in text_of(app).split("Timeline")[1]
            seen.add(subject.tid)
        assert len(seen) == 3


async def test_tab_reaches_it_and_comma_and_full_stop_choose_its_time() -> None:
    async with running(fake.frame(), (120, 40)) as (app, feed, pilot):
        feed.why = why.explained(why.finding())
        app.poll()
        await pilot.pause()
        await pilot.press("shift+tab")
        assert isinstance(app.focused, TimelinePane)
        await pilot.press("full_stop")
        assert re.search(r"Timeline  last 6[0-9.]+ s", text_of(app))
        await pilot.press("comma", "enter")
        assert re.search(r"Timeline  last 1[0-9.]+ s", text_of(app))
        assert "Processes" not in text_of(app)
        await pilot.press("escape", "t")
        assert isinstance(app.focused, WhyPane)


async def test_at_200x50_the_chain_of_the_selected_finding_is_open() -> None:
    async with running(fake.frame(gpus=8), (200, 50)) as (app, feed, pilot):
        feed.why = why.explained(why.finding(), why.finding("C13", 900, advice=("give it a CPU",)))
        app.poll()
        await pilot.pause()
        text = text_of(app)
        for part in (
            "GPUs 8",
            "Processes",
            "Calls  Lines  Threads  Flame",
            "PREEMPTED BY",
            "COMMAND",
            "Timeline",
        ):
            assert part in text
        assert "Chain of 1" in text
        await pilot.press("w", "down", "escape")
        await pilot.pause()
        assert "Chain of 2" in text_of(app)
        assert "python (4242) was running: 900ms" in text_of(app)


async def test_lanes_of_what_comes_later_are_not_shown_after_a_jump_back() -> None:
    async with running(fake.frame(), (120, 40), replay=True) as screen:
        app, feed, pilot = screen
        feed.why = why.explained(why.finding())
        app.poll()
        await pilot.pause()
        assert "GPU 0 " in text_of(app)
        feed.why = Explained()
        feed.newest = fake.frame(-80)
        app.poll()
        await pilot.pause()
        assert "no lanes yet" in text_of(app)


async def test_a_look_at_a_crowd_with_new_lanes_blocks_for_a_frame_s_time_only() -> None:
    frame = fake.frame(processes=200, gpus=8, threads=2, calls=20)
    cost = []
    async with running(frame, (200, 50)) as screen:
        app, feed, pilot = screen
        for turn in range(4):
            end = END + turn * why.S
            lanes = replace(
                why.lanes(end, gpus=8), threads=tuple(why.thread_lane(4242 + number) for number in range(64))
            )
            feed.why = replace(why.explained(why.finding(), end_ns=end), lanes=lanes)
            feed.newest = replace(frame, number=turn + 1, time_ns=end)
            began = time.thread_time()
            app.poll()
            cost.append((time.thread_time() - began) / turn_s())
            await pilot.pause()
    assert min(cost) < 2_500_000, "20 ms where a turn of a loop of Python takes 8 ns"

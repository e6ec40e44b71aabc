"""The timeline on the screen: what its cells say, how much time they span, when it has room, and its keys."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from gputop.explain.causes.families import FAMILIES
from gputop.explain.lanes import COLUMN_NS, GPU_ROWS, PROVED, GpuLane, Lanes
from gputop.playback.feed import Explained
from gputop.ui.model.lanehistory import KEPT, MARKS, LaneHistory
from gputop.ui.model.look import ASCII, UNICODE, Glyphs, line_width, plain
from gputop.ui.model.timeline import Subject, Timeline
from gputop.ui.panes import Findings, TimelinePane, Why
from gputop.ui.tables import Threads
from tests import fake_frames as fake
from tests import fake_reports as why
from tests.screen_support import running, text_of

END = 100 * why.S
MAIN = Subject(4242, "python")


def timeline(lanes: Lanes, glyphs: Glyphs = UNICODE) -> Timeline:
    """A timeline that has seen one window."""
    made = Timeline(glyphs)
    made.take(Explained(why.report(), END, why.S, lanes=lanes))
    return made


def drawn(made: Timeline, width: int = 130, height: int = 30, now_ns: int = END) -> dict[str, str]:
    """The lines by their label, without it and without what stands behind the lane."""
    lines = [plain(line) for line in made.lines(width, height, MAIN, now_ns)[0]]
    return {line[:18].strip() or "?": line[18:-12].rstrip() for line in lines[:-1]} | {"legend": lines[-1]}


def test_a_gpu_is_busy_idle_by_cause_or_not_known() -> None:
    lines = drawn(timeline(why.lanes()))
    lane = lines["GPU 0"]
    assert lane == "·" * 20 + "█" * 20 + "S" * 20 + "s" * 20 + "▒" * 20
    assert "S sync  s sync (estimated)  ▒ presumably busy" in lines["legend"]


def test_a_thread_is_on_a_cpu_waits_for_one_or_for_what() -> None:
    lines = drawn(timeline(why.lanes()))
    assert lines["4242 python"] == "█" * 50 + "Q" * 25 + "l" * 25
    assert lines["its calls"] == "L" * 25 + "─" * 25 + "S" * 50
    for words in ("█ busy / running", "Q runnable", "l lock", "L launch", "S sync"):
        assert words in lines["legend"]


def test_without_colours_and_unicode_the_letters_say_the_same() -> None:
    lines = drawn(timeline(why.lanes(), ASCII))
    assert lines["GPU 0"] == "." * 20 + "#" * 20 + "S" * 20 + "s" * 20 + "+" * 20
    assert all(part.isascii() for part in lines.values())


def test_what_took_most_of_a_cell_is_drawn_and_never_more_than_is_known() -> None:
    shares = why.shares(GPU_ROWS, 200)
    shares[PROVED : PROVED + 2] = [[70], [60]]  # of 255: idle for two causes, together more than half
    shares[0] = 100
    most = drawn(timeline(replace(why.lanes(), gpus=(GpuLane("GPU 0", 0, shares),))))
    assert set(most["GPU 0"]) == {FAMILIES[0].letter}
    shares[PROVED : PROVED + 2] = 50
    shares[0] = 55
    unsure = drawn(timeline(replace(why.lanes(), gpus=(GpuLane("GPU 0", 0, shares),))))
    assert set(unsure["GPU 0"]) == {"·"}, "100 idle, 55 busy, 100 not known"


def test_losses_and_findings_are_marked() -> None:
    marks = drawn(timeline(why.lanes(lossy=True)))["marks"]
    assert marks == " " * 25 + "~" * 8 + " " * 57 + "!"


def test_figures_are_times() -> None:
    lines = [plain(line) for line in timeline(why.lanes()).lines(130, 30, MAIN, END)[0]]
    assert lines[0].endswith(" idle ~4.00s"), "proved and estimated"
    assert lines[2].endswith(" CPU 5.00s")
    assert lines[3].endswith(" calls 7.50s")


def test_windows_join_to_a_minute_and_what_was_not_explained_stays_empty() -> None:
    made = timeline(why.lanes(60 * why.S))
    for end in (70, 75, 100):
        made.take(Explained(why.report(), end * why.S, why.S, lanes=why.lanes(end * why.S)))
    made.zoom(1)
    lane = drawn(made)["GPU 0"]
    assert len(lane) == 100
    # 50 to 75 s and 90 to 100 s were explained; a cell is 0.6 s
    assert not lane[:16].strip()
    assert " " not in lane[17:58]
    assert not lane[59:83].strip(), "15 s of which nothing is known are not filled in"
    assert " " not in lane[84:]
    made.zoom(1)
    assert made.title(130) == "last 300 s"
    made.zoom(-5)
    assert made.title(130) == "last 10 s"


def test_a_newer_window_replaces_what_an_older_one_said() -> None:
    history = LaneHistory()
    history.take(why.lanes(END, columns=4))
    newer = replace(
        why.lanes(END, columns=4), gpus=(GpuLane("GPU 0", 0, why.shares(GPU_ROWS, 4, (0, 0, 4))),)
    )
    history.take(newer)
    shares, known = history.cells(("gpu", "GPU 0"), newer.first, 4, 1)
    assert (shares[0] == 255).all()
    assert known.tolist() == [1, 1, 1, 1]


def test_old_columns_and_lanes_are_forgotten() -> None:
    history = LaneHistory()
    first = why.lanes(END, columns=10)
    history.take(first)
    later = (first.first + KEPT + 5) * COLUMN_NS
    history.take(why.lanes(later, columns=10))
    assert history.cells(MARKS, first.first, 10, 1)[1].sum() == 5, "half of them made room"
    for number in range(300):
        history.take(replace(first, threads=(why.thread_lane(number, 10),)))
    assert history.cells(("states", 299), first.first, 10, 1)[1].all()
    assert not history.cells(("states", 0), first.first, 10, 1)[1].any()


def test_cells_hold_the_same_columns_while_time_goes_on() -> None:
    seen = set()
    for shift in range(0, 2_000, 50):
        made = timeline(why.lanes(END, columns=200))
        made.take(Explained(why.report(), 0, 0, lanes=why.lanes(END + shift * why.MS, columns=200)))
        seen.add(made._view(130).first % made._view(130).group)
    assert seen == {0}


def test_an_old_explanation_does_not_say_now() -> None:
    made = timeline(why.lanes())
    assert plain(made.lines(130, 30, MAIN, END)[0][-2]).rstrip().endswith("now")
    old = plain(made.lines(130, 30, MAIN, END + 4 * why.S)[0][-2])
    assert "now" not in old
    assert "-10 s" in old


def test_what_matters_least_leaves_a_low_pane_first() -> None:
    made = timeline(why.lanes(gpus=8))
    for height in range(1, 18):
        lines, hidden = made.lines(100, height, MAIN, END)
        assert len(lines) == min(height, 13)
        assert all(line_width(line) == 100 for line in lines)
        gpus = sum(plain(line).startswith("GPU") for line in lines)
        assert gpus + hidden == 8
    texts = [plain(line) for line in made.lines(100, 4, MAIN, END)[0]]
    assert [text[:6] for text in texts[:3]] == ["GPU 0 ", "GPU 1 ", "4242 p"]


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


async def test_on_a_tiny_screen_it_can_be_asked_for_beside_the_tables() -> None:
    async with running(fake.frame(), (40, 10)) as (app, feed, pilot):
        feed.why = why.explained(why.finding())
        app.poll()
        await pilot.press("t")
        assert "Timeline" in text_of(app)
        await pilot.press("t")
        assert "Timeline" not in text_of(app)


async def test_without_ebpf_it_says_why_it_is_empty_in_one_line() -> None:
    async with running(fake.frame(calls_observed=False), (120, 40)) as (app, _, _):
        assert "no lanes: calls are not observed without eBPF" in text_of(app)


async def test_its_thread_is_the_one_that_the_cursor_was_put_on() -> None:
    async with running(fake.frame(processes=1), (120, 40)) as (app, feed, pilot):
        feed.why = why.explained(why.finding())
        app.poll()
        await pilot.pause()
        process = app.view.selected
        assert process is not None
        assert f"\n{process.pid} python" in text_of(app)
        await pilot.press("tab", "tab", "tab", "tab", "tab", "down")
        assert isinstance(app.focused, Threads)
        thread = app.view.threads.selected_row
        assert thread is not None
        assert f"\n{thread.tid} " in text_of(app).split("Timeline")[1]


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
            assert f"\n{subject.tid} " in text_of(app).split("Timeline")[1]
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
        assert "last 63 s" in text_of(app)
        await pilot.press("comma", "enter")
        assert "last 13.5 s" in text_of(app)
        assert "Processes" not in text_of(app)
        await pilot.press("escape", "t")
        assert isinstance(app.focused, Why)


async def test_at_200x50_the_chain_of_the_selected_finding_is_open() -> None:
    async with running(fake.frame(gpus=8), (200, 50)) as (app, feed, pilot):
        feed.why = why.explained(why.finding(), why.finding("C13", 900, advice=("give it a CPU",)))
        app.poll()
        await pilot.pause()
        text = text_of(app)
        for part in (
            "Findings 2",
            "GPUs 8",
            "Processes",
            "Calls  Lines",
            "Threads",
            "Timeline",
            "Chain of 1",
        ):
            assert part in text
        assert "do that work on the device" in text
        await pilot.press("tab", "tab", "down")
        assert isinstance(app.focused, Findings)
        assert "Chain of 2" in text_of(app)
        assert "give it a CPU" in text_of(app)
        await pilot.press("enter")
        assert "Why the GPU waits" in text_of(app)


async def test_the_worst_moments_of_the_selected_finding_are_marked_apart() -> None:
    early, late = (why.finding(cause, moments_ns=(at * why.S,)) for cause, at in (("C02", 92), ("C13", 96)))
    async with running(fake.frame(), (200, 50)) as (app, feed, pilot):
        feed.why = replace(why.explained(early, late), lanes=why.lanes(columns=200))
        app.poll()
        await pilot.pause()

        def place() -> int:
            line = next(line for line in text_of(app).splitlines() if line.startswith("marks"))
            assert line.count("▾") == 1
            return line.index("▾")

        first = place()
        await pilot.press("tab", "tab", "down")
        assert place() == first + 40, "4 s later, at 0.1 s a cell"


async def test_a_click_on_a_finding_opens_its_chain_below() -> None:
    async with running(fake.frame(), (200, 50)) as (app, feed, pilot):
        feed.why = why.explained(why.finding(), why.finding("C13", 900))
        app.poll()
        await pilot.pause()
        await pilot.click(offset=app.screen.query_one(Findings).region.offset.translate(10, 2))
        assert "Chain of 2" in text_of(app)


async def test_keys_of_a_pane_that_went_away_go_to_one_that_is_there() -> None:
    async with running(fake.frame(), (200, 50)) as (app, _, pilot):
        await pilot.press("tab", "tab")
        assert isinstance(app.focused, Findings)
        await pilot.press("2")
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert app.focused is not None
        assert app.focused.region.area


def test_of_many_gpus_those_of_the_selected_process_stay_in_a_low_pane() -> None:
    made = timeline(why.lanes(gpus=8))
    texts = [plain(line) for line in made.lines(100, 4, replace(MAIN, gpus=(3, 6)), END)[0]]
    assert [text[:6] for text in texts[:2]] == ["GPU 3 ", "GPU 6 "]


def test_a_thread_of_which_nothing_was_seen_says_so() -> None:
    lines = timeline(why.lanes()).lines(130, 30, Subject(77, "idle"), END)[0]
    assert "nothing seen of it in this time" in plain(lines[2])


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
        assert "no lane yet" in text_of(app)


async def test_a_look_at_a_crowd_with_new_lanes_blocks_for_less_than_20_ms() -> None:
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
            cost.append(time.thread_time() - began)
            await pilot.pause()
    assert min(cost) < 0.020

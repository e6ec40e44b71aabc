"""The verdict line and the page behind it."""

from __future__ import annotations

from dataclasses import replace

import fake_frames as fake
import fake_reports as why
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_ui_screen import running, text_of

from gputop.explain.causes.cause import Level
from gputop.explain.lanes import BUSY, GPU_ROWS, GpuLane
from gputop.explain.report import Range
from gputop.ui.feed import Explained
from gputop.ui.model.look import ASCII, UNICODE, line_width, plain
from gputop.ui.model.verdict import verdict_line

SIZES = [(80, 24), (120, 40), (200, 50)]
NOW = 100 * why.S


def told(explained: Explained, width: int = 120, **more: bool) -> str:
    """The line's text."""
    return plain(verdict_line(explained, NOW, width, UNICODE, focused=more.pop("focused", True), **more))


def tokens(explained: Explained) -> set[str]:
    """The meanings that it has colours for."""
    return {token for _, token in verdict_line(explained, NOW, 120, UNICODE, focused=False)}


def test_the_line_says_how_much_how_sure_and_what_for() -> None:
    line = told(why.explained(why.finding(), why.finding("C13", 900)))
    assert line.startswith(
        "›WHY ▲ idle 48% proved: device-to-host read every step (C02) 4.5ms/step +1 more"
    ), line
    wide = told(why.explained(why.finding()), 160)
    assert "device-to-host read every step (`.cpu()`, `.numpy()`) (C02)" in wide
    assert line.endswith("last 10 s [Enter]")
    assert told(why.explained(why.finding()), focused=False).endswith("[w]")


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_number_cause_and_level_are_never_cut(width: int) -> None:
    long = why.finding(title="the submitting thread is starved of CPU, and more words than fit anywhere")
    line = told(why.explained(long), width)
    assert len(line) == width
    for part in ("idle 48%", "proved", "(C02)"):
        assert part in line
    if width >= 60:
        assert "4.5ms/step" in line


def test_each_level_has_its_word_and_its_colour() -> None:
    for level, token in ((Level.PROVED, "alert"), (Level.STRONG, "host"), (Level.HINT, "warn")):
        found = why.explained(why.finding(level=level))
        assert f"idle 48% {level}:" in told(found)
        assert token in tokens(found)


def test_waste_is_told_as_waste_and_only_when_no_time_is_lost() -> None:
    waste = why.finding("C04", 9_000, kind="waste", loss=Range(0, 9_000 * why.MS), per_step_ns=None)
    assert "(C02)" in told(why.explained(waste, why.finding()))
    assert "(C04) 4.50s overhead" in told(why.explained(waste))


def test_nothing_lost_is_calm() -> None:
    idle = Range(300 * why.MS, 400 * why.MS)
    calm = why.explained(idle=idle, events=())
    assert "· idle 3%: no loss that repeats" in told(calm)
    assert not tokens(calm) & {"alert", "host", "warn"}


def test_a_gpu_that_is_always_at_work_is_not_called_unknown() -> None:
    shares = why.shares(GPU_ROWS, 200, (BUSY, 20, 200))
    busy = replace(why.lanes(), gpus=(GpuLane("GPU 0", 0, shares),))
    calm = replace(why.explained(span_ns=0), lanes=busy)
    assert "· busy 90%: the GPU was at no moment seen without work" in told(calm)


def test_what_is_not_known_is_said() -> None:
    assert "not enough seen yet" in told(Explained())
    assert "not enough seen yet" in told(why.explained(span_ns=why.S // 2, steps=None))
    assert "no call gave a GPU work yet" in told(why.explained(gpus=(), span_ns=0))
    assert "no work came to an end in this time" in told(why.explained(span_ns=0))
    assert "the explanation stopped" in told(Explained(problem="the explanation stopped: KeyError"))
    assert "not known without eBPF" in told(Explained(), traced=False)
    unclear = why.explained(idle=Range(0, 9 * why.S))
    assert "cannot be told" in told(unclear)
    assert "the chain is not known" in told(why.explained(unexplained_ns=why.S))


def test_doubts_stand_in_the_line() -> None:
    assert "▲ lost 12" in told(why.explained(why.finding(), lost_events=12))
    assert "▲ NVML disagrees" in told(why.explained(why.finding(), coverage=False))


def test_an_old_explanation_says_how_old_it_is() -> None:
    assert "10 s up to 7.00s ago" in told(why.explained(why.finding(), end_ns=NOW - 7 * why.S))


@settings(max_examples=100, deadline=None)
@given(
    width=st.integers(40, 220),
    title=st.text(max_size=80),
    level=st.sampled_from(list(Level)),
    lost=st.integers(0, 10**9),
    ascii_only=st.booleans(),
)
def test_the_line_always_fits(width: int, title: str, level: Level, lost: int, ascii_only: bool) -> None:
    explained = why.explained(why.finding(level=level, title=title or "x"), lost_events=lost)
    glyphs = ASCII if ascii_only else UNICODE
    assert line_width(verdict_line(explained, NOW, width, glyphs, focused=False)) == width


@pytest.mark.parametrize("size", SIZES)
async def test_enter_opens_the_chain_and_escape_comes_back(size: tuple[int, int]) -> None:
    async with running(fake.frame(), size) as (app, feed, pilot):
        feed.why = why.explained(why.finding(), why.finding("C13", 900))
        app.poll()
        assert "idle 48% proved" in text_of(app).splitlines()[1]
        await pilot.press("enter")
        shown = " ".join(text_of(app).split())
        for part in ("Why the GPU waits", "GPU 0 had nothing to do", "python (4242) was running: 3.20s",
                     "no CPU for this thread", "do that work on the device", "41.000 s"):  # fmt: skip
            assert part in shown
        assert "idle 48% proved" in text_of(app).splitlines()[1], "the verdict stays"
        await pilot.press("escape")
        assert "Processes" in text_of(app)
        assert app.presenter.focus == "verdict"


@pytest.mark.parametrize("size", SIZES)
async def test_up_and_down_go_from_finding_to_finding(size: tuple[int, int]) -> None:
    async with running(fake.frame(), size) as (app, feed, pilot):
        feed.why = why.explained(why.finding(), why.finding("C13", 900))
        app.poll()
        await pilot.press("w", "down", "down")
        assert "python (4242) was running: 900ms" in " ".join(text_of(app).split())
        chosen = app.presenter.chain.selected
        assert chosen is not None
        assert chosen.cause == "C13"
        # a new explanation in which it comes first: the same finding stays selected
        feed.why = why.explained(why.finding("C13", 5_000), why.finding())
        app.poll()
        chosen = app.presenter.chain.selected
        assert chosen is not None
        assert chosen.cause == "C13"
        await pilot.press("down")
        assert "python (4242) was running: 3.20s" in " ".join(text_of(app).split())


async def test_enter_on_a_moment_of_a_replay_goes_there_and_pauses() -> None:
    async with running(fake.frame(), replay=True) as (app, feed, pilot):
        feed.why = why.explained(why.finding())
        app.poll()
        await pilot.press("enter", "tab", "enter")
        assert feed.transport is not None
        assert feed.transport.position_ns == 1 * why.S + 42 * why.S + 300 * why.MS
        assert not feed.transport.playing
        assert not app.presenter.overlay


async def test_a_chain_that_is_gone_leaves_the_page_in_order() -> None:
    async with running(fake.frame(), (80, 24)) as (app, feed, pilot):
        feed.why = why.explained(why.finding(), why.finding("C13", 900))
        app.poll()
        await pilot.press("enter", "down")
        feed.why = why.explained()
        app.poll()
        assert "48 %" in text_of(app)
        await pilot.press("down", "up", "tab", "enter")
        assert "Processes" in text_of(app)


async def test_the_first_keys_move_among_processes_while_the_verdict_has_the_focus() -> None:
    async with running(fake.frame(processes=5)) as (app, _, pilot):
        first = app.presenter.panes.processes.selected
        await pilot.press("down")
        assert app.presenter.focus == "processes"
        assert app.presenter.panes.processes.selected != first


async def test_a_storm_says_what_it_costs() -> None:
    async with running(fake.frame(), (200, 50)) as (app, feed, _):
        feed.why = why.explained(why.finding())
        app.poll()
        line = next(line for line in text_of(app).splitlines() if "inv/s" in line)
        assert "GPU -71.9ms/s" in line
        assert feed.why.report is not None
        feed.why = replace(feed.why, report=replace(feed.why.report, cpu_waits=((4242, 0),)))
        app.poll()
        assert "GPU -0ms/s" in text_of(app), "nothing is an answer"


async def test_a_pause_holds_the_verdict_too() -> None:
    async with running(fake.frame()) as (app, feed, pilot):
        feed.why = why.explained(why.finding())
        app.poll()
        await pilot.press("space")
        feed.why = why.explained()
        app.poll()
        assert "(C02)" in text_of(app)
        await pilot.press("space")
        app.poll()
        assert "(C02)" not in text_of(app)

"""The verdict line and the page behind it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.analysis.answer.picture import BUSY, GPU_ROWS, GpuLane
from gputop.analysis.answer.report import DiagnosisKind, Finding, Level, Range, WhatIf
from gputop.engine.calls.stack_table import Line
from gputop.engine.frame import Frame
from gputop.playback.feed import Explained
from gputop.ui.main_screen import MainScreen
from gputop.ui.model.answer.chain_page import ChainPage
from gputop.ui.model.answer.verdict import verdict_line
from gputop.ui.model.answer.why import why_of
from gputop.ui.model.look import ASCII, UNICODE, Glyphs, line_width, plain
from gputop.ui.model.look import Line as LookLine
from gputop.ui.panes.process_pane import Processes
from gputop.ui.panes.why_pane import WhyPane
from tests import fake_frames as fake
from tests import fake_reports as why
from tests.screen_support import running, text_of

NOW = 100 * why.S


def line_of(
    explained: Explained,
    width: int,
    glyphs: Glyphs = UNICODE,
    *,
    focused: bool = False,
    frame: Frame | None = None,
) -> LookLine:
    """The line at a moment."""
    told = why_of(explained, replace(frame or fake.frame(), time_ns=NOW))
    return verdict_line(told, width, glyphs, focused=focused)


def told(explained: Explained, width: int = 120, *, focused: bool = True, frame: Frame | None = None) -> str:
    """The line's text."""
    return plain(line_of(explained, width, focused=focused, frame=frame))


def tokens(explained: Explained) -> set[str]:
    """The meanings that it has colours for."""
    return {token for _, token in line_of(explained, 120)}


INPUT = why.diagnosis(DiagnosisKind.INPUT, "input-bound")
TRAIN = Line("/home/me/train.py", 97, "batches")


def input_bound(**changes: object) -> Finding:
    """What prepares a loop's input on its main thread; three quarters of it are estimated."""
    loss = Range(1_200 * why.MS, 9_900 * why.MS, 7_800 * why.MS)
    title = "input prepared on the main thread (`num_workers=0`)"
    facts = {"loss": loss, "title": title, "level": Level.STRONG, "per_step_ns": 78 * why.MS, "line": TRAIN}
    return why.finding("C12", **{**facts, **changes})


def test_the_line_says_how_much_how_sure_and_what_for() -> None:
    line = told(why.explained(why.finding(), why.finding("C13", 900)))
    assert line.startswith(
        "›WHY ▲ idle 48–49 %: device-to-host read every step (C02 proved) 4.5 ms/step +1 more"
    ), line
    wide = told(why.explained(why.finding()), 160)
    assert "device-to-host read every step (`.cpu()`, `.numpy()`) (C02 proved)" in wide
    assert line.endswith("last 10 s, 0.0 s old [Enter]")
    assert told(why.explained(why.finding()), focused=False).endswith("[w]")


def test_the_line_names_the_class_the_cause_and_its_line_at_80_columns_too() -> None:
    explained = why.explained(input_bound(), told=why.account(1_200, 8_500), diagnosis=INPUT)
    assert told(explained, 170).startswith(
        "›WHY ▲ input-bound, idle ~97 %: input prepared on the main thread (`num_workers=0`) "
        "(C12 strong) 12.0–78.0 ms/step at train.py:97"
    ), told(explained, 170)
    narrow = told(explained, 80).rstrip()
    assert narrow.startswith("›WHY ▲ input-bound, idle ~97 %: input prep"), narrow
    assert narrow.endswith("(C12 strong) at train.py:97"), narrow


@pytest.mark.parametrize("file", ["train.py", "s1_inference.py", "train_workers.py"])
def test_at_80_columns_the_title_is_cut_short_before_the_line_of_the_program_goes(file: str) -> None:
    """There was room for nine of its letters, and the line went for the tenth."""
    finding = input_bound(line=Line(f"/home/me/{file}", 97, "batches"))
    line = told(why.explained(finding, told=why.account(1_700, 8_300), diagnosis=INPUT), 80)
    assert line.rstrip().endswith(f"… (C12 strong) at {file}:97"), line
    assert "▲ input-bound, idle ~100 %: inpu" in line, line


def test_of_several_losses_the_first_of_the_class_is_reported() -> None:
    findings = why.finding(), input_bound()
    line = told(why.explained(*findings, diagnosis=replace(INPUT, lead=1)), 160)
    assert "input-bound, idle 48–49 %: input prepared" in line
    assert "+1 more" in line


def test_a_busy_gpu_is_no_alarm_and_what_is_lost_beside_is_reported_with_its_line() -> None:
    busy = why.diagnosis(DiagnosisKind.COMPUTE, "compute-bound", lead=None)
    printed = why.finding("C07", 300, title="`print(tensor)` every step", line=TRAIN)
    line = told(why.explained(printed, told=why.account(300, 1_900), diagnosis=busy), 80).rstrip()
    assert line.startswith("›WHY · compute-bound, idle 3–23 %: `print("), line
    assert line.endswith("(C07 proved) at train.py:97"), line
    assert "(strong)" not in line, "the level is the finding's, not the class's"
    unsure = told(
        why.explained(printed, told=why.account(300, 1_900), diagnosis=replace(busy, level=Level.HINT))
    )
    assert "compute-bound (hint), idle" in unsure


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_number_cause_and_level_are_never_cut(width: int) -> None:
    long = why.finding(title="the submitting thread is starved of CPU, and more words than fit anywhere")
    line = told(why.explained(long, diagnosis=INPUT), width)
    assert len(line) == width
    for part in ("idle 48–49 %", "(C02 proved)"):
        assert part in line
    if width >= 60:
        assert "input-bound" in line
    if width >= 80:
        assert "4.5 ms/step" in line


@pytest.mark.parametrize(("width", "parts"), [(60, 3), (80, 4), (100, 5), (160, 6)])
def test_what_shows_least_goes_first_where_it_is_narrow(width: int, parts: int) -> None:
    explained = why.explained(
        input_bound(), why.finding(), told=why.account(1_200, 8_500), diagnosis=INPUT, lost_events=12
    )
    line = told(explained, width)
    by_worth = (
        "input-bound, idle ~97 %",
        "(C12 strong)",
        "input pre",
        "train.py:97",
        "78.0 ms/step",
        "+1 more",
    )
    assert [part in line for part in by_worth] == [place < parts for place in range(6)], line


def test_a_range_is_reported_as_one_where_a_lower_bound_is_no_value() -> None:
    wide = Range(2_000 * why.MS, 4_100 * why.MS)
    found = why.explained(why.finding(loss=wide, per_step_ns=20 * why.MS))
    assert "(C02 proved) 13.1–26.9 ms/step" in told(found, 160)
    page = ChainPage()
    page.show(found)
    row = next(line for line in map(plain, page.lines(120, UNICODE, replay=False)) if "C02 " in line)
    assert "2.00–4.10s 20–41%" in row
    assert plain(line_of(found, 160, ASCII)).isascii()


def test_each_level_has_its_word_and_its_colour() -> None:
    for level, token in ((Level.PROVED, "alert"), (Level.STRONG, "host"), (Level.HINT, "warn")):
        found = why.explained(why.finding(level=level))
        assert f"(C02 {level})" in told(found)
        assert token in tokens(found)


def test_waste_is_reported_as_waste_and_only_when_no_time_is_lost() -> None:
    waste = why.finding("C04", 9_000, kind="waste", loss=Range(0, 9_000 * why.MS), per_step_ns=None)
    assert "(C02 proved)" in told(why.explained(waste, why.finding()))
    assert "(C04 proved) 0–90 % lost" in told(why.explained(waste))


def test_nothing_lost_is_calm() -> None:
    calm = why.explained(told=why.account(300), events=())
    assert "· idle 3–4 %: no recurring stall" in told(calm)
    assert not tokens(calm) & {"alert", "host", "warn"}


def test_a_busy_gpu_has_its_class_its_level_and_no_alarm() -> None:
    figures = "GPM: SMs active 79 %, tensor cores 2 %"
    compute = why.diagnosis(
        "compute", "compute-bound", lead=None, evidence=("a kernel ran for about 96 %", figures)
    )
    busy = why.explained(told=why.account(100, 300), diagnosis=compute, events=())
    assert told(busy, 80).startswith("›WHY · compute-bound, idle 1–5 %: a kernel ran for about 96 % (strong)")
    assert not tokens(busy) & {"alert", "host", "warn"}


def test_a_gpu_that_nobody_asks_for_work_is_no_alarm() -> None:
    unasked = why.diagnosis(DiagnosisKind.NO_REQUESTS, "no work requested", lead=None)
    calm = why.explained(told=why.account(1_200, 8_500), diagnosis=unasked)
    assert told(calm, 80).startswith("›WHY · no work requested, idle ~97 %: ")
    assert not tokens(calm) & {"alert", "host", "warn"}


def test_a_gpu_that_nvml_saw_idle_is_never_called_untold() -> None:
    seen = why.explained(told=why.account(0, 9_900))
    assert "· idle ~99 %" in told(seen)
    assert "unknown" not in told(seen)


def test_a_gpu_that_is_always_at_work_is_not_called_unknown() -> None:
    shares = why.shares(GPU_ROWS, 200, (BUSY, 20, 200))
    busy = replace(why.lanes(), gpus=(GpuLane("GPU 0", 0, shares),))
    calm = replace(why.explained(span_ns=0), lanes=busy)
    assert "the GPU was never seen idle" in told(calm)


def test_what_is_not_known_is_reported() -> None:
    assert "too few CUDA calls so far to tell when the GPU works" in told(Explained())
    assert "not enough data yet" in told(why.explained(span_ns=why.S // 2, steps=None))
    assert "no process has made a CUDA call yet" in told(Explained(), frame=fake.frame(processes=0))
    assert "no GPU work completed in this time" in told(why.explained(span_ns=0))
    assert "the explanation stopped" in told(Explained(problem="the explanation stopped: KeyError"))
    assert "unknown without eBPF" in told(Explained(), frame=fake.frame(calls_observed=False))
    unclear = why.explained(told=why.account(500, unknown_ms=9_000))
    assert "idle 5–95 %: unknown" in told(unclear), "no source, so a range"
    assert "the chain is unknown for" in told(why.explained(unexplained_ns=why.S))


def test_doubts_stand_in_the_line() -> None:
    assert "▲ lost 12" in told(why.explained(why.finding(), lost_events=12))
    assert "▲ NVML disagrees" in told(why.explained(why.finding(), coverage=False))
    assert "▲ sources disagree" in told(why.explained(why.finding(), told=why.account(agrees=False)))


def test_an_old_explanation_says_how_old_it_is() -> None:
    assert "last 10 s, 7.0 s old" in told(why.explained(why.finding(), end_ns=NOW - 7 * why.S))


def test_what_is_older_than_two_seconds_is_drawn_as_old() -> None:
    fresh, old = (why.explained(why.finding(), end_ns=NOW - age) for age in (why.S, 3 * why.S))
    assert "warn" not in tokens(fresh)
    assert "warn" in tokens(old)
    assert "alert" in tokens(fresh)
    assert "alert" not in tokens(old), "no alarm of a past moment"


def test_the_page_says_how_much_older_the_chains_are_than_the_figures() -> None:
    page = ChainPage()
    for age, said in ((0, False), (9 * why.S, True)):
        page.show(replace(why.explained(why.finding()), detail_age_ns=age))
        text = "\n".join(map(plain, page.lines(120, UNICODE, replay=False)))
        assert ("are 9.00s older than the figures" in text) == said


def test_a_long_file_name_is_cut_before_the_line_of_the_program_goes() -> None:
    line = Line("/home/me/a_name_of_more_than_thirty_letters.py", 1234, "main")
    said = told(why.explained(input_bound(line=line)), 80, focused=False)
    assert " at a_name_o…:1234" in said


@pytest.mark.slow
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
    assert line_width(line_of(explained, width, glyphs)) == width


async def test_enter_opens_the_chain_and_escape_comes_back() -> None:
    async with running(fake.frame(), (80, 24)) as (app, feed, pilot):
        feed.why = why.explained(why.finding(), why.finding("C13", 900))
        app.poll()
        await pilot.pause()
        assert "device-to-host" in "".join(text_of(app).splitlines()[1:5])
        await pilot.press("enter")
        shown = " ".join(text_of(app).split())
        for part in ("Why the GPU waits", "GPU 0 had nothing to do", "python (4242) was running: 3.20s",
                     "no CPU for this thread", "do that work on the device", "41.000 s"):  # fmt: skip
            assert part in shown
        assert "idle 48–49 %: device-to-host" in text_of(app).splitlines()[1], "the verdict stays"
        await pilot.press("escape")
        assert "Processes" in text_of(app)
        assert isinstance(app.focused, WhyPane)


@pytest.mark.slow
async def test_up_and_down_go_from_finding_to_finding() -> None:
    async with running(fake.frame(), (120, 40)) as (app, feed, pilot):
        feed.why = why.explained(why.finding(), why.finding("C13", 900))
        app.poll()
        await pilot.pause()
        await pilot.press("w", "down", "down")
        assert "python (4242) was running: 900ms" in " ".join(text_of(app).split())
        chosen = app.view.chain.selected
        assert chosen is not None
        assert chosen.cause == "C13"
        # a new explanation in which it comes first: the same finding stays selected
        feed.why = why.explained(why.finding("C13", 5_000), why.finding())
        app.poll()
        await pilot.pause()
        chosen = app.view.chain.selected
        assert chosen is not None
        assert chosen.cause == "C13"
        await pilot.press("down")
        assert "python (4242) was running: 3.20s" in " ".join(text_of(app).split())


async def test_the_page_distinguishes_estimates_and_what_is_left_without_each_cause() -> None:
    what_if = (
        WhatIf("C12", 78 * why.MS, 31 * why.MS, 31 * why.MS),
        WhatIf("C02", 31 * why.MS, 12 * why.MS, 9 * why.MS),
    )
    notes = ("2.1s of idle time is estimated, give or take 65.5ms, from NVML's samples",)
    async with running(fake.frame(), (120, 40)) as (app, feed, pilot):
        feed.why = why.explained(input_bound(), why.finding(), what_if=what_if, notes=notes)
        app.poll()
        await pilot.pause()
        await pilot.press("w")
        shown = " ".join(text_of(app).split())
        for part in (
            "A step takes 78.0ms; estimated with C12 fixed: 31.0ms, with C02 as well: 9.0ms to 12.0ms.",
            "C12 strong ~7.80s 12–78%",
            "about 7.80s (1.20s proved, at most 9.90s)",
            notes[0],
        ):
            assert part in shown, part
        await pilot.press("down")
        assert "about" not in text_of(app), "of what is proved there is one figure"


async def test_the_page_of_a_busy_gpu_says_what_it_is_busy_with_and_what_helps() -> None:
    advice = "tensor cores are hardly used (2 %): torch.set_float32_matmul_precision('high')"
    busy = why.diagnosis(DiagnosisKind.COMPUTE, "compute-bound", lead=None, advice=(advice,))
    async with running(fake.frame(), (80, 24)) as (app, feed, pilot):
        feed.why = why.explained(told=why.account(100, 300), diagnosis=busy)
        app.poll()
        await pilot.pause()
        await pilot.press("w")
        shown = " ".join(text_of(app).split())
        for part in ("compute-bound (strong)", "tensor cores are hardly used", "a kernel ran for about 96 %"):
            assert part in shown, part


async def test_enter_on_a_moment_of_a_replay_goes_there_and_pauses() -> None:
    async with running(fake.frame(), replay=True) as (app, feed, pilot):
        feed.why = why.explained(why.finding())
        app.poll()
        await pilot.pause()
        await pilot.press("enter", "tab", "enter")
        assert feed.transport is not None
        assert feed.transport.position_ns == 1 * why.S + 42 * why.S + 300 * why.MS
        assert not feed.transport.playing
        assert isinstance(app.screen, MainScreen)


@pytest.mark.slow
async def test_a_chain_that_is_gone_leaves_the_page_in_order() -> None:
    async with running(fake.frame(), (80, 24)) as (app, feed, pilot):
        feed.why = why.explained(why.finding(), why.finding("C13", 900))
        app.poll()
        await pilot.pause()
        await pilot.press("enter", "down")
        feed.why = why.explained()
        app.poll()
        await pilot.pause()
        assert "48 %" in text_of(app)
        await pilot.press("down", "up", "tab", "enter")
        assert "Processes" in text_of(app)


async def test_the_first_keys_move_among_processes_while_the_verdict_has_the_focus() -> None:
    async with running(fake.frame(processes=5)) as (app, _, pilot):
        first = app.view.processes.selected
        await pilot.press("down")
        assert isinstance(app.focused, Processes)
        assert app.view.processes.selected != first


async def test_a_storm_says_what_it_costs() -> None:
    async with running(fake.frame(), (200, 50)) as (app, feed, pilot):
        feed.why = why.explained(why.finding())
        app.poll()
        await pilot.pause()
        line = next(line for line in text_of(app).splitlines() if "preempt/s" in line)
        assert "GPU -71.9ms/s" in line
        assert feed.why.report is not None
        feed.why = replace(feed.why, report=replace(feed.why.report, cpu_waits=((4242, 0),)))
        app.poll()
        await pilot.pause()
        assert "GPU -0ms/s" in text_of(app), "nothing is an answer"


async def test_a_pause_holds_the_verdict_too() -> None:
    async with running(fake.frame()) as (app, feed, pilot):
        feed.why = why.explained(why.finding())
        app.poll()
        await pilot.pause()
        await pilot.press("space")
        feed.why = why.explained()
        app.poll()
        await pilot.pause()
        assert "C02 proved" in text_of(app)
        await pilot.press("space")
        app.poll()
        await pilot.pause()
        assert "C02 proved" not in text_of(app)

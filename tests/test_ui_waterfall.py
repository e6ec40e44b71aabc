"""One step as a waterfall: the host's calls over the GPU's work, and its idle time by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gputop.analysis.answer.picture import (
    BLOCKED,
    CALL_WORDS,
    COLUMNS,
    FAMILIES,
    QUEUED,
    RUNNING,
    STATE_ROWS,
    GpuTimes,
    HostTime,
    IdleTime,
    OneStep,
)
from gputop.analysis.answer.report import StepFacts
from gputop.playback.feed import Explained
from gputop.ui.model.look import ASCII, UNICODE, Glyphs, line_width, plain
from gputop.ui.model.process.waterfall import LETTERS, NO_STEP, cells_of, step_of, title, waterfall_lines
from gputop.ui.panes import gpu_panes
from tests import each_recording
from tests import fake_frames as fake
from tests import fake_reports as why
from tests import told_recordings as recordings
from tests.screen_support import Shown

MS = 1_000_000
COLUMN = 40_000  # ns: the step lasts 256 of them, 10.24 ms
WIDTH = 64 + 9  # one cell to four columns
COPY, LAUNCH, SYNC = (CALL_WORDS.index(word) for word in ("copy", "launch", "sync"))
COPIES = next(row for row, family in enumerate(FAMILIES) if family.word == "copy")


def part(low: int, high: int) -> np.ndarray:
    """All of the columns from ``low`` to ``high``."""
    made = np.zeros(COLUMNS, np.int64)
    made[low:high] = COLUMN
    return made


def step() -> OneStep:
    """Copies for a half, launches for a quarter, then a wait; the GPU works in the second half only."""
    calls = np.zeros((len(CALL_WORDS), COLUMNS), np.int64)
    calls[COPY], calls[LAUNCH], calls[SYNC] = part(0, 128), part(128, 192), part(196, 256)
    states = np.zeros((STATE_ROWS, COLUMNS), np.int64)
    states[RUNNING], states[QUEUED], states[BLOCKED] = part(0, 64), part(64, 128), part(192, 256)
    idle = IdleTime("C05", COPIES, True, part(0, 128))
    gpu = GpuTimes("GPU 0", 0, part(128, 224), part(224, 240), (idle,))
    host = HostTime(77, calls, (1, 159, 20, 0, 0), states)
    return OneStep(
        77,
        77,
        5 * MS,
        np.arange(COLUMNS + 1) * COLUMN,
        548,
        10 * MS,
        (host,),
        (gpu,),
        np.zeros((0, 2), np.int64),
    )


def drawn(
    made: OneStep, height: int = 9, glyphs: Glyphs = UNICODE, *, letters: bool = False
) -> dict[str, str]:
    """The lanes by their label."""
    lines = [plain(line) for line in waterfall_lines(made, WIDTH, height, glyphs, letters=letters)]
    return {line[:8].strip() or "legend": line[8:-1] for line in lines}


def test_calls_have_their_names_and_how_often_they_were_made() -> None:
    lane = drawn(step())["host"]
    assert lane == "█copy ×159" + "█" * 22 + "█launch ×20" + "█" * 5 + "─" + "█sync ×1" + "█" * 7


def test_without_colours_calls_are_distinguished_by_letters() -> None:
    lane = drawn(step(), letters=True)["host"]
    assert lane == "Ccopy ×159" + "C" * 22 + "Hlaunch ×20" + "H" * 5 + "─" + "Ssync ×1" + "S" * 7
    assert drawn(step(), glyphs=ASCII)["host"].startswith("Ccopy x159C")


def test_calls_that_take_less_than_half_of_a_cell_are_half_as_high() -> None:
    made = step()
    calls = made.hosts[0].calls // 4
    lane = drawn(replace(made, hosts=(replace(made.hosts[0], calls=calls),)))["host"]
    assert lane.startswith("▄copy ×159▄▄")
    assert "█" not in lane


def test_the_thread_is_on_a_cpu_waits_for_one_is_blocked_or_not_known() -> None:
    assert drawn(step(), letters=True)["CPU"] == "━" * 16 + "P" * 16 + "░" * 16 + "▂" * 16
    assert drawn(step())["CPU"] == "━" * 32 + "░" * 16 + "▂" * 16, "in colours of their own"
    line = next(line for line in waterfall_lines(step(), WIDTH, 9, UNICODE) if plain(line)[:4] == " CPU")
    assert [(text, token) for text, token in line[1:3]] == [("━" * 16, "busy"), ("━" * 16, "cause.P")]


def test_work_that_is_presumed_is_distinguished_and_labelled() -> None:
    made = step()
    guess = replace(made.gpus[0], busy=made.gpus[0].busy * 0, presumed=made.gpus[0].busy)
    lines = waterfall_lines(replace(made, gpus=(guess,)), 120, 9, UNICODE)
    assert any("█ presumably" in plain(line) for line in lines)
    assert ("█", "unsure") in {(text[:1], token) for line in lines for text, token in line}


def test_the_gpu_is_as_high_as_it_was_busy_blank_where_idle_hatched_where_nobody_knows() -> None:
    made = step()
    assert drawn(made)["GPU 0"] == " " * 32 + "█" * 28 + "░" * 4
    half = replace(made.gpus[0], busy=made.gpus[0].busy // 2)
    idle = replace(half.idle[0], ns=half.idle[0].ns + made.gpus[0].busy // 2)
    lane = drawn(replace(made, gpus=(replace(half, idle=(idle,)),)))["GPU 0"]
    assert lane[32:56] == "▄" * 24


def test_idle_time_has_its_cause_and_how_long_it_is() -> None:
    lane = drawn(step())["idle"]
    assert lane == "├" + "─" * 9 + " 5.1 ms C05 " + "─" * 9 + "┤" + " " * 32
    assert len(lane) == 64


def test_idle_time_that_is_not_proved_is_reported_as_about() -> None:
    made = step()
    guess = replace(made.gpus[0].idle[0], proved=False)
    assert " ~5.1 ms C05 " in drawn(replace(made, gpus=(replace(made.gpus[0], idle=(guess,)),)))["idle"]


def test_where_there_is_no_room_for_the_time_the_cause_alone_stands_there() -> None:
    made = step()
    short = replace(made.gpus[0].idle[0], ns=part(0, 28))
    assert drawn(replace(made, gpus=(replace(made.gpus[0], idle=(short,)),)))["idle"].startswith("├ C05 ┤ ")


@pytest.mark.parametrize("count", [1, 7, 64, 100, 255, 256, 300])
def test_time_in_other_columns_is_the_same_time(count: int) -> None:
    ns = np.random.default_rng(count).integers(0, COLUMN, (3, COLUMNS))
    np.testing.assert_allclose(cells_of(ns, count).sum(axis=1), ns.sum(axis=1))
    if count == COLUMNS:
        np.testing.assert_allclose(cells_of(ns, count), ns, atol=1e-3)


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_the_legend_names_what_is_drawn_and_nothing_else(glyphs: Glyphs) -> None:
    words = ("sync", "copy", "launch", "own code", "on CPU", "waits for a CPU", "unknown", "GPU busy",
             "presumably busy")  # fmt: skip
    legend = plain(waterfall_lines(step(), 160, 9, glyphs)[-1])
    assert [word for word in words if f" {word} " in legend] == list(words)
    assert "alloc" not in legend
    made = step()
    calm = replace(
        made.gpus[0], presumed=made.gpus[0].presumed * 0 + COLUMN, busy=made.gpus[0].busy * 0, idle=()
    )
    bare = waterfall_lines(replace(made, hosts=(), gpus=(calm,)), 160, 9, glyphs)[-1]
    assert plain(bare).split() == [glyphs.full, "presumably", "busy"]


@pytest.mark.parametrize("letters", [False, True])
def test_each_sign_that_is_drawn_is_in_the_legend_or_named_on_its_bar(letters: bool) -> None:
    for width in range(58, 110):
        *lanes, legend = waterfall_lines(step(), width, 9, UNICODE, letters=letters)
        named = {text.split(" ")[0] for line in lanes for text, token in line if token == "value"}
        coloured = {token for line in lanes for text, token in line[1:] if text.strip()}
        bars = {f"cause.{LETTERS[CALL_WORDS.index(word)]}" for word in named}
        idle = {token for text, token in lanes[-1] if text.strip()}  # with the number of its cause
        keyed = {token for _, token in legend}
        assert coloured - idle - bars - {"value"} <= keyed, width


def test_the_legend_leaves_out_what_does_not_fit_whole() -> None:
    whole = set(plain(waterfall_lines(step(), 80, 9, UNICODE)[-1]).split())
    for width in range(30, 50):
        assert set(plain(waterfall_lines(step(), width, 9, UNICODE)[-1]).split()) <= whole


def test_a_low_pane_keeps_the_host_the_gpu_and_the_idle_time() -> None:
    assert list(drawn(step(), 3)) == ["host", "GPU 0", "idle"]
    assert list(drawn(step(), 1)) == ["host"]


def test_further_threads_and_gpus_have_lanes_where_there_is_room() -> None:
    made = step()
    more = replace(made, hosts=(*made.hosts, replace(made.hosts[0], tid=78)), gpus=made.gpus * 2)
    assert "78" in drawn(more)
    lines = waterfall_lines(more, WIDTH, 20, UNICODE)
    assert sum(plain(line).startswith("GPU 0") for line in lines) == 2


def test_a_process_that_repeats_nothing_has_no_step_and_says_so() -> None:
    assert step_of(Explained(steps=(step(),)), 5) is None
    assert NO_STEP in plain(waterfall_lines(None, 80, 4, UNICODE)[0])
    assert step_of(Explained(steps=(step(),)), 77) == step()


def test_the_title_says_which_step_it_is() -> None:
    assert title(step(), None) == "step: median 10.0ms of 548"
    assert title(replace(step(), median_ns=2 * MS), None) == "step of 10.2ms: median 2.0ms of 548"


@pytest.mark.parametrize(("mean_ms", "said"), [(10.5, ""), (37.1, ", mean 37.1ms")])
def test_the_title_shows_the_mean_that_the_verdict_shows_where_it_is_another(
    mean_ms: float, said: str
) -> None:
    steps = StepFacts(548, step().length_ns, round(mean_ms * why.MS), step().pid, 77)
    told = title(step(), why.report(why.finding(), steps=steps))
    assert told == f"step: median 10.0ms of 548{said}"
    unclear = title(step(), why.report(why.finding(), steps=replace(steps, together=2)))
    assert unclear == f"{told}, 2 may be one"
    other = replace(steps, pid=step().pid + 1)
    assert title(step(), why.report(why.finding(), steps=other)) == "step: median 10.0ms of 548"


@pytest.mark.slow
@pytest.mark.parametrize("name", each_recording.NAMES)
def test_recorded_steps_fit_any_pane(name: str) -> None:
    made = recordings.explained(name).steps[0]
    for width in (30, 51, 80, 120, 200):
        for height in (1, 3, 6, 12):
            for glyphs in (UNICODE, ASCII):
                lines = waterfall_lines(made, width, height, glyphs)
                assert len(lines) <= height
                assert {line_width(line) for line in lines} == {width}
                assert glyphs is UNICODE or all(plain(line).isascii() for line in lines)


@pytest.mark.parametrize(
    ("name", "cause"), [("dataloader", "C12"), ("numpy-sync", "C02"), ("redundant-to-device", "C05")]
)
def test_the_step_names_what_the_verdict_names(name: str, cause: str) -> None:
    explained = recordings.explained(name)
    assert explained.report is not None
    lead = explained.report.findings[0]
    lane = next(
        plain(line) for line in waterfall_lines(explained.steps[0], 120, 5, UNICODE) if "idle" in plain(line)
    )
    assert lead.cause == cause
    assert cause in lane
    assert lead.per_step_ns is not None
    inside = sum(int(one.ns.sum()) for one in explained.steps[0].gpus[0].idle if one.cause == cause)
    assert inside == pytest.approx(lead.per_step_ns, rel=0.15)


def test_the_screen_draws_a_step_once_an_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    monkeypatch.setattr(
        gpu_panes.waterfall,
        "waterfall_lines",
        lambda step, *size, **how: (drawn.append(step.pid), waterfall_lines(step, *size, **how))[1],
    )
    steps = tuple(replace(one, pid=4242) for one in recordings.explained("numpy-sync").steps)
    screen = Shown(fake.frame())
    screen.explain(replace(why.explained(why.finding()), steps=steps))
    for tick in range(1, 4):
        screen.show(fake.frame(tick))
    assert drawn == [4242]
    others = tuple(replace(one, count=7) for one in steps)
    screen.explain(replace(why.explained(why.finding()), steps=others))
    assert drawn == [4242, 4242]

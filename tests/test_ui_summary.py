"""The summary of a program that has ended: sums over the whole run, from explanations that overlap."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from gputop.analysis.answer.picture import OneStep
from gputop.analysis.evidence.gatherer import End
from gputop.engine.frame import Frame, ProcessRow
from gputop.playback.feed import Explained, RecordingState
from gputop.ui.model.answer.summary import MOST_RUNS, Runs, summary_lines
from gputop.ui.model.look import ASCII, UNICODE, line_width, plain
from tests import fake_frames as fake
from tests import fake_reports as why
from tests.screen_support import feed_frame, running, text_of, until

S, MS = fake.S, why.MS
BASE = fake.frame(processes=1)
PID = 4242


def process(**changes: object) -> ProcessRow:
    row = replace(BASE.processes[0], pid=PID, start_ns=100 * S, gpus=(0,), watts=200.0)
    return replace(row, command="python train.py --bs 64", **changes)  # type: ignore[arg-type]


def at(second: float, row: ProcessRow, number: int = 0) -> Frame:
    return replace(BASE, time_ns=int(second * S), processes=(row,), number=number)


def told(end_s: int, losing: bool) -> Explained:
    """The ten seconds before: half idle, by one cause, where the program loses time; else busy."""
    spans = np.array([(ns, ns + 10 * MS) for ns in range((end_s - 10) * S, end_s * S - S, 20 * MS)], np.int64)
    step = OneStep(PID, PID, 0, np.zeros(1, np.int64), len(spans), 10 * MS, (), (), spans)
    lost = (why.finding(ms=5_000),) if losing else ()
    report = why.report(*lost, told=why.account(5_000 if losing else 0))
    return Explained(report, end_s * S, (end_s - 10) * S, steps=(step,))


def whole_run() -> Runs:
    """Two minutes, explained every second: the first minute loses half of its time, the second nothing."""
    runs = Runs()
    for second in range(110, 221):
        runs.consume(at(second, process()), told(second, losing=second <= 160))
    runs.consume(at(221, process(exited_ns=220 * S)), told(220, losing=False))
    return runs


def test_sums_are_those_of_the_whole_run_though_explanations_overlap() -> None:
    run = whole_run().of(PID)
    assert run is not None
    assert run.explained_ns == pytest.approx(120 * S, rel=0.01)
    assert run.idle_ns[0] == pytest.approx(30 * S, rel=0.1), "half of the first minute"
    (loss,) = run.losses.values()
    assert loss.low == pytest.approx(30 * S, rel=0.1)
    assert run.steps == pytest.approx(120 / 0.02, rel=0.06), "each step counts once"
    assert run.step_ns / run.steps == pytest.approx(10 * MS)
    assert run.joules == pytest.approx(200 * 110, rel=0.02)


@pytest.mark.parametrize("every_s", [5, 10, 16, 60])
def test_the_energy_of_a_step_is_right_however_rare_full_explanations_are(every_s: int) -> None:
    """Beside twelve programs they were so rare that a step once took 106 J in place of 6."""
    runs = Runs()
    for second in range(110, 221):
        steps = told(second, losing=True).steps[0]
        spans = np.array([(ns, ns + 20 * MS) for ns in range((second - 10) * S, second * S, 20 * MS)])
        full = second % every_s == 0
        found = replace(told(second, losing=True), steps=(replace(steps, spans=spans),) if full else ())
        runs.consume(at(second, process()), found)
    text = " ".join(map(plain, summary_lines(runs.of(PID), at(220, process()), "", "", 120, UNICODE)))
    joules = re.search(r"([\d.]+) J a step", text)
    assert joules is not None
    assert float(joules[1]) == pytest.approx(200 * 0.02, rel=0.1)
    assert ("of 20.0ms each" in text) == (every_s <= 10)
    assert ("20.0ms each, the mean of" in text) == (every_s > 10), "a number that is not all of them says so"


def test_an_explanation_that_comes_after_its_frame_counts_while_time_stands_still() -> None:
    runs, frame = Runs(), at(110, process())
    runs.consume(frame, Explained())
    runs.consume(frame, told(110, losing=True))
    run = runs.of(PID)
    assert run is not None
    assert run.explained_ns == 10 * S
    assert run.losses


def test_going_back_and_seeing_it_again_changes_nothing() -> None:
    runs = whole_run()
    run = runs.of(PID)
    assert run is not None
    before = (run.explained_ns, run.idle_ns, run.steps, run.joules)
    for second in range(150, 200):
        runs.consume(at(second, process()), told(second, losing=True))
    assert (run.explained_ns, run.idle_ns, run.steps, run.joules) == before


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_the_page_says_what_it_was(width: int, glyphs: object) -> None:
    runs = whole_run()
    lines = summary_lines(
        runs.of(PID),
        at(230, process()),
        "status 0",
        "/data/s.msgpack",
        width,
        glyphs,  # type: ignore[arg-type]
    )
    assert all(line_width(line) == width for line in lines)
    text = " ".join(" ".join(map(plain, lines)).split())
    for part in ("python train.py --bs 64 (4242)", "120s, status 0", "10.0ms each, the", "25 %", "kJ",
                 "a step", "/data/s.msgpack: gputop explain"):  # fmt: skip
        assert part in text or width == 40, (part, text)
    if width == 120:
        assert "C02 proved" in text


def test_a_program_that_ran_before_gputop_came_has_its_own_run_time() -> None:
    runs = whole_run()
    run = runs.of(PID)
    assert run is not None
    run.row = replace(run.row, run_ns=4_202 * S, exited_ns=None)
    lines = summary_lines(run, at(230, process()), "", "", 120, UNICODE)
    text = " ".join(" ".join(map(plain, lines)).split())
    assert "run time 1:10:02, observed for 130s, it is running" in text


def test_a_day_of_programs_keeps_room_for_the_next_one() -> None:
    runs = Runs()
    for number in range(MOST_RUNS + 50):
        row = replace(process(), pid=10_000 + number, exited_ns=(200 + number) * S)
        runs.consume(at(300 + number, row), Explained())
    assert runs.of(10_000 + MOST_RUNS + 49) is not None
    assert runs.of(10_000) is None
    assert len(runs.runs) == MOST_RUNS


@pytest.mark.slow
async def test_the_end_of_the_command_opens_its_summary_once() -> None:
    async with running(at(110, process())) as screen:
        app, feed, pilot = screen
        feed.state = RecordingState("/data/s.msgpack", 1 << 20, 3.0)
        feed.why = replace(told(115, losing=True), steps=())
        await feed_frame(screen, at(116, process(), 1))
        feed.state = None
        feed.ended = "python ended with status 0 after 20 s"
        gone = process(exited_ns=120 * S)
        end = End(PID, "python", 120 * S, 0, 1)
        feed.why = replace(told(120, losing=True), ended=end, steps=())
        await feed_frame(screen, at(121, gone, 2))
        await until(pilot, lambda: "Summary" in text_of(app), "the summary")
        shown = text_of(app)
        assert "python train.py --bs 64 (4242)" in shown
        assert "/data/s.msgpack: gputop explain" in shown
        assert "C02 proved" in shown
        await pilot.press("escape")
        await feed_frame(screen, at(122, gone, 3))
        assert "run time" not in text_of(app), "it opens once"
        await pilot.press("i")
        assert "run time" in text_of(app), "and is there again with i"


def test_an_idle_time_of_which_little_is_proved_is_its_estimate() -> None:
    """A program attached to late had ``0–81 %`` only."""
    runs = Runs()
    report = why.report(why.finding(), told=why.account(200, 7_900))
    for second in range(110, 131):
        runs.consume(at(second, process()), Explained(report, second * S, (second - 10) * S))
    text = "\n".join(
        plain(line) for line in summary_lines(runs.of(PID), at(131, process()), "", "", 100, UNICODE)
    )
    assert re.search(r"idle +~81 % of [\d.]+s of GPU time \(2 % proved\)", text), text

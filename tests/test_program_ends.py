"""A program that has ended: the last verdict stays, and the screen says when and how it ended."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gputop.analysis.answer.report import Range
from gputop.analysis.evidence.gatherer import End, Ends
from gputop.analysis.live import LiveExplainer, ReplayExplainer
from gputop.analysis.report_update import capped
from gputop.analysis.window import Window
from gputop.commands.screen.text import render_text
from gputop.playback.feed import Explained
from gputop.playback.feeds import CommandLog
from gputop.process.child import Child
from gputop.ui.model.answer.why import why_of
from probes.schema import Kind, Records, empty
from probes.source import MARK, PROCESS, Item, Sample
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests import fake_frames as fake
from tests import fake_reports as made
from tests.screen_support import running, text_of
from tests.waiting import wait_until

S = 1_000_000_000
RECORDING = Path(__file__).parents[1] / "recordings" / "dataloader.msgpack"


def alive() -> list[Item]:
    """A recording up to a moment at which its programs live."""
    reader = SessionReader(RECORDING)
    items = list(reader.items_between(-1, len(reader.marks) - 6))
    reader.close()
    return items


def users(items: list[Item]) -> set[int]:
    found: set[int] = set()
    for item in items:
        if not isinstance(item, Sample):
            found |= set(item["pid"][item["kind"] == Kind.CALL].tolist())
    return found


def ending(items: list[Item], seconds: float, code: int = 9) -> Iterator[Item]:
    """The end of all that call CUDA, then marks at which nothing happens."""
    mark = next(item for item in reversed(items) if isinstance(item, Sample))
    now = mark.time_ns
    for pid in sorted(users(items)):
        yield Sample(
            PROCESS, now + 1000, {"pid": pid, "watched": True, "exited_ns": now + 1000, "exit_code": code}
        )
    for number in range(1, int(seconds * 4) + 1):
        yield Sample(MARK, now + number * S // 4, {**mark.data, "number": mark.data["number"] + number})


def call(pid: int) -> Records:
    records = empty(3)
    records["kind"], records["pid"] = [Kind.CALL, Kind.OFFCPU, Kind.CALL], [pid, 99, pid]
    return records


# -- what has ended ------------------------------------------------------------------------------------------


def test_only_processes_that_made_calls_count_and_a_new_one_begins_anew() -> None:
    ends = Ends()
    ends.consume(call(7))
    ends.consume(call(8))
    assert ends.last is None
    ends.consume(Sample(PROCESS, 1, {"pid": 7, "name": "python", "exited_ns": None}))
    ends.consume(Sample(PROCESS, 2, {"pid": 99, "name": "bash", "exited_ns": 2}))
    ends.consume(Sample(PROCESS, 3, {"pid": 8, "exited_ns": 3, "exit_code": 0}))
    assert ends.last is None, "one lives"
    before = ends.copy()
    ends.consume(Sample(PROCESS, 4, {"pid": 7, "exited_ns": 4, "exit_code": 256}))
    assert ends.last == End(7, "python", 4, 256, 2)
    assert before.last is None
    ends.consume(call(9))
    assert ends.last is None
    ends.consume(Sample(PROCESS, 5, {"pid": 9, "exited_ns": 5}))
    assert ends.last == End(9, "", 5, None, 3)


def test_calls_that_come_after_word_of_the_end_do_not_bring_the_process_back() -> None:
    """A mark tells of the end at once; the ring with the last calls may be read later."""
    ends, late = Ends(), call(7)
    ends.consume(call(7))
    ends.consume(Sample(PROCESS, 10, {"pid": 7, "name": "python", "exited_ns": 10, "exit_code": 0}))
    late["t_end"] = 9
    ends.consume(late)
    assert ends.last == End(7, "python", 10, 0, 1)
    # one of which no call was known at its end: it counts as a user from its late calls on
    ends.consume(Sample(PROCESS, 12, {"pid": 8, "exited_ns": 12, "exit_code": 0}))
    before, of_8 = ends.copy(), call(8)
    of_8["t_end"] = 11
    ends.consume(of_8)
    assert ends.last == End(8, "", 12, 0, 2)
    assert before.last == End(7, "python", 10, 0, 1)
    # the number is given to a new process
    of_8["t_end"] = 13
    ends.consume(of_8)
    assert ends.last is None


@pytest.mark.slow
def test_the_window_ends_with_the_last_process_as_long_as_it_is_kept() -> None:
    window, items = Window(SessionReader(RECORDING).header), alive()
    for item in items:
        window.feed(item)
    assert (window.ended, window.explained_ns) == (None, window.end_ns)
    verdicts = [window.verdict() for item in ending(items, 9) if window.feed(item)]
    first, last = verdicts[0], verdicts[-1]
    assert first.ended is not None
    assert first.ended.code == 9
    assert (last.end_ns, last.report.idle, last.report.gpus) == (
        first.end_ns,
        first.report.idle,
        first.report.gpus,
    )
    assert [one.cause for one in last.report.findings] == [one.cause for one in first.report.findings]


@pytest.mark.slow
def test_live_and_replayed_the_last_verdict_stays_for_good(tmp_path: Path) -> None:
    items = alive()
    header = SessionReader(RECORDING).header
    explainer = LiveExplainer(header)
    explainer.start()
    with_end = [*items, *ending(items, 40)]
    try:
        for item in items:
            explainer.feed(item)
        coming = iter(with_end[len(items) :])
        while (final := explainer.verdict) is None or final.ended is None:
            explainer.feed(next(coming))
            time.sleep(0.1)
        for item in coming:
            explainer.feed(item)
        wait_until(lambda: not explainer.waiting_items, "all of it to be taken in")
        assert explainer.verdict is final
    finally:
        explainer.close()
    assert final is not None
    assert final.report.findings[0].cause == "C12"
    writer = SessionWriter(tmp_path / "session", header)
    for item in with_end:
        writer.write(item)
    writer.close()
    reader = SessionReader(tmp_path / "session")
    replayed, marks = ReplayExplainer(reader), len(reader.marks)
    for index in (marks - 1, marks - 100, marks - 30):
        verdict = replayed.verdict_at(index)
        assert (verdict.end_ns, verdict.report.idle) == (final.end_ns, final.report.idle)


# -- what is said --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (0, "python 42 ended 12 s ago, status 0"),
        (3 << 8, "python 42 ended 12 s ago, status 3"),
        (signal.SIGKILL, "python 42 killed 12 s ago by SIGKILL"),
        (signal.SIGRTMIN + 3, "python 42 killed 12 s ago by signal 37"),
        (None, "python 42 ended 12 s ago"),
    ],
)
def test_the_verdict_says_when_and_how_the_program_ended(code: int | None, how: str) -> None:
    frame = fake.frame()
    end = End(42, "python", frame.time_ns - 12 * S, code, 1)
    why = why_of(replace(Explained(made.report(), end.time_ns), ended=end), frame)
    assert (why.when, why.old) == (how, False)
    few = why_of(Explained(ended=end), frame)
    assert few.text == f"{how}: too few CUDA calls to tell when the GPU worked"


def test_a_screen_with_a_process_that_ended_never_says_that_no_process_made_a_call() -> None:
    frame = fake.frame()
    row = replace(frame.processes[0], calls=(), exited_ns=frame.time_ns - 300 * S, name="python", pid=7)
    said = why_of(Explained(), replace(frame, processes=(row,))).text
    assert said == "python 7 ended 05:00 ago; no process makes CUDA calls now"


def test_a_program_that_pauses_is_not_reported_never_to_have_made_a_call() -> None:
    frame = fake.frame()
    rows = tuple(replace(row, calls=(), exited_ns=None, name="python") for row in frame.processes[:2])
    explained = Explained(called_ns=frame.time_ns - 14 * S)
    said = why_of(explained, replace(frame, processes=rows[:1])).text
    assert said == f"python ({rows[0].pid}) has made no CUDA call for 14 s"
    assert (
        why_of(explained, replace(frame, processes=rows)).text
        == "none of 2 processes has made a CUDA call for 14 s"
    )


@pytest.mark.slow
async def test_a_command_that_ends_at_once_is_reported_with_its_output() -> None:
    for size in ((80, 24), (120, 40), (200, 50)):
        async with running(fake.frame(processes=0), size) as (app, feed, pilot):
            feed.output = ["loading", "RuntimeError: \x1b[31mno data"]
            feed.ended = "python broken.py ended with status 1 after 0.4 s"
            app.poll()
            await pilot.pause()
            shown = " ".join(text_of(app).split())
            assert shown.count("python broken.py ended with status 1 after 0.4 s without a CUDA call") == 2
            assert "[l] shows its output" in shown
            assert "RuntimeError: \\x1b[31mno data" in shown
            assert "Waiting for a process" not in shown
            await pilot.press("l")
            assert "Output of the command" in text_of(app)


async def test_a_command_without_output_offers_none() -> None:
    async with running(fake.frame(processes=0), (120, 40)) as (app, feed, pilot):
        feed.ended = "true ended with status 0 after 0.0 s"
        app.poll()
        await pilot.pause()
        assert "true ended with status 0 after 0.0 s without a CUDA call" in text_of(app)
        assert "[l] shows" not in text_of(app)


# -- the command ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("raise SystemExit(3)", "ended with status 3"),
        ("import os; os.abort()", "was killed by SIGABRT"),
        ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
        ("import os; os._exit(139)", "ended with status 139"),
        ("input()", "ended with status 1"),
    ],
)
def test_a_child_shows_how_it_ended_and_after_how_long(code: str, how: str) -> None:
    output = os.open(os.devnull, os.O_WRONLY)
    child = Child([sys.executable, "-c", code], dict(os.environ), output=output)
    assert child.outcome() == ""
    child.release()
    wait_until(child.outcome, "its end")
    os.close(output)
    time.sleep(0.01)
    said = child.outcome()
    assert said.startswith(f"{sys.executable} -c "), said
    assert f" {how} after " in said
    assert child.outcome() == said, "it does not grow"


def test_the_last_line_of_a_command_needs_no_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\nfatal: no data")
    log = CommandLog(path, path.open())
    assert log.lines(0) == (1, ["one"])
    assert log.lines(1, whole=True) == (2, ["fatal: no data"])
    assert log.lines(2, whole=True) == (2, [])


def test_calls_of_one_process_are_the_cheap_case() -> None:
    ends, records = Ends(), empty(4096)
    records["kind"], records["pid"] = Kind.CALL, 7
    ends.consume(records)
    began = time.thread_time()
    for _ in range(100):
        ends.consume(records)
    cheap = time.thread_time() - began
    began = time.thread_time()
    for _ in range(100):
        np.unique(records["pid"])
    assert cheap < time.thread_time() - began


def test_one_frame_of_a_command_that_ended_says_so_with_its_output() -> None:
    frame, outcome = fake.frame(processes=0), "python broken.py ended with status 1 after 0.4 s"
    text = render_text(frame, width=80, outcome=outcome, output=["loading", "RuntimeError: \x07no data"])
    assert f"{outcome} without a CUDA call.\nloading\nRuntimeError: \\x07no data\n" in text
    assert "Waiting for a process" not in text
    assert "Waiting for a process" in render_text(frame, width=80)


def test_no_cause_takes_more_than_a_gpu_can_have_been_idle() -> None:
    loss = capped(replace(made.finding("C13"), loss=Range(5, 342, 100)), 60).loss
    assert loss == Range(5, 60, 60)
    assert capped(replace(made.finding("C13"), loss=Range(70, 80)), 60).loss == Range(60, 60)

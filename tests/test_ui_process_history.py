"""The sparkline of a process: its calls per second over the last minute, in ten columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gputop.engine.frame import Frame, ProcessRow
from gputop.ui.model.listing.process_history import MOST, WIDTH, ProcessHistory, spark_column
from gputop.ui.model.look import ASCII, UNICODE
from gputop.ui.model.table import Context
from tests import fake_frames as fake
from tests import told_recordings as recordings

S = fake.S
TICKS = 4 * 60
BASE, FRAME = fake.process(0, calls=0), fake.frame()


def process(pid: int, calls: float, start_ns: int = S) -> ProcessRow:
    return replace(BASE, pid=pid, calls_per_second=calls, start_ns=start_ns)


def frame(tick: int, *rows: ProcessRow) -> Frame:
    """Frames four times a second; tick 240 ends a minute of ten whole cells."""
    return replace(FRAME, processes=rows, time_ns=1_020 * S + tick * S // 4 - 1, rate_hz=4.0)


def played(calls: Callable[[int], float], ticks: int = TICKS) -> tuple[ProcessHistory, Frame]:
    """What is kept of a process that makes so many calls at each tick."""
    history = ProcessHistory()
    for tick in range(1, ticks + 1):
        now = frame(tick, process(7, calls(tick)))
        history.append(now)
    return history, now


def test_each_column_is_the_mean_of_six_seconds_on_the_scale_of_the_highest() -> None:
    history, now = played(lambda tick: 100.0 * ((tick - 1) // 24))  # 0, 100, …, 900 calls/s
    assert history.spark(now.processes[0], now.time_ns, UNICODE) == " ▁▂▃▄▄▅▆▇▇"


def test_no_calls_are_blank_and_what_was_not_seen_is_a_dot() -> None:
    quiet, now = played(lambda tick: 0.0)
    assert quiet.spark(now.processes[0], now.time_ns, UNICODE) == " " * WIDTH
    late = ProcessHistory()
    late.append(now)
    assert late.spark(now.processes[0], now.time_ns, UNICODE) == "·" * 9 + " "
    assert late.spark(now.processes[0], now.time_ns, ASCII) == "?" * 9 + " "


def test_before_its_start_a_process_made_no_calls() -> None:
    history = ProcessHistory()
    for tick in range(TICKS - 24, TICKS + 1):
        now = frame(tick, process(7, 50.0, start_ns=1_068 * S))
        history.append(now)
    assert history.spark(now.processes[0], now.time_ns, UNICODE) == " " * 8 + "▇▇"


def test_processes_do_not_share_what_is_kept_of_them() -> None:
    history = ProcessHistory()
    for tick in range(1, TICKS + 1):
        now = frame(tick, process(7, 10.0 if tick <= 120 else 0.0), process(8, 0.0 if tick <= 120 else 9.0))
        history.append(now)
    drawn = [history.spark(row, now.time_ns, UNICODE) for row in now.processes]
    assert drawn == ["▇▇▇▇▇     ", "     ▇▇▇▇▇"]


def test_a_process_that_takes_the_place_of_another_has_nothing_of_its_past() -> None:
    history, now = ProcessHistory(), frame(0)
    for tick in range(1, 60):
        now = frame(tick, *(process(1_000 + n, 5.0) for n in range(MOST)))
        history.append(now)
    now = frame(60, process(7, 5.0))
    history.append(now)
    drawn = history.spark(now.processes[0], now.time_ns, UNICODE)
    assert drawn == "·" * 9 + "▇"


def test_of_too_many_processes_those_with_most_calls_have_a_sparkline() -> None:
    history = ProcessHistory()
    now = frame(1, *(process(n, float(n)) for n in range(1, MOST + 51)))
    history.append(now)
    drawn = {row.pid: history.spark(row, now.time_ns, UNICODE)[-1] for row in now.processes}
    assert {pid for pid, last in drawn.items() if last == "▇"} == set(range(51, MOST + 51))
    assert {last for pid, last in drawn.items() if pid <= 50} == {"·"}


def test_a_jump_back_shows_what_was_seen_there_and_nothing_of_later() -> None:
    history, _ = played(lambda tick: 10.0 if tick <= 120 else 1_000.0)
    back = frame(120, process(7, 10.0))
    history.append(back)
    assert history.spark(back.processes[0], back.time_ns, UNICODE) == "·····▇▇▇▇▇"


def test_without_ebpf_the_column_says_that_it_knows_nothing() -> None:
    history = ProcessHistory()
    now = replace(frame(1, process(7, 0.0)), calls_observed=False)
    history.append(now)
    column = spark_column(history)
    context = Context(UNICODE, 1.0, now.time_ns, traced=False)
    assert column.cell(now.processes[0], context, WIDTH) == ("-", "unknown")
    assert column.width == WIDTH


@pytest.mark.parametrize("name", ["numpy-sync", "dataloader-workers"])
def test_in_a_recording_who_makes_calls_has_bars_and_who_makes_none_is_blank(name: str) -> None:
    history = ProcessHistory()
    for later in (-1, 0):
        history.append(recordings.frame(name, later))
    now = recordings.frame(name)
    for row in now.processes:
        last = history.spark(row, now.time_ns, UNICODE)[-1]
        assert (last != " ") == (row.calls_per_second > 0), row.name

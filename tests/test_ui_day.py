"""A working day with the screen open, its clock faster: memory, CPU and descriptors stay as they are."""

from __future__ import annotations

import gc
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gputop.engine.frame import Frame, ProcessRow
from gputop.playback.alerts import parse
from tests import fake_frames as fake
from tests import fake_reports as why
from tests.screen_support import Shown

S = fake.S
STEP_S = 4  # of the screen's clock from one frame to the next
PROGRAM_S = 300  # a program begins and another one ends as often
PROCESSES = 12
GROWN_MB, SLOWER, MORE_FILES = 12.0, 1.5, 0
KEYS = ("w", "escape", "down", "up", "comma", "full_stop", "z", "z", "space", "L", "i", "escape")


def resident_mb() -> float:
    """What this process holds."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def at(made: Frame, number: int) -> Frame:
    """The frame of a moment: programs come and go."""
    now = made.time_ns + number * STEP_S * S
    first = number * STEP_S // PROGRAM_S

    def row(place: int) -> ProcessRow:
        one = made.processes[place]
        begun = (first + place) % PROCESSES
        return replace(one, pid=10_000 + first + place, calls_per_second=100.0 * begun, watts=100.0)

    rows = tuple(map(row, range(PROCESSES)))
    ended = replace(rows[0], exited_ns=now)
    return replace(made, number=number, time_ns=now, rate_hz=1 / STEP_S, processes=(ended, *rows[1:]))


@pytest.mark.parametrize("hours", [1, 8])
@pytest.mark.mainly("1")
@pytest.mark.long
def test_a_day_on_the_screen_leaves_nothing_behind(hours: int) -> None:
    made = fake.frame(processes=PROCESSES, gpus=8)
    rules = (parse("idle > 99"), parse("errors over 10m > 1000000"))
    screen = Shown(made, size=(120, 40), alerts=rules)
    frames = hours * 3600 // STEP_S
    quarter = frames // 4
    held: dict[int, tuple[float, int, float]] = {}
    spent = time.process_time()
    for number in range(1, frames + 1):
        frame = at(made, number)
        explained = why.explained(why.finding(pid=frame.processes[3].pid))
        lanes = why.lanes(frame.time_ns, gpus=8)
        screen.explain(replace(explained, end_ns=frame.time_ns, lanes=lanes))
        screen.show(frame)
        if not number % 50:
            screen.press(KEYS[number // 50 % len(KEYS)])
        if not number % quarter:
            files = len(os.listdir("/proc/self/fd"))
            held[number // quarter] = resident_mb(), files, time.process_time() - spent
            spent = time.process_time()
    screen.close()
    (first_mb, first_files, first_s), (last_mb, last_files, last_s) = held[2], held[4]
    assert last_mb - first_mb <= GROWN_MB, held
    assert last_files - first_files <= MORE_FILES, held
    assert last_s <= SLOWER * first_s, held

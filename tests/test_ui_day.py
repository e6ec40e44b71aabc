"""A working day with the screen open, its clock faster: memory, CPU and descriptors stay as they are.

Frames and explanations are those of recordings on the simulated GPU, one program behind the other, with the
numbers and times of a day; beside them eight GPUs and a dozen processes that are made up.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from gputop.analysis.live import ReplayExplainer
from gputop.engine.engine import Engine
from gputop.engine.frame import Frame, ProcessRow
from gputop.playback.alerts import parse
from gputop.playback.feed import Explained
from replay.reader import SessionReader
from tests import fake_frames as fake
from tests import fake_reports as why
from tests.bench.hour import resident_mb
from tests.screen_support import Shown

S = fake.S
STEP_S = 4  # of the screen's clock from one frame to the next
PROGRAM_S = 300  # a program begins and another one ends as often
PROCESSES = 12
GROWN_MB, SLOWER, MORE_FILES = 12.0, 1.5, 0
RECORDED, RECORDINGS = Path(__file__).parents[1] / "recordings", ("dataloader-workers", "numpy-sync", "storm")
EXPLAINED = 4  # marks: as often there is an explanation
KEYS = ("w", "escape", "down", "up", "comma", "full_stop", "z", "z", "space", "L", "i", "escape")


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


Moment = tuple[Frame, Explained]


def made_up() -> Iterator[Moment]:
    """Moments of a machine with eight GPUs and a dozen processes."""
    made, number = fake.frame(processes=PROCESSES, gpus=8), 0
    while True:
        number += 1
        frame = at(made, number)
        explained = why.explained(why.finding(pid=frame.processes[3].pid))
        lanes = why.lanes(frame.time_ns, gpus=8)
        yield frame, replace(explained, end_ns=frame.time_ns, lanes=lanes)


def recorded() -> list[list[Moment]]:
    """What was seen of programs on the simulated GPU, each mark with its explanation."""
    runs: list[list[Moment]] = []
    for name in RECORDINGS:
        with closing(SessionReader(str(RECORDED / f"{name}.msgpack"))) as reader:
            explainer, engine = ReplayExplainer(reader), Engine(reader.header)
            moments: list[Moment] = []
            explained = Explained()
            for item in reader.items():
                if engine.feed(item):
                    index = len(moments)
                    if index % EXPLAINED == EXPLAINED - 1 and (told := explainer.verdict_at(index)):
                        explained = Explained(
                            told.report, told.end_ns, told.start_ns, lanes=told.lanes, steps=told.steps
                        )
                    moments.append((engine.frame(), explained))
        runs.append(moments)
    return runs


def real() -> Iterator[Moment]:
    """The same moments for a day: each program is started anew, as another process, when it has ended."""
    runs, number, now = recorded(), 0, 0
    while True:
        for moments in runs:
            base = 100 * (number + 1)
            begun = now
            for frame, explained in moments:
                number += 1
                now += STEP_S * S
                moved = now - frame.time_ns

                def pid(of: int, base: int = base) -> int:
                    return base + of % 97

                rows = tuple(
                    replace(row, pid=pid(row.pid), exited_ns=None if row.exited_ns is None else now)
                    for row in frame.processes
                )
                report = explained.report
                if report is not None:
                    findings = tuple(replace(one, pid=pid(one.pid)) for one in report.findings)
                    report = replace(report, findings=findings)
                yield (
                    replace(frame, number=number, time_ns=now, rate_hz=1 / STEP_S, processes=rows),
                    replace(explained, report=report, start_ns=begun, end_ns=explained.end_ns + moved),
                )


@pytest.mark.parametrize("hours", [1, 8])
@pytest.mark.parametrize("source", [made_up, real])
@pytest.mark.mainly("made_up-1")
@pytest.mark.long
def test_a_day_on_the_screen_leaves_nothing_behind(
    source: Callable[[], Iterator[Moment]], hours: int, record_property: Callable[[str, object], None]
) -> None:
    rules = (parse("idle > 99"), parse("errors over 10m > 1000000"))
    screen = Shown(fake.frame(processes=PROCESSES, gpus=8), size=(120, 40), alerts=rules)
    frames = hours * 3600 // STEP_S
    quarter = frames // 4
    held: dict[int, tuple[float, int, float]] = {}
    spent = time.process_time()
    for number, (frame, explained) in zip(range(1, frames + 1), source(), strict=False):
        screen.explain(explained)
        screen.show(frame)
        if not number % 50:
            screen.press(KEYS[number // 50 % len(KEYS)])
        if not number % quarter:
            files = len(os.listdir("/proc/self/fd"))
            held[number // quarter] = resident_mb(), files, time.process_time() - spent
            spent = time.process_time()
    screen.close()
    record_property("MB, descriptors and CPU seconds of each quarter", held)
    print(held)
    (first_mb, first_files, first_s), (last_mb, last_files, last_s) = held[2], held[4]
    assert last_mb - first_mb <= GROWN_MB, held
    assert last_files - first_files <= MORE_FILES, held
    assert last_s <= SLOWER * first_s, held

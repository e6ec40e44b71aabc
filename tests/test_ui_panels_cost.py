"""What the new panes cost beside the process table, on 200x50 with 200 processes and eight GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from gputop.analysis.answer.picture import COLUMN_NS
from gputop.analysis.answer.report import GpuSpan
from gputop.engine.calls.linesums import MOST_STACKS
from gputop.engine.calls.stack_table import Line as SourceLine
from gputop.engine.frame import OFF_CPU, Frame, StackRow
from gputop.ui.model.answer.why import why_of
from gputop.ui.model.answer.whylines import why_lines
from gputop.ui.model.gpus.gpu_history import GpuHistory, detail_lines
from gputop.ui.model.listing import process_table
from gputop.ui.model.listing.process_history import ProcessHistory
from gputop.ui.model.look import UNICODE
from gputop.ui.model.process.flame import flame
from gputop.ui.model.process.flametree import tree_of
from gputop.ui.model.process.waterfall import waterfall_lines
from gputop.ui.model.time.blocklanes import Look
from gputop.ui.model.time.timeblocks import Subject, TimeBlocks
from tests import fake_frames as fake
from tests import fake_reports as why
from tests import told_recordings as recordings
from tests.waiting import until_good

WIDTH, HEIGHT, GPUS = 200, 50, 8
TIMES, ROUNDS = 10, 3
MOST = 5  # tables: a few milliseconds
FRAMES = [fake.frame(tick, processes=200, gpus=GPUS, threads=1, calls=1) for tick in range(4)]


def of_table() -> Callable[[Frame], object]:
    """The heart of the screen today: the table of processes."""
    table = process_table.process_table()

    def draw(frame: Frame) -> object:
        table.update(frame.processes, frame.time_ns)
        context = process_table.context_of(frame, UNICODE)
        token = process_table.row_token
        return table.lines(context, WIDTH, 0, HEIGHT - 1, focused=True, mark=True, row_token=token)

    return draw


def of_why() -> Callable[[Frame], object]:
    account = why.account()
    gpus = tuple(GpuSpan(f"GPU {n}", 10 * why.S, account.idle, account) for n in range(GPUS))
    explained = why.explained(why.finding(), why.finding("C04"), why.finding("C13"), gpus=gpus)
    return lambda frame: why_lines(why_of(explained, frame), WIDTH, 5, UNICODE)


def of_one_gpu() -> Callable[[Frame], object]:
    history = GpuHistory()

    def draw(frame: Frame) -> object:
        history.append(frame)
        return detail_lines(history, frame, frame.gpus[0], WIDTH, 13, UNICODE)

    return draw


def of_sparks() -> Callable[[Frame], object]:
    history = ProcessHistory()

    def draw(frame: Frame) -> object:
        history.append(frame)
        return [history.spark(row, frame.time_ns, UNICODE) for row in frame.processes[:HEIGHT]]

    return draw


def of_step() -> Callable[[Frame], object]:
    step = recordings.explained("numpy-sync").steps[0]
    return lambda frame: waterfall_lines(step, WIDTH, 8, UNICODE)


def of_time() -> Callable[[Frame], object]:
    made = TimeBlocks()
    made.append(replace(why.explained(), lanes=why.lanes(gpus=GPUS)))
    subjects = [Subject(4242, "python", (0,))]
    number = iter(range(10**9))
    # the worst case: a new cell with every frame, so that nothing drawn before is of use
    return lambda frame: made.picture(
        WIDTH, 16, subjects, 100 * why.S + next(number) * COLUMN_NS * 10, Look(UNICODE)
    )


def of_flame() -> Callable[[Frame], object]:
    def line(number: int) -> SourceLine:
        return SourceLine(f"/home/me/train{number % 7}.py", number, f"f{number}")

    stacks = tuple(
        StackRow(tuple(line(number // 2**level) for level in range(9)), OFF_CPU, 1, 1_000 + number)
        for number in range(MOST_STACKS)
    )
    row = replace(fake.process(0), stacks=stacks)
    return lambda frame: flame(tree_of(row), (), WIDTH, HEIGHT, UNICODE)


def tables(draw: Callable[[Frame], object], table: Callable[[Frame], object]) -> float:
    """How many tables one drawing costs: the least CPU time of each, in turns."""
    found: dict[Callable[[Frame], object], list[int]] = {draw: [], table: []}
    for one in found:
        for frame in FRAMES:
            one(frame)
    for _ in range(ROUNDS):
        for one, rounds in found.items():
            begin = time.process_time_ns()
            for number in range(TIMES):
                one(FRAMES[number % len(FRAMES)])
            rounds.append(time.process_time_ns() - begin)
    return min(found[draw]) / min(found[table])


@pytest.mark.timed
@pytest.mark.parametrize(
    "made", [of_why, of_one_gpu, of_sparks, of_step, of_time, of_flame], ids=lambda one: one.__name__
)
def test_a_pane_costs_no_more_than_a_few_tables_of_processes(
    made: Callable[[], Callable[[Frame], object]],
) -> None:
    draw, table = made(), of_table()
    assert until_good(lambda: tables(draw, table), lambda many: many <= MOST) <= MOST

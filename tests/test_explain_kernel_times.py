"""GPU time by kernel: from waits with different mixtures, within its error, or not reported."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from gputop.analysis.answer.kernel_report import KernelLaunches
from gputop.analysis.answer.report_output import report_to_text
from gputop.analysis.build import ledger_of
from gputop.analysis.ledger import merge, report_of
from gputop.documents.fields import document
from probes.source import FRAMES, SHAPES, Sample
from probes.stacks.stack_samples import kernel_number
from tests.items import START
from tests.json_page import assert_valid
from tests.programs import LAUNCH, MAIN, SYNC, US, Program, started

STEPS = 80
HOST_US = 8  # between two launches
START_US = 3  # from a launch's return to the kernel's begin


@dataclass
class Loop:
    """A program whose GPU is a queue in virtual time; the time that each kernel takes there is kept."""

    seed: int
    program: Program = field(default_factory=started)
    took: dict[str, int] = field(default_factory=dict)
    now: int = 0
    free: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.handles: dict[str, int] = {}

    def launch(self, name: str, us: int, **more: int) -> None:
        handle = self.handles.setdefault(name, 0x7000 + 16 * len(self.handles))
        self.program.call(LAUNCH, self.now, self.now + HOST_US - 2, aux=handle, **more)
        begin = max(self.free, self.now + HOST_US - 2 + START_US)
        self.free, self.now = begin + us, self.now + HOST_US
        self.took[name] = self.took.get(name, 0) + us

    def wait(self, pause_us: int = 500) -> None:
        self.program.call(SYNC, self.now, max(self.now, self.free) + 5)
        self.now = max(self.now, self.free) + 5 + pause_us

    def kernels(self, pid: int = MAIN) -> dict[str, KernelLaunches]:
        handles = [*self.handles.items()]
        data = {
            "pid": [pid] * len(handles),
            "stack": [kernel_number(pid, handle) for _name, handle in handles],
            "frames": [[["/app", 0, name]] for name, _handle in handles],
        }
        sizes = [[10 * number, 1, 1, 128, 1, 1, 0] for number in (1, 2, 3)]
        told = Sample(SHAPES, START, {"shape": [1, 2, 3], "sizes": sizes})
        self.program.samples += [Sample(FRAMES, START, data), told]
        report = self.program.report().kernels
        assert report is not None
        return {row.name: row for row in report.rows}


def mixed(seed: int, spread: float = 0.05) -> Loop:
    """Five kernels in random numbers and two shapes, a wait in each step; work varies a little."""
    loop = Loop(seed)
    usual = {name: loop.random.choice((40, 90, 200, 500)) for name in ("a", "b", "c", "d", "e")}
    for _step in range(STEPS):
        order = [name for name in usual for _time in range(loop.random.randint(0, 6))]
        loop.random.shuffle(order)
        for name in order or ["a"]:
            shape = loop.random.choice((1, 2))
            us = usual[name] * shape * loop.random.uniform(1 - spread, 1 + spread)
            loop.launch(name, round(us), run_delay=shape)
        loop.wait()
    return loop


def share_off(loop: Loop, row: KernelLaunches) -> float:
    """How far an estimate is off, as a share of its error."""
    assert row.gpu is not None
    return abs(row.gpu.ns - loop.took[row.name] * US) / row.gpu.error_ns


@pytest.mark.slow
def test_what_is_reported_is_within_its_error_and_near() -> None:
    for seed in range(12):
        loop = mixed(seed)
        told = [row for row in loop.kernels().values() if row.gpu is not None]
        assert len(told) >= 4
        for row in told:
            assert share_off(loop, row) < 1, row.name
        most = max(told, key=lambda row: loop.took[row.name])
        assert most.gpu is not None
        assert most.gpu.ns == pytest.approx(loop.took[most.name] * US, rel=0.03)


def test_kernels_that_come_in_one_proportion_cannot_be_distinguished() -> None:
    loop = Loop(1)
    for _step in range(STEPS):
        for _time in range(loop.random.randint(1, 5)):
            loop.launch("alone", 300)
        for _time in range(loop.random.randint(1, 5)):
            loop.launch("left", 200)
            loop.launch("right", 100)
        loop.wait()
    rows = loop.kernels()
    assert [rows[name].gpu is not None for name in ("alone", "left", "right")] == [True, False, False]
    assert share_off(loop, rows["alone"]) < 1


def test_a_kernel_whose_shapes_cannot_be_distinguished_has_a_time_all_the_same() -> None:
    """Both shapes come as often always: their times cannot be reported, the sum of them can."""
    loop = Loop(2)
    for _step in range(STEPS):
        for _time in range(loop.random.randint(1, 5)):
            loop.launch("two", 200, run_delay=1)
            loop.launch("two", 50, run_delay=2)
        for _time in range(loop.random.randint(1, 5)):
            loop.launch("one", 150, run_delay=1)
        loop.wait()
    rows = loop.kernels()
    assert share_off(loop, rows["two"]) < 1
    assert rows["two"].shapes.keys() > rows["one"].shapes.keys()


def test_where_every_step_is_alike_nothing_is_reported() -> None:
    loop = Loop(3)
    for _step in range(STEPS):
        for name, us in (("a", 200), ("b", 400), ("c", 100)):
            loop.launch(name, us)
        loop.wait()
    assert {row.gpu for row in loop.kernels().values()} == {None}


def test_of_kernels_that_nobody_waits_for_nothing_is_reported() -> None:
    """The GPU is done with each before the next one comes: how long it took shows nowhere."""
    loop = Loop(4)
    for _step in range(STEPS):
        for name in ("a", "b"):
            for _time in range(loop.random.randint(1, 9)):
                loop.launch(name, 3)
        loop.now += 200
        loop.wait()
    assert {row.gpu for row in loop.kernels().values()} == {None}


def test_kernels_of_two_streams_at_once_have_no_time_of_their_own() -> None:
    loop = Loop(5)
    for _step in range(STEPS):
        for name, stream in (("a", 0x100), ("b", 0x200)):
            for _time in range(loop.random.randint(1, 5)):
                loop.launch(name, 200, stream=stream)
        loop.wait()
    assert {row.gpu for row in loop.kernels().values()} == {None}


def test_a_kernel_whose_work_varies_wildly_has_a_larger_error() -> None:
    steady, wild = mixed(6).kernels()["a"].gpu, mixed(6, spread=0.9).kernels()["a"].gpu
    assert steady is not None
    assert wild is None or wild.error_ns / wild.ns > steady.error_ns / steady.ns


def test_too_few_waits_show_nothing() -> None:
    loop = Loop(7)
    for _step in range(6):
        loop.launch("a", 200 * loop.random.randint(1, 3))
        loop.wait()
    assert {row.gpu for row in loop.kernels().values()} == {None}


def test_text_and_json_show_it_as_an_estimate() -> None:
    loop = mixed(8)
    loop.kernels()
    report = loop.program.report()
    made = document(report)
    assert_valid(made)
    told = [row for row in made["kernels"] if row["gpu_ns"] is not None]
    assert told
    assert all(0 < row["gpu_ns"]["error"] <= row["gpu_ns"]["estimate"] / 2 for row in told)
    assert "GPU time about " in report_to_text(report)
    assert ", give or take " in report_to_text(report)


def test_two_parts_have_together_what_both_say() -> None:
    loop = mixed(9)
    loop.kernels()
    evidence = loop.program.evidence()
    half = START + loop.now * US // 2
    partials = [
        ledger_of(evidence, None, one, part=True)[0] for one in ((START, half), (half, evidence.end_ns))
    ]
    joined = report_of(merge(*partials)).kernels
    assert joined is not None
    for row in joined.rows:
        parts = [one.gpu for part in partials for one in part.kernels.rows if one.name == row.name]
        if row.gpu is not None:
            assert row.gpu.ns == sum(one.ns for one in parts if one is not None)
            assert share_off(loop, row) < 1
        else:
            assert None in parts

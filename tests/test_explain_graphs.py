"""CUDA graphs: where they are made, how often, what they hold; and launches of a loop that would fit one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.analysis.answer.kernel_report import Fitting, GraphReport
from gputop.analysis.answer.report_output import report_to_text
from gputop.analysis.build import ledger_of
from gputop.analysis.ledger import merge, report_of
from gputop.documents.fields import document
from probes.source import FRAMES, Sample
from probes.stacks.stack_samples import kernel_number
from tests.items import START
from tests.json_page import assert_valid
from tests.programs import LAUNCH, MAIN, SYNC, US, Program, started

STREAM, SIDE = 0x500, 0x600
HERE, THERE = (1 << 62) + 8, (1 << 62) + 16
A_STEP, STEP_US, STEPS = 14, 2000, 40


def lines() -> Sample:
    frames = [[["/app/train.py", 12, "forward"]], [["/app/train.py", 20, "capture"]]]
    return Sample(FRAMES, START, {"pid": [MAIN] * 2, "stack": [HERE, THERE], "frames": frames})


def program() -> Program:
    made = started()
    made.header = {**made.header, "graphs": True}
    made.samples.append(lines())
    return made


def capture(made: Program, now: int, kernels: int, graph: int, *, side: int = 0) -> None:
    """A capture of 100 us that takes so many launches in, and what is instantiated of it."""
    made.call("cudaStreamBeginCapture", now, now + 1, stream=STREAM)
    for number in range(kernels):
        stream = SIDE if number < side else STREAM
        made.call(LAUNCH, now + 2 + 2 * number, now + 3 + 2 * number, stream=stream, aux=16 + number)
    made.call("cudaStreamEndCapture", now + 80, now + 81, stream=STREAM)
    made.call("cudaGraphInstantiate", now + 82, now + 90, aux=graph, stack=THERE)


def replay(made: Program, now: int, graph: int) -> None:
    made.call("cudaGraphLaunch", now, now + 5, aux=graph, stream=STREAM)
    made.call(SYNC, now + 10, now + 100)


def graphs_of(made: Program) -> GraphReport:
    report = made.report().graphs
    assert report is not None
    return report


def test_a_graph_that_is_made_once_and_launched_often() -> None:
    made = program()
    capture(made, 0, 5, 0xA)
    for number in range(30):
        replay(made, 200 + 200 * number, 0xA)
    (one,) = graphs_of(made).made
    assert (one.instantiated, one.launches, one.kernels, one.rebuilt) == (1, 30, (5, 5), False)
    assert one.line is not None
    assert one.line.text() == "train.py:20 in capture()"


def test_graphs_that_are_made_anew_for_each_launch_say_so() -> None:
    made = program()
    for number in range(20):
        capture(made, 400 * number, 3 + number % 2, 0xA00 + number % 3)  # handles are used again
        replay(made, 400 * number + 200, 0xA00 + number % 3)
    (one,) = graphs_of(made).made
    assert (one.instantiated, one.launches, one.kernels, one.rebuilt) == (20, 20, (3, 4), True)
    text = report_to_text(made.report())
    assert "instantiated 20 times at train.py:20 in capture(), 3 to 4 kernels each" in " ".join(text.split())
    assert "made anew for nearly every launch" in " ".join(text.split())


def test_an_update_in_place_is_no_new_graph() -> None:
    made = program()
    capture(made, 0, 5, 0xA)
    for number in range(10):
        made.call("cudaGraphExecUpdate", 200 + 200 * number, 210 + 200 * number, aux=0xA)
        replay(made, 220 + 200 * number, 0xA)
    (one,) = graphs_of(made).made
    assert (one.instantiated, one.updated, one.launches, one.rebuilt) == (1, 10, 10, False)


def test_what_a_capture_of_several_streams_holds_is_not_reported() -> None:
    made = program()
    capture(made, 0, 5, 0xA, side=2)
    replay(made, 200, 0xA)
    (one,) = graphs_of(made).made
    assert one.kernels is None


def test_a_graph_that_was_made_without_a_capture_holds_what_nobody_knows() -> None:
    made = program()
    capture(made, 0, 5, 0xA)
    made.call("cudaGraphInstantiate", 120, 130, aux=0xB, stack=HERE)
    replay(made, 200, 0xB)
    kernels = {one.line.line: one.kernels for one in graphs_of(made).made if one.line is not None}
    assert kernels == {20: (5, 5), 12: None}


def test_launches_of_graphs_from_before_are_distinguished() -> None:
    made = program()
    for number in range(4):
        replay(made, 200 + 200 * number, 0xA)
    report = graphs_of(made)
    assert (report.made, report.unseen) == ((), {MAIN: 4})


def test_a_recording_that_does_not_report_what_an_instantiation_left_shows_no_graphs() -> None:
    made = program()
    made.header = {key: value for key, value in made.header.items() if key != "graphs"}
    capture(made, 0, 5, 0xA)
    replay(made, 200, 0xA)
    report = made.report()
    assert report.graphs is None
    assert "graphs" not in document(report)


def test_two_parts_have_together_what_the_whole_has() -> None:
    made = program()
    capture(made, 0, 5, 0xA)
    for number in range(30):
        replay(made, 200 + 200 * number, 0xA)
    evidence, half = made.evidence(), START + 3000 * US
    parts = [(START, half), (half, evidence.end_ns)]
    joined = report_of(merge(*(ledger_of(evidence, None, one, part=True)[0] for one in parts))).graphs
    whole = made.report().graphs
    assert joined is not None
    assert whole is not None
    assert joined.made == whole.made


# -- what would fit one -----------------------------------------------------------------------------------


def steady(made: Program | None = None, **more: int) -> Program:
    """Each step launches the same kernels at two lines, and waits; ``more`` changes each fifth launch."""
    made = made or program()
    for step in range(STEPS):
        now = step * STEP_US
        for number in range(A_STEP):
            changed = more if number == 5 else {}
            usual = {"aux": 0x700 + number, "run_delay": 1, "stack": HERE if number < 7 else THERE}
            made.call(LAUNCH, now + 20 * number, now + 20 * number + 10, **{**usual, **changed})
        made.call(SYNC, now + 400, now + 900)
    return made


def fitting(made: Program) -> list[Fitting]:
    report = made.report().graphs
    return [] if report is None else [*report.fitting]


def test_launches_that_repeat_in_every_step_would_fit_a_graph() -> None:
    (one,) = fitting(steady())
    assert one.launches == A_STEP
    assert one.steps == one.of_steps
    assert one.of_steps >= STEPS - 2
    assert one.host_ns == (20 * (A_STEP - 1) + 10) * US
    assert [line.line for line in (one.first, one.last) if line is not None] == [12, 20]


@pytest.mark.parametrize("change", [{"run_delay": 0}, {"stream": 0x900}])
def test_a_shape_that_is_not_known_or_another_stream_breaks_the_run(change: dict[str, int]) -> None:
    assert fitting(steady(**change)) == []  # five, and eight: too few


def test_a_kernel_that_changes_from_step_to_step_breaks_the_run() -> None:
    made = program()
    for step in range(STEPS):
        now = step * STEP_US
        for number in range(A_STEP):
            shape = 1 + step % 2 if number == 5 else 1
            made.call(LAUNCH, now + 20 * number, now + 20 * number + 10, aux=number + 9, run_delay=shape)
        made.call(SYNC, now + 400, now + 900)
    assert fitting(made) == []


@pytest.mark.parametrize("op", ["cudaMalloc", "cudaStreamSynchronize", "cudaHostAlloc"])
def test_a_call_that_a_capture_does_not_take_breaks_the_run(op: str) -> None:
    made = steady()
    for step in range(STEPS):
        made.call(op, step * STEP_US + 131, step * STEP_US + 138)
    assert fitting(made) == []


def test_a_few_steps_show_nothing() -> None:
    made = program()
    for step in range(5):
        for number in range(A_STEP):
            at = step * STEP_US + 20 * number
            made.call(LAUNCH, at, at + 10, aux=number + 9, run_delay=1)
        made.call(SYNC, step * STEP_US + 400, step * STEP_US + 900)
    assert fitting(made) == []


def test_json_and_text_show_them() -> None:
    report = steady().report()
    told = document(report)
    assert_valid(told)
    (one,) = told["graphs"]["fitting"]
    assert (one["launches"], one["first"]["line"], one["last"]["line"]) == (A_STEP, 12, 20)
    text = " ".join(report_to_text(report).split())
    assert (
        f"{A_STEP} launches a step from train.py:12 in forward() to train.py:20 in capture() would fit"
        in text
    )
    assert "graphs" not in document(replace(report, graphs=None))


def test_launches_that_went_into_a_graph_are_reported_by_kernel() -> None:
    made = program()
    data = {"pid": [MAIN], "stack": [kernel_number(MAIN, 16)], "frames": [[["/app", 0, "first"]]]}
    made.samples.append(Sample(FRAMES, START, data))
    made.call(LAUNCH, 0, 10, aux=16, stream=STREAM)
    capture(made, 20, 5, 0xA)
    replay(made, 200, 0xA)
    report = made.report()
    assert report.kernels is not None
    assert {row.name: (row.launches, row.captured) for row in report.kernels.rows} == {
        "first": (2, 1),
        "": (4, 4),
    }
    assert "1 of all into graphs" in report_to_text(report)
    assert {row.gpu for row in report.kernels.rows} == {None}

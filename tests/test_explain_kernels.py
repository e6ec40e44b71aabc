"""Launches by kernel in the explanation: a second, a step, by line; names in the launch-bound finding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.analysis import ledger
from gputop.analysis.answer.kernel_report import KernelLaunches, KernelReport, kernel_texts, per_step_text
from gputop.analysis.answer.report import Report
from gputop.analysis.answer.report_output import report_to_text
from gputop.analysis.build import ledger_of
from gputop.analysis.estimates.estimate import GpuTimeOf
from gputop.documents.fields import document
from gputop.engine.calls.launch_counts import KernelRow
from gputop.engine.frame import ProcessRow
from gputop.ui.model.look import ASCII, UNICODE, Glyphs
from gputop.ui.model.process.reported import kernel_lines
from probes.shapes import Shape
from probes.source import FRAMES, Sample
from probes.stacks.stack_samples import is_kernel_number, kernel_number
from tests import fake_frames as fake
from tests.items import START
from tests.json_page import assert_valid
from tests.programs import EVENT_QUERY, LAUNCH, MAIN, RECORD, SYNC, US, Program, started

TORCH, OWN = "/venv/torch/lib/libtorch_cuda.so", "/home/me/app"
ADD, MUL, HANDLE = 0x7F00_0000_1000, 0x7F00_0000_2000, 0x5500_0000
FORWARD, LOSS = (1 << 62) + 8, (1 << 62) + 16
STEPS, A_STEP, STEP_US = 20, 3, 4000


def names(pid: int = MAIN) -> Sample:
    frames = [
        [[TORCH, 0, "void add<1, f<2> >(int)"]],
        [[OWN, 0, "mul(float*)"]],
        [["/app/train.py", 12, "forward"]],
        [["/app/train.py", 20, "loss"]],
    ]
    stacks = [kernel_number(pid, ADD), kernel_number(pid, MUL), FORWARD, LOSS]
    return Sample(FRAMES, START, {"pid": [pid] * 4, "stack": stacks, "frames": frames})


def loop(*samples: Sample) -> Program:
    """Each step launches add three times, mul at one of two lines, a handle at none, and waits."""
    program = started()
    program.samples += samples
    for step in range(STEPS):
        now = step * STEP_US
        for number in range(A_STEP):
            program.call(LAUNCH, now + 20 * number, now + 20 * number + 10, aux=ADD, stack=FORWARD)
        program.call(LAUNCH, now + 100, now + 110, aux=MUL, stack=LOSS if step % 2 else FORWARD)
        program.call("cuLaunchKernel", now + 120, now + 130, aux=HANDLE)
        program.call(LAUNCH, now + 140, now + 150, aux=ADD, ret=1)
        program.call(SYNC, now + 200, now + 2000)
    return program


def report_of(program: Program) -> KernelReport:
    report = program.report().kernels
    assert report is not None
    return report


def test_launches_are_counted_by_name_with_their_rate_and_how_often_a_step() -> None:
    report = report_of(loop(names()))
    seconds = ((STEPS - 1) * STEP_US + 2000) / 1e6
    assert [(row.name, row.library, row.launches, row.handles) for row in report.rows] == [
        ("void add<1, f<2> >(int)", "torch", STEPS * A_STEP, 1),
        ("", "", STEPS, 1),
        ("mul(float*)", "app", STEPS, 1),
    ]
    assert [report.per_step(row) for row in report.rows] == [A_STEP, 1, 1]
    assert report.per_second(report.rows[0]) == pytest.approx(STEPS * A_STEP / seconds)


def test_the_lines_of_a_kernel_come_with_their_launches_and_what_is_at_none_is_reported() -> None:
    add, nameless, mul = report_of(loop(names())).rows
    assert [(line.line, count) for line, count in add.first_lines] == [(12, STEPS * A_STEP)]
    assert [(line.line, count) for line, count in mul.first_lines] == [(12, STEPS // 2), (20, STEPS // 2)]
    assert (nameless.first_lines, nameless.unplaced, mul.unplaced) == ([], STEPS, 0)


def test_without_names_nothing_is_reported_of_kernels() -> None:
    for program in (loop(), loop(names(pid=MAIN + 1))):
        report = program.report()
        assert report.kernels is None
        assert "kernels" not in document(report)
        assert "Launched" not in report_to_text(report)


def test_a_program_that_repeats_nothing_has_launches_but_none_a_step() -> None:
    program = started()
    program.samples.append(names())
    program.call(LAUNCH, 0, 10, aux=ADD)
    program.call(LAUNCH, 3000, 3010, aux=MUL)
    program.call(SYNC, 3020, 3500)
    report = report_of(program)
    assert [report.per_step(row) for row in report.rows] == [None, None]
    assert " a step" not in "".join(kernel_texts(report))


def test_of_a_stretch_only_its_launches_count() -> None:
    report = loop(names()).report((0, 5 * STEP_US)).kernels
    assert report is not None
    assert sorted(row.launches for row in report.rows) == [5, 5, 5 * A_STEP]


def test_two_parts_have_together_what_the_whole_has() -> None:
    program = loop(names())
    evidence, half = program.evidence(), START + 10 * STEP_US * US
    parts = [(START, half), (half, evidence.end_ns)]
    partials = [ledger_of(evidence, None, one, part=True)[0] for one in parts]
    joined, whole = ledger.report_of(ledger.merge(*partials)).kernels, program.report().kernels
    assert joined is not None
    assert whole is not None
    assert [(row.key, row.launches, row.lines) for row in joined.rows] == [
        (row.key, row.launches, row.lines) for row in whole.rows
    ]
    assert [joined.per_step(row) for row in joined.rows] == [whole.per_step(row) for row in whole.rows]
    assert joined.over_ns == whole.over_ns
    assert ledger.report_of(ledger.merge(*partials), frozenset({MAIN + 1})).kernels is None


def test_json_and_text_show_them() -> None:
    report = loop(names()).report()
    told = document(report)
    assert_valid(told)
    first = told["kernels"][0]
    launches = STEPS * A_STEP
    assert (first["launches"], first["per_step"], first["lines"][0]["launches"]) == (
        launches,
        A_STEP,
        launches,
    )
    text = report_to_text(report, 200)
    assert "add<…> of torch: " in text
    assert f"launches a second, {A_STEP} a step at train.py:12 in forward()" in text


def test_the_tab_has_launches_a_step_and_the_line_where_the_explanation_knows_them() -> None:
    report = loop(names()).report()
    frame = fake.frame(processes=1)
    small, large = Shape((10, 1, 1), (512, 1, 1), 0), Shape((999, 9, 1), (512, 1, 1), 0)
    shapes = ((small, 300), (large, 100))
    kernels = (
        KernelRow("void add<9>(int)", TORCH, ADD, 500, shapes, 300),
        KernelRow("other(int)", OWN, MUL, 100),
    )
    row = replace(frame.processes[0], pid=MAIN, kernels=kernels)

    def shown(known: Report | None, who: ProcessRow = row) -> list[list[str]]:
        lines = kernel_lines(frame, who, 120, UNICODE, known)
        return ["".join(text for text, _token in line).split() for line in lines[1:]]

    add, other = shown(report)
    assert add[1:] == ["3", "83", "75", "torch", "<<<10,", "512>>>", "add<…>", "train.py:12"]
    assert other[1:] == ["-", "17", "-", "app", "-", "other"]
    assert shown(None)[0][1:] == ["-", "83", "75", "torch", "<<<10,", "512>>>", "add<…>"]
    assert shown(report, replace(row, pid=MAIN + 1)) == shown(None)


def test_the_tab_has_gpu_time_with_its_error_where_all_kernels_of_a_name_have_one() -> None:
    report = loop(names()).report()
    assert report.kernels is not None
    tenth = GpuTimeOf(report.kernels.over_ns / 10, report.kernels.over_ns / 80)
    timed = tuple(replace(row, gpu=tenth if "mul" in row.name else None) for row in report.kernels.rows)
    again = [replace(row, name=f"{row.name[:-1]}, int)") for row in timed if row.name]
    kernels = (KernelRow("mul(float*)", OWN, MUL, 100), KernelRow("void add<9>(int)", TORCH, ADD, 500))
    row = replace(fake.frame(processes=1).processes[0], pid=MAIN, kernels=kernels)

    def shown(*known: KernelLaunches, glyphs: Glyphs = UNICODE) -> list[str]:
        told = replace(report, kernels=replace(report.kernels, rows=known))
        lines = kernel_lines(fake.frame(processes=1), row, 80, glyphs, told)
        return ["".join(text for text, _token in line) for line in lines]

    head, add, mul = shown(*timed)
    assert "GPU%" in head
    assert [line[head.index("GPU%") - 3 :][:7].strip() for line in (add, mul)] == ["-", "10±2"]
    assert "20±3" in shown(*timed, *again)[2], "of two instances of a template the sum"
    assert "10+-2" in shown(*timed, glyphs=ASCII)[2]
    untimed = [replace(row, gpu=None) for row in again]
    assert "GPU%" not in shown(*untimed)[0]
    assert "±" not in "".join(shown(*timed, *untimed))


@pytest.mark.parametrize(
    ("times", "text"), [(3.0, "3"), (2.5, "2.5"), (0.01, "<0.1"), (0.0, "0"), (250.4, "250")]
)
def test_launches_a_step_are_as_short_as_they_can_be(times: float, text: str) -> None:
    assert per_step_text(times) == text


def test_a_kernels_number_is_no_stacks() -> None:
    assert is_kernel_number(kernel_number(MAIN, ADD))
    assert not is_kernel_number(FORWARD)
    assert not is_kernel_number(3)


def bound(*samples: Sample) -> tuple[str, ...]:
    """The evidence of the finding of a program that launches without a pause, add more often."""
    program = started()
    program.samples += samples
    now = 0
    for number in range(4000):
        kernel, stack = (MUL, LOSS) if number % 4 == 3 else (ADD, FORWARD)
        program.call(LAUNCH, now, now + 8, aux=kernel, stack=stack)
        now += 10
        if number % 400 == 399:
            program.call(SYNC, now, now + 20)
            now += 30
    (finding,) = [one for one in program.report().findings if one.cause == "C06"]
    return finding.evidence


def test_a_launch_bound_program_is_told_what_it_launches_most_and_where() -> None:
    (said,) = [text for text in bound(names()) if text.startswith("launched most")]
    assert said == "launched most: add<…> 75 % at train.py:12 in forward(), mul 25 % at train.py:20 in loss()"


def refilled(*samples: Sample) -> tuple[str, ...]:
    """The evidence where a query finds the GPU idle; 0.5 ms later mul ends each third gap, add the others."""
    program = started()
    program.samples += samples
    for step in range(30):
        now = step * 10_000
        kernel, stack = (ADD, FORWARD) if step % 3 else (MUL, LOSS)
        program.call(LAUNCH, now, now + 10, aux=kernel, stack=stack)
        program.call(LAUNCH, now + 12, now + 14, aux=HANDLE)
        program.call(RECORD, now + 16, now + 18, aux=5)
        program.call(EVENT_QUERY, now + 9500, now + 9502, aux=5)
    (finding,) = program.report().findings
    assert finding.cause == "C06"
    return finding.evidence


def test_where_the_gpu_waits_for_launches_the_kernels_that_end_the_gaps_are_named() -> None:
    told, plain = refilled(names()), refilled()
    assert told[: len(plain) - 1] == plain[:-1], "the last one says how sure it is"
    assert not any("launches of" in text for text in plain)
    # of 29 gaps the first launch, which ends none, is one of mul's ten
    assert told[-2] == (
        "the GPU waited for the launches of: add<…> 69 % at train.py:12 in forward(), "
        "mul 31 % at train.py:20 in loss()"
    )


def test_without_names_its_evidence_is_what_it_was() -> None:
    nameless = replace(names(), data={"pid": [], "stack": [], "frames": []})
    plain = bound()
    assert plain == bound(nameless)
    assert bound(names())[: len(plain)] == plain

"""Ranges that a program names: as paths in chains and evidence, and steps by range."""

from __future__ import annotations

import numpy as np
import pytest

from gputop.analysis.build import explain
from gputop.analysis.chains.named_ranges import NamedRanges
from gputop.analysis.chains.steps import named_rounds
from gputop.analysis.evidence.api_classes import SPAN
from probes.activities import activity_samples, unknown_rows
from tests.items import START
from tests.programs import LAUNCH, MAIN, US, Program, started
from tests.traced_programs import KERNEL, RANGE, Traced


def annotated(program: Program, *rows: tuple[str, int, int, int]) -> Program:
    """A program with ranges (name, begin, end, thread or -1) beside its calls, times in us."""
    texts = ["", RANGE, SPAN, *dict.fromkeys(row[0] for row in rows)]
    table = unknown_rows(len(rows))
    for place, (name, begin, end, tid) in enumerate(rows):
        table["begin"][place], table["end"][place] = START + begin * US, START + end * US
        table["pid"][place], table["tid"][place] = MAIN, tid
        table["what"][place], table["name"][place] = 1 if tid >= 0 else 2, texts.index(name)
    program.samples += list(activity_samples(table, texts, START))
    return program


def synchronous(steps: int = 40) -> Program:
    """Each step waits for its kernel, then works for a millisecond on the CPU."""
    program = started()
    for step in range(steps):
        at = 2_000 * step
        program.call(LAUNCH, at, at + 10)
        program.call("cudaDeviceSynchronize", at + 10, at + 1_000)
    return program


def ranges_of(steps: int, tid: int) -> list[tuple[str, int, int, int]]:
    rows = [("epoch 1", 0, 2_000 * steps, tid)]
    for step in range(steps):
        at = 2_000 * step
        rows += [(f"step {step}", at, at + 1_990, tid), ("log", at + 1_050, at + 1_950, tid)]
    return rows


def test_without_kernels_the_chain_and_the_evidence_name_the_path_of_ranges() -> None:
    report = explain(annotated(synchronous(), *ranges_of(40, MAIN)).evidence())
    assert report.exact is None, "no kernels are known"
    texts = [link.text for one in report.findings for link in one.chain]
    assert any("in range `epoch 1/step #/log`" in text for text in texts), texts
    said = [text for one in report.findings for text in one.evidence]
    assert any(text.startswith("the thread was in range `epoch 1/step #/log` ") for text in said), said


def test_paths_of_a_thread_are_disjoint_and_those_of_its_process_lie_around_them() -> None:
    rows = [("task", 0, 900, -1), ("forward", 100, 500, MAIN), ("attention", 200, 300, MAIN)]
    known = NamedRanges(annotated(synchronous(2), *rows).evidence()).of(MAIN, MAIN)
    whole = np.array([START]), np.array([START + 1_000 * US])
    assert {path: ns // US for path, ns in known.times(*whole).items()} == {
        "task": 500, "task/forward": 300, "task/forward/attention": 100,
    }  # fmt: skip
    other = NamedRanges(annotated(synchronous(2), *rows).evidence()).of(MAIN, MAIN + 1)
    assert {path: ns // US for path, ns in other.times(*whole).items()} == {"task": 900}


def test_an_end_that_overlaps_cuts_the_inner_range() -> None:
    rows = [("outer", 0, 500, MAIN), ("inner", 400, 800, MAIN)]
    known = NamedRanges(annotated(synchronous(2), *rows).evidence()).of(MAIN, MAIN)
    whole = np.array([START]), np.array([START + 1_000 * US])
    assert {path: ns // US for path, ns in known.times(*whole).items()} == {"outer": 400, "outer/inner": 100}


@pytest.mark.parametrize("tid", [MAIN, -1])
def test_steps_are_those_that_ranges_name_within_an_epoch(tid: int) -> None:
    evidence = annotated(synchronous(), *ranges_of(40, tid)).evidence()
    thread = int(np.flatnonzero(evidence.threads.tid == MAIN)[0])
    rounds = named_rounds(evidence, thread, (START, START + 10**9), called_steps=True)
    assert rounds is not None
    assert len(rounds[0]) == 40
    assert ((rounds[0] - START) % (2_000 * US) == 0).all()
    report = explain(evidence)
    assert report.steps is not None
    assert report.steps.count == 40


def test_steps_are_named_also_where_start_up_took_longer_than_all_of_them() -> None:
    program, late = started(), 500_000
    program.call(LAUNCH, 0, 10)
    for step in range(30):
        at = late + 2_000 * step
        program.call(LAUNCH, at, at + 10)
        program.call("cudaDeviceSynchronize", at + 10, at + 1_000)
    rows = [(f"step {step}", late + 2_000 * step, late + 2_000 * step + 1_990, MAIN) for step in range(30)]
    report = explain(annotated(program, *rows).evidence())
    assert report.steps is not None
    assert report.steps.count == 30


def test_of_a_file_with_kernels_ranges_are_told_as_paths_too() -> None:
    traced = Traced()
    for step in range(60):
        at = 3_000 * step
        traced.within(RANGE, "forward", at, at + 2_900)
        traced.within(RANGE, "tokenize", at + 500, at + 2_400)
        traced.gives(at, at + 5, (at + 10, at + 400), KERNEL)
        traced.gives(at + 2_500, at + 2_505, (at + 2_510, at + 2_900), KERNEL)
    said = [text for one in explain(traced.made().evidence()).findings for text in one.evidence]
    assert any("in range `forward/tokenize`" in text for text in said), said


def test_what_emit_nvtx_puts_behind_an_operator_is_no_part_of_its_range() -> None:
    names = [f"aten::linear, seq = {one}, op_id = {one + 7}, sizes = [[1, 2]]" for one in range(5)]
    rows = [(name, 100 * place, 100 * place + 90, MAIN) for place, name in enumerate(names)]
    known = NamedRanges(annotated(synchronous(2), *rows).evidence()).of(MAIN, MAIN)
    assert set(known.paths) == {"aten::linear"}


def test_ranges_that_are_called_steps_go_before_those_of_a_busier_thread() -> None:
    other = MAIN + 1
    program = synchronous()
    program.thread(other)
    for step in range(40):
        for place in range(3):
            at = 2_000 * step + 20 + 20 * place
            program.call(LAUNCH, at, at + 5, tid=other, pid=MAIN)
    rows = ranges_of(40, MAIN)
    rows += [(f"node {step}", 2_000 * step + 10, 2_000 * step + 1_990, other) for step in range(40)]
    rows += [(f"node {100 + step}", 2_000 * step + 1_995, 2_000 * step + 1_999, other) for step in range(40)]
    report = explain(annotated(program, *rows).evidence())
    assert report.steps is not None
    assert (report.steps.tid, report.steps.count) == (MAIN, 40)

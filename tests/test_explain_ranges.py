"""Ranges that a program names: as paths in chains and evidence, and steps by range."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from gputop.analysis.answer.picture import MOST_RANGES, OTHER_RANGES, WHOLE, Lanes
from gputop.analysis.build import examine, explain
from gputop.analysis.chains.named_ranges import NamedRanges
from gputop.analysis.chains.steps import named_rounds
from gputop.analysis.evidence.api_classes import SPAN
from gputop.analysis.lanes import joined, lanes_of
from gputop.report_page.timeline_html import timeline
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
    known = NamedRanges(annotated(synchronous(2), *rows).evidence().activities).of(MAIN, MAIN)
    whole = np.array([START]), np.array([START + 1_000 * US])
    assert {path: ns // US for path, ns in known.times(*whole).items()} == {
        "task": 500, "task/forward": 300, "task/forward/attention": 100,
    }  # fmt: skip
    other = NamedRanges(annotated(synchronous(2), *rows).evidence().activities).of(MAIN, MAIN + 1)
    assert {path: ns // US for path, ns in other.times(*whole).items()} == {"task": 900}


def test_an_end_that_overlaps_cuts_the_inner_range() -> None:
    rows = [("outer", 0, 500, MAIN), ("inner", 400, 800, MAIN)]
    known = NamedRanges(annotated(synchronous(2), *rows).evidence().activities).of(MAIN, MAIN)
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


def test_of_a_file_with_kernels_ranges_are_reported_as_paths_too() -> None:
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
    known = NamedRanges(annotated(synchronous(2), *rows).evidence().activities).of(MAIN, MAIN)
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


def in_lanes(program: Program) -> Lanes:
    report, scene, outcome = examine(program.evidence())
    return lanes_of(scene, outcome, report, report.start_ns)


def test_a_lane_of_each_thread_has_the_time_in_its_ranges_by_path() -> None:
    (lane,) = in_lanes(annotated(synchronous(200), *ranges_of(200, MAIN))).ranges
    assert (lane.pid, lane.tid) == (MAIN, MAIN)
    assert lane.names == ("epoch 1/step #", "epoch 1/step #/log", "epoch 1")
    whole = lane.shares.sum(axis=0)
    assert set(whole[1:-1].tolist()) == {WHOLE}, "it is always within the epoch"
    of_log = lane.shares[1, 1:-1].mean() / WHOLE
    assert of_log == pytest.approx(0.45, abs=0.01), "0.9 of 2 ms"
    assert in_lanes(synchronous(200)).ranges == ()


def test_of_very_many_ranges_a_lane_names_those_that_take_most_and_the_rest_together() -> None:
    rows = [
        (f"part {chr(97 + part)}", 2_000 * step + 50 * part, 2_000 * step + 50 * part + 20 + part, MAIN)
        for step in range(200)
        for part in range(26)
    ]
    (lane,) = in_lanes(annotated(synchronous(200), *rows)).ranges
    assert lane.names == (*(f"part {chr(122 - place)}" for place in range(MOST_RANGES - 1)), OTHER_RANGES)
    time = sum(20 + part for part in range(26)) / 2_000
    assert lane.shares[:, 1:-1].sum(axis=0).mean() / WHOLE == pytest.approx(time, abs=0.02)


def test_lanes_of_two_windows_keep_the_time_of_each_name() -> None:
    whole = in_lanes(annotated(synchronous(200), *ranges_of(200, MAIN)))
    (lane,) = whole.ranges
    half = whole.columns // 2

    def part(first: int, end: int, names: tuple[str, ...]) -> Lanes:
        shares = np.stack([lane.shares[lane.names.index(name), first:end] for name in names])
        cut = replace(lane, names=names, shares=shares)
        marks = whole.marks[:, first:end]
        threads = tuple(
            replace(one, states=one.states[:, first:end], calls=one.calls[:, first:end])
            for one in whole.threads
        )
        return Lanes(whole.first + first, end - first, (), threads, marks, (cut,))

    both = joined(part(0, half, lane.names), part(half, whole.columns, lane.names[::-1]), whole.first)
    assert both.ranges == (lane,)


def test_the_page_shows_a_threads_ranges_as_a_lane_with_their_names() -> None:
    program = annotated(synchronous(200), *ranges_of(200, MAIN), ("<b>", 0, 300_000, MAIN + 5))
    report, scene, outcome = examine(program.evidence())
    page = timeline(lanes_of(scene, outcome, report, report.start_ns), report, {MAIN: "python"})
    assert f'<div class="name">{MAIN} ranges</div>' in page
    assert re.search(r'class="range1".*?<title>epoch 1/step #/log: 4[45]\.\d %</title>', page)
    assert '<rect class="range0" width="10" height="10"/></svg> epoch 1/step #</li>' in page
    assert "<b>" not in page

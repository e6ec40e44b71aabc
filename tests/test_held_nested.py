"""Memory by calls that a mark divides, and by calls that work on one of several GPUs."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gputop.analysis.evidence.memory_ledger import Held
from probes.schema import Records
from probes.source import Item
from tests import items
from tests.held_rows import GIB, LINES, MIB, A, B, C, memory, report_of, took
from tests.items import MS, START

US = 1000


def nested(at_ms: int, op: str, inner: str, **more: int) -> tuple[Records, Records]:
    """A call of the driver within one of the runtime, by whose stack the line is known."""
    stack = more.pop("stack", 0)
    inside = items.call(START + at_ms * MS - 5 * US, 20 * US, inner, nested=1, **more)
    return inside, items.call(START + at_ms * MS, 40 * US, op, stack=stack, **more)


def calls() -> list[tuple[Records, Records]]:
    """What is taken, refused and given back."""
    return [
        nested(1, "cudaMalloc", "cuMemAlloc", aux=0x1000, bytes=4 * MIB, stack=A),
        nested(2, "cudaMallocHost", "cuMemHostAlloc", aux=0x2000, bytes=MIB, stack=B),
        nested(3, "cudaMalloc", "cuMemAlloc", bytes=GIB, ret=2, stack=C),
        nested(4, "cudaMalloc", "cuMemAlloc", bytes=GIB, ret=2, stack=C),
        nested(5, "cudaFree", "cuMemFree", aux=0x1000),
        nested(6, "cudaMalloc", "cuMemAlloc", aux=0x1000, bytes=2 * MIB, stack=B),
    ]


def known(held: Held) -> Any:
    return held.sums, held.peaks, held.strangers, held.shortages


def test_a_call_that_a_mark_divides_counts_once_wherever_the_mark_lies() -> None:
    whole = Held()
    for row in (row for pair in calls() for row in pair):
        whole.add(row)
    whole.mark(START + 100 * MS)
    assert {(use, LINES[stack]): one for (_, use, stack), one in whole.sums.items()} == {
        ("device", 10): (0, 0, 4 * MIB, 1),
        ("pinned", 20): (MIB, 1, MIB, 1),
        ("device", 20): (2 * MIB, 1, 2 * MIB, 1),
    }
    assert whole.strangers == {}
    assert [one.attempts for one in whole.shortages] == [2]
    for divided in range(1 << len(calls())):
        held = Held()
        for place, (inner, outer) in enumerate(calls()):
            held.add(inner)
            if divided >> place & 1:
                held.mark(int(inner["t_end"][0]) + US)
                held = held.copy()
            held.add(outer)
        held.mark(START + 100 * MS)
        assert known(held) == known(whole), divided


def test_a_nested_call_counts_before_the_call_around_it_returns_and_where_that_is_no_call_of_memory() -> None:
    inner, _outer = nested(1, "cudaMalloc", "cuMemAlloc", aux=0x1000, bytes=MIB)
    held = Held()
    held.add(inner)
    held.mark(START + MS)
    assert held.total(10) == MIB
    held.add(items.call(START + MS, 40 * US, "ncclGroupEnd"))
    for row in nested(3, "cudaMalloc", "cuMemAlloc", aux=0x2000, bytes=MIB, stack=A):
        held.add(row)
    held.mark(START + 4 * MS)
    assert held.total(10) == 2 * MIB


def chosen(at_ms: int, device: int, tid: int = 10, **more: int) -> Item:
    return items.call(START + at_ms * MS, 1000, "cudaSetDevice", aux=device, tid=tid, **more)


def reset(at_ms: int, tid: int = 10) -> Item:
    return items.call(START + at_ms * MS, 1000, "cudaDeviceReset", tid=tid)


def lines_of(rows: tuple[Item, ...], marks: int | None = None) -> tuple[dict[int, int], frozenset[int]]:
    """(line -> bytes, processes of which it is not known); with a mark behind every so many rows."""
    held = Held()
    for place, row in enumerate(rows):
        held.add(row)  # type: ignore[arg-type]
        if marks is not None and place % marks == 0:
            held.mark(int(row["t_end"][0]))  # type: ignore[call-overload]
            held = held.copy()
    held.mark(START + 1000 * MS)
    return {LINES[stack]: one.held for (_, _, stack), one in held.sums.items() if one.held}, held.unsure


ON_TWO = (
    chosen(1, 0),
    took(2, 0x1000, MIB, A),
    chosen(3, 1),
    took(4, 0x2000, 2 * MIB, B),
    chosen(5, 0, tid=11),
    took(6, 0x3000, 4 * MIB, C, tid=11),
)


@pytest.mark.parametrize("marks", [None, 1, 2])
def test_a_reset_gives_back_what_the_process_has_of_that_gpu_only(marks: int | None) -> None:
    assert lines_of((*ON_TWO, reset(9)), marks) == ({10: MIB, 30: 4 * MIB}, frozenset())
    assert lines_of((*ON_TWO, reset(9, tid=11)), marks) == ({20: 2 * MIB}, frozenset())
    assert lines_of((*ON_TWO, reset(9), reset(10, tid=11)), marks) == ({}, frozenset())


def test_a_thread_that_chose_no_gpu_works_on_the_first_where_nothing_is_missing() -> None:
    begins = items.event(items.Kind.EXEC, START)
    rows = (took(1, 0x1000, MIB, A), chosen(2, 1, tid=11), took(3, 0x2000, MIB, B, tid=11), reset(4))
    assert lines_of((begins, *rows)) == ({20: MIB}, frozenset())
    assert lines_of(rows) == ({10: MIB, 20: MIB}, frozenset({10})), "a choice from before may be missing"


def test_a_choice_that_failed_changes_nothing_and_another_program_has_made_none() -> None:
    failed = chosen(7, 1, tid=11, ret=101)
    assert lines_of((*ON_TWO, failed, reset(9, tid=11))) == ({20: 2 * MIB}, frozenset())
    begins = items.event(items.Kind.EXEC, START + 7 * MS)
    again = (took(8, 0x1000, MIB, A), reset(9))
    assert lines_of((*ON_TWO, begins, *again)) == ({}, frozenset())


def test_behind_lost_records_it_is_not_known_which_gpu_a_thread_works_on_until_it_says_so() -> None:
    held = Held()
    for row in ON_TWO:
        held.add(row)  # type: ignore[arg-type]
    held.mark(START + 7 * MS)
    held.lost()
    for row in (took(8, 0x4000, MIB, A), reset(9)):
        held.add(row)  # type: ignore[arg-type]
    held.mark(START + 10 * MS)
    assert (held.total(10), held.unsure) == (8 * MIB, frozenset({10}))
    for row in (chosen(11, 1), reset(12)):
        held.add(row)  # type: ignore[arg-type]
    held.mark(START + 13 * MS)
    assert held.total(10) == 6 * MIB  # that of GPU 0, and what was taken when nobody knew where


def test_what_a_reset_gave_back_is_reported_not_to_be_known() -> None:
    elsewhere = items.process(10, cuda_devices=[0, 1])
    notes = report_of(took(1, 0x1000, MIB), reset(2), took(3, 0x2000, MIB)).notes
    assert not any("reset" in note for note in notes)
    report = report_of(elsewhere, took(1, 0x1000, MIB), reset(2), took(3, 0x2000, MIB))
    assert any("process 10 reset one of its GPUs" in note for note in report.notes)
    (one,) = memory(elsewhere, took(1, 0x1000, MIB), reset(2), took(3, 0x2000, MIB)).processes
    assert one.held == 2 * MIB


def test_threads_that_choose_before_every_call_are_distinguished() -> None:
    chance, rows, want = random.Random(5), [], {0: 0, 1: 0, 2: 0}
    for at in range(1, 300):
        tid, device = chance.choice([10, 11, 12]), chance.choice([0, 1, 2])
        rows += [
            chosen(2 * at, device, tid=tid),
            took(2 * at + 1, 0x1000 * at, MIB, (A, B, C)[device], tid=tid),
        ]
        want[device] += MIB
    assert lines_of((*rows, chosen(700, 1), reset(701)), 7) == ({10: want[0], 30: want[2]}, frozenset())

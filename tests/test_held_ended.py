"""Memory of processes that ended or ran before, and what is left of it where records were lost."""

from __future__ import annotations

import sys

import pytest

from gputop.analysis.answer.memory_report import shortage_lines
from gputop.analysis.evidence.memory_ledger import Held
from probes.schema import ExitFlag, Kind
from probes.source import Item
from tests import items
from tests.held_rows import GIB, MIB, B, freed, held_after, memory, report_of, took
from tests.items import HEADER, MS, SECOND, START


def test_a_process_that_gets_the_number_of_one_that_ended_is_told_by_what_it_holds_itself() -> None:
    end = items.event(Kind.EXIT, START + 3 * MS, flags=ExitFlag.GROUP_DEAD)
    rows = (took(1, 0x1000, 4 * MIB), end, took(5, 0x1000, MIB, B), took(6, 0x2000, MIB, B))
    (one,) = memory(*rows).processes
    assert (one.held, one.peak) == (2 * MIB, 2 * MIB)
    assert [(row.held, row.allocated) for row in one.lines] == [(2 * MIB, 2 * MIB)]


def test_of_processes_that_ended_the_oldest_are_forgotten_and_of_those_without_memory_nothing_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.modules[Held.__module__], "MOST_ENDED", 3)
    held = Held()
    for number in range(1, 8):
        at, idle = 10 * number, 100 + number
        ends = [
            items.event(Kind.EXIT, START + (at + 2) * MS, flags=ExitFlag.GROUP_DEAD, pid=pid, tid=pid)
            for pid in (number, idle)
        ]
        begins = [items.event(Kind.EXEC, START + at * MS, pid=pid) for pid in (number, idle)]
        for row in (*begins, took(at + 1, 0x1000, MIB, pid=number), *ends):
            held.add(row)  # type: ignore[arg-type]
    held.mark(START + 1000 * MS)
    assert {origin[0] for origin in held.sums} == set(held.peaks) == {5, 6, 7}
    assert [pid for pid in range(200) if held.begun(pid)] == [5, 6, 7]


@pytest.mark.parametrize(
    ("start_ns", "programs", "whole"),
    [
        (START + SECOND + MS, (), True),
        (START + MS, (), False),
        (None, (), False),
        (START + MS, (items.event(Kind.EXEC, START),), True),
    ],
    ids=["began later", "ran before", "nobody knows", "another program since"],
)
def test_a_process_that_ran_before_holds_more_than_was_seen_and_that_is_reported(
    start_ns: int | None, programs: tuple[Item, ...], whole: bool
) -> None:
    facts = items.process(10, **({} if start_ns is None else {"start_ns": start_ns}))
    asleep = {**HEADER["clock"], "boottime_ns": START + SECOND}  # the machine has slept for a second
    report = memory(facts, *programs, took(1, 0x1000, MIB), took(3, 0, 90 * GIB, ret=2), clock=asleep)
    (one,) = report.processes
    (failed,) = report.shortages
    assert (one.whole, failed.whole) == (whole, whole)
    said = "it held 1.0M in 1 allocations" + ("" if whole else ", and memory from before it was watched")
    assert f"  {said}:" in shortage_lines(failed)


def test_where_events_were_lost_what_is_held_is_not_certain_and_that_is_reported() -> None:
    told = [
        report_of(took(1, 0x1000, MIB), items.mark(9, START + 5 * MS, **lost)).notes
        for lost in ({}, {"calls": 3})
    ]
    assert ["events were lost" in " ".join(notes) for notes in told] == [False, True]


def test_physical_memory_whose_release_was_lost_goes_when_its_handle_or_its_place_is_given_away() -> None:
    first, second = took(1, 7, 4 * MIB, op="cuMemCreate"), took(2, 7, 2 * MIB, B, op="cuMemCreate")
    assert held_after(first, second, freed(3, 7, "cuMemRelease")) == {}
    mapped = [took(at, 7, MIB, op="cuMemMap", stream=0x10000) for at in (3, 7)]
    released, again = freed(4, 7, "cuMemRelease"), took(6, 7, 2 * MIB, B, op="cuMemCreate")
    assert held_after(first, mapped[0], released, again, mapped[1]) == {20: 2 * MIB}


def test_physical_memory_of_a_recording_without_handles_is_not_counted() -> None:
    assert held_after(took(1, 0, MIB, op="cuMemCreate"), took(2, 0, MIB, op="cuMemCreate")) == {}

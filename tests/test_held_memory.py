"""Who holds memory, what grows without end and why an allocation failed, from records with known figures."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from gputop.analysis.answer.memory_report import (
    Blame,
    Holder,
    MemoryReport,
    OutOfMemory,
    leak_line,
    shortage_lines,
)
from gputop.analysis.answer.report_output import report_to_text
from gputop.analysis.evidence.memory_ledger import Held
from gputop.analysis.findings.memory_findings import LEAST_NS, growth_of
from gputop.documents.fields import document
from gputop.playback.feed import Explained
from gputop.recording.adaptive import SumsOnly
from probes.schema import ExitFlag, Kind
from probes.source import Item
from tests import fake_frames as fake
from tests import items
from tests.held_rows import GIB, LINES, MIB, A, B, C, freed, held_after, memory, nvml, report_of, took
from tests.items import MS, START
from tests.json_page import assert_valid
from tests.screen_support import Shown

# -- who holds what -----------------------------------------------------------------------------


def test_each_line_holds_what_it_took_and_nobody_gave_back() -> None:
    assert held_after(
        took(1, 0x1000, 5 * MIB), took(2, 0x2000, 3 * MIB, B), took(3, 0x3000, MIB), freed(4, 0x2000, tid=12)
    ) == {10: 6 * MIB}


def test_an_address_that_is_used_again_is_never_mistaken_for_the_one_before() -> None:
    """The free begins before the address is given to somebody else, and returns after it."""
    slow_free = freed(9, 0x1000, duration=5 * MS, tid=12)
    assert held_after(took(1, 0x1000, MIB), took(6, 0x1000, 2 * MIB, B), slow_free) == {20: 2 * MIB}


def test_memory_from_a_pool_pinned_and_managed_memory_are_freed_by_their_own_functions() -> None:
    rows = [
        took(1, 0x1000, MIB, op="cudaMallocAsync"),
        took(2, 0x2000, MIB, B, op="cudaMallocHost"),
        took(3, 0x3000, MIB, C, op="cudaMallocManaged"),
        took(4, 0x3000, MIB, B, op="cudaHostRegister"),
    ]
    assert held_after(*rows) == {10: MIB, 20: 2 * MIB, 30: MIB}
    gone = [freed(5, 0x1000, "cudaFreeAsync"), freed(6, 0x2000, "cudaFreeHost"), freed(7, 0x3000)]
    assert held_after(*rows, *gone) == {20: MIB}
    assert held_after(*rows, *gone, freed(8, 0x3000, "cudaHostUnregister")) == {}


def test_a_driver_call_inside_a_runtime_call_is_not_counted_again_but_one_inside_another_call_is() -> None:
    inner = items.call(START + MS - 100, 500, "cuMemAlloc", aux=0x1000, bytes=MIB, nested=1)
    assert held_after(inner, took(1, 0x1000, MIB)) == {10: MIB}
    lone = items.call(START + MS, 500, "cuMemAlloc", aux=0x9000, bytes=MIB, stack=C, nested=1)
    assert held_after(lone, items.call(START + MS + 50, 2000, "ncclGroupEnd")) == {30: MIB}


def test_physical_memory_goes_with_its_handle_and_its_last_mapping() -> None:
    made = [took(1, 7, 4 * MIB, op="cuMemCreate")]
    made += [took(2, 7, 4 * MIB, op="cuMemMap", stream=0x10000)]
    released = freed(3, 7, "cuMemRelease")
    unmapped = items.call(START + 4 * MS, 10, "cuMemUnmap", aux=0x10000, bytes=4 * MIB)
    assert held_after(*made) == held_after(*made, released) == held_after(*made, unmapped) == {10: 4 * MIB}
    assert held_after(*made, released, unmapped) == {}
    again = took(5, 7, 2 * MIB, B, op="cuMemCreate")  # the number of a handle is used again
    assert held_after(*made, released, again, freed(6, 7, "cuMemRelease")) == {10: 4 * MIB}


@pytest.mark.parametrize(
    "end",
    [
        items.event(Kind.EXIT, START + 9 * MS, flags=ExitFlag.GROUP_DEAD),
        items.event(Kind.EXEC, START + 9 * MS),
        items.call(START + 9 * MS, 1000, "cudaDeviceReset"),
    ],
)
def test_the_end_of_a_process_another_program_and_a_reset_give_all_back(end: Item) -> None:
    assert held_after(took(1, 0x1000, MIB), end) == {}


def test_calls_that_failed_and_frees_of_nothing_change_nothing_and_frees_of_the_unknown_are_counted() -> None:
    held = Held()
    for row in (took(1, 0x1000, MIB), freed(2, 0x1000, ret=1), freed(3, 0), freed(4, 0x5000)):
        held.add(row)  # type: ignore[arg-type]
    held.mark(START + 9 * MS)
    assert held.total(10) == MIB
    assert held.strangers == {10: 1}


def test_what_is_held_does_not_depend_on_where_the_marks_lie() -> None:
    chance = random.Random(3)
    rows: list[Any] = []
    alive: list[int] = []
    for at in range(1, 400):
        if alive and chance.random() < 0.45:
            rows.append(freed(at, alive.pop(chance.randrange(len(alive)))))
        else:
            alive.append(0x1000 * at)
            rows.append(took(at, alive[-1], chance.randrange(1, MIB), chance.choice([A, B, C])))
    whole = held_after(*rows)
    for seed in range(5):
        held, cut = Held(), random.Random(seed)
        for row in rows:
            held.add(row)
            if cut.random() < 0.2:
                held.mark(int(row["t_end"][0]))
                held = held.copy()
        held.mark(START + 1000 * MS)
        assert {LINES[s]: one.held for (_, _, s), one in held.sums.items() if one.held} == whole


def test_a_recording_without_addresses_says_nothing_of_memory() -> None:
    assert report_of(took(1, 0, MIB), addresses=False).memory is None


def test_a_process_that_has_ended_is_told_with_what_it_held_until_then() -> None:
    end = items.event(Kind.EXIT, START + 9 * MS, flags=ExitFlag.GROUP_DEAD)
    (one,) = memory(took(1, 0x1000, MIB), took(2, 0x2000, MIB), freed(3, 0x1000), end).processes
    assert (one.ended, one.held, one.peak) == (True, MIB, 2 * MIB)


# -- what grows ---------------------------------------------------------------------------------


def series(*held: int, tick_ms: int = 250) -> Any:
    origin = (10, "device", A)
    return tuple((START + at * tick_ms * MS, {origin: size * MIB}) for at, size in enumerate(held)), [origin]


def test_a_line_that_takes_more_step_after_step_leaks() -> None:
    found = growth_of(*series(*range(0, 120, 2)))
    assert found is not None
    assert found.grown / found.over_ns * 1e9 == pytest.approx(8 * MIB, rel=0.15)


@pytest.mark.parametrize(
    ("held", "why"),
    [
        ([100] * 60, "stays"),
        ([min(10 * at, 200) for at in range(60)], "fills up at first"),
        ([100 + 50 * (at % 9) for at in range(60)], "goes up and down"),
        ([int(200 * (1 - 0.9**at)) for at in range(60)], "rises more and more slowly"),
        ([at // 20 for at in range(60)], "rises now and then"),
        (list(range(12)), "is not looked at for long enough"),
    ],
)
def test_healthy_programs_do_not_leak(held: list[int], why: str) -> None:
    assert growth_of(*series(*held)) is None, why


def test_a_leak_that_begins_late_is_found() -> None:
    assert growth_of(*series(*([100] * 90 + [100 + 3 * at for at in range(60)]))) is not None


def test_a_leak_is_reported_with_its_line_its_rate_and_when_the_gpu_is_full() -> None:
    steps = 60
    rows = [took(at * 200, 0x1000 * at, 10 * MIB) for at in range(1, steps)]
    rows += [took(5, 0xF000_0000, 400 * MIB, B)]
    assert steps * 200 * MS > LEAST_NS
    (leak,) = memory(*rows, nvml(11_000, 60 * GIB, {10: 60 * GIB}), ticks=steps).leaks
    assert leak.line is not None
    assert leak.line.line == 10
    assert leak.rate == pytest.approx(50 * MIB, rel=0.1)
    assert leak.full_in_ns == pytest.approx(20 * GIB / (50 * MIB) * 1e9, rel=0.1)
    assert "train.py:10 in step()" in leak_line(leak)
    assert leak_line(leak).startswith("train (10) holds more and more GPU memory")
    assert leak_line(replace(leak, name="")).startswith("process 10 holds")


def test_a_leak_that_many_lines_share_is_that_of_the_process() -> None:
    rows = [
        took(at * 200, 0x1000 * at, 10 * MIB, (A, B, C)[(at // 9) % 3], op="cudaMalloc")
        for at in range(1, 60)
    ]
    (leak,) = memory(*rows, ticks=60).leaks
    assert leak.use is None
    assert "no line alone" in leak_line(leak)


@pytest.mark.slow
def test_what_is_held_and_what_failed_is_reported_where_only_sums_are_recorded() -> None:
    rows = [took(at * 200, 0x1000 * at, 10 * MIB) for at in range(1, 60)]
    rows += [freed(at * 200 + 50, 0x1000 * at) for at in range(1, 60, 3)]
    rows += [took(5, 0xF000_0000, 400 * MIB, B), took(11_900, 0, 90 * GIB, C, ret=2)]
    rows += [items.call(START + at * MS, 1000, "cudaLaunchKernel") for at in range(3, 11_900, 7)]
    whole = report_of(*rows, ticks=60)
    sums = report_of(*rows, ticks=60, detail=SumsOnly(START))
    assert whole.memory is not None
    (leak,) = whole.memory.leaks
    assert whole.memory.shortages
    without_steps = replace(whole.memory, leaks=(replace(leak, per_step=None),))  # they need the launches
    assert sums.memory == without_steps
    assert [one.count for one in whole.failures] == [1]
    assert [replace(one, launches=()) for one in sums.failures] == [
        replace(one, launches=()) for one in whole.failures
    ]


# -- out of memory ------------------------------------------------------------------------------


def short(
    *before: Item, asked: int, room: int | None = None, holders: dict[int, int] | None = None
) -> OutOfMemory:
    rows = [*before, took(500, 0, asked, C, ret=2)]
    if room is not None:
        rows.append(items.call(START + 501 * MS, 1000, "cudaMemGetInfo", aux=room))
    if holders is not None:
        rows.append(nvml(400, sum(holders.values()), holders))
    rows.append(items.call(START + 900 * MS, 1000, "cudaDeviceSynchronize"))
    (found,) = memory(*rows).shortages
    return found


@pytest.mark.parametrize(
    ("asked", "room", "holders", "blame"),
    [
        (90 * GIB, 70 * GIB, {10: 10 * GIB}, "request"),
        (8 * GIB, 6 * GIB, {10: 74 * GIB}, "own"),
        (8 * GIB, None, {10: 74 * GIB}, "own"),
        (8 * GIB, 6 * GIB, {10: 14 * GIB, 77: 60 * GIB}, "others"),
        (8 * GIB, 9 * GIB, {10: 71 * GIB}, "fragmentation"),
        (8 * GIB, None, None, "unknown"),
    ],
)
def test_what_an_allocation_failed_for_is_reported(
    asked: int, room: int | None, holders: dict[int, int] | None, blame: Blame
) -> None:
    found = short(took(1, 0x1000, 10 * GIB), took(2, 0x2000, GIB, B), asked=asked, room=room, holders=holders)
    assert found.blame == blame
    assert (found.requested, found.held, found.pieces) == (asked, 11 * GIB, 2)
    assert found.line is not None
    assert found.line.line == 30
    held = [(at.line.line, at.held) for at in found.lines if at.line]
    assert held == [
        (10, 10 * GIB),
        (20, GIB),
    ]


def test_others_are_named_with_what_they_hold() -> None:
    found = short(asked=8 * GIB, room=6 * GIB, holders={10: 14 * GIB, 77: 60 * GIB})
    assert found.others == (Holder(77, "notebook", 60 * GIB),)
    assert "others on the GPU: notebook (77) 60.0G" in "\n".join(shortage_lines(found))
    assert "train (10) requested 8.0G" in shortage_lines(found)[0]
    assert "process 10 requested 8.0G" in shortage_lines(replace(found, name=""))[0]


def test_memory_of_the_host_is_not_blamed_on_the_gpu() -> None:
    row = took(500, 0, GIB, C, op="cudaMallocHost", ret=2)
    (found,) = memory(row, items.call(START + 900 * MS, 10, "cudaDeviceSynchronize")).shortages
    assert found.blame == "host"


def test_attempts_right_after_each_other_are_one_with_what_was_given_back_between() -> None:
    rows = [
        took(1, 0x1000, 3 * GIB),
        took(500, 0, GIB, C, ret=2),
        freed(501, 0x1000),
        took(502, 0, GIB, B, ret=2),
        took(503, 0x9000, GIB, B),
    ]
    (found,) = memory(*rows).shortages
    assert (found.attempts, found.gave_back, found.met) == (2, 3 * GIB, True)


def test_the_tab_of_memory_is_there_for_a_process_that_took_some_and_shows_troubles_first() -> None:
    frame = fake.frame(processes=2)
    pid = frame.processes[0].pid
    rows = [took(1, 0x1000, 3 * GIB, pid=pid), took(500, 0, GIB, C, ret=2, pid=pid), freed(900, 0)]
    with Shown(frame, selected_pid=pid) as shown:
        assert "Memory" not in shown.text()
        shown.explain(Explained(report_of(*rows), frame.time_ns, START))
        shown.view.processes.select(pid)
        shown.show(replace(frame, number=frame.number + 1))
        lines = shown.text().splitlines()
        (y,) = [place for place, row in enumerate(lines) if "Flame  Memory  Errors" in row]
        shown.click(lines[y].index("Memory"), y)
        text = shown.text()
        assert "out of memory at 0.500 s" in text
        assert text.index("out of memory") < text.index("holds 3.0G of the GPU")
        assert "train.py:10 in step()" in text


def test_json_and_text_of_the_explanation_show_it() -> None:
    rows = [took(1, 0x1000, 3 * GIB), took(500, 0, GIB, C, ret=2), freed(900, 0)]
    report = report_of(*rows)
    told = document(report)
    assert_valid(told)
    assert told["memory"]["processes"][0]["held_bytes"] == 3 * GIB
    assert told["memory"]["out_of_memory"][0]["asked_bytes"] == GIB
    assert "it held 3.0G in 1 allocations" in report_to_text(report)
    quiet = report_to_text(
        replace(report, memory=MemoryReport(report.memory.processes if report.memory else ()))
    )
    assert "Memory:" not in quiet

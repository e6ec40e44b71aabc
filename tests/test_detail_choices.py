"""Which GPU a thread has chosen is known also where only sums of its calls were kept."""

from __future__ import annotations

import pytest

from gputop.analysis.build import examine
from gputop.analysis.evidence.assembly import assemble
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.evidence.gatherer import Gatherer
from gputop.engine.tally import Tally
from gputop.recording.adaptive import SumsOnly
from gputop.recording.tick_sums import Reducer
from probes import api
from probes.schema import Kind
from probes.source import SUMS, Item, Sample
from tests import items
from tests.held_rows import MIB, took
from tests.items import MS, START
from tests.programs import DEVICE_SYNC, LAUNCH, MAIN, US, Program

SET = "cudaSetDevice"


def chosen(at_ms: int, device: int, tid: int = 10, **more: int) -> Item:
    return items.call(START + at_ms * MS, 1000, SET, aux=device, tid=tid, **more)


def written(*rows: Item) -> list[tuple[int, int]]:
    """(ms, GPU) of the choices that a recording of sums holds; a mark behind every third row."""
    detail = SumsOnly(START)
    told: list[Item] = [items.apis()]
    for place, row in enumerate(rows):
        told.append(row)
        if place % 3 == 2:
            told.append(items.mark(place, int(row["t_end"][0])))  # type: ignore[call-overload]
    told.append(items.mark(len(rows), START + 1000 * MS))
    kept = [one for item in told for one in detail.consume(item)] + [*detail.finish()]
    sums, whole = Tally(), Tally()
    for item in kept:
        sums.consume(item)
    for item in told:
        whole.consume(item)
    assert (sums.events, sums.payload()["calls"]) == (whole.events, whole.payload()["calls"])
    batches = [item for item in kept if not isinstance(item, Sample)]
    return [
        (int(row["t_end"] - START) // MS, int(row["aux"]))
        for batch in batches
        for row in batch[(batch["kind"] == Kind.CALL) & (batch["op"] == api.OP_OF[SET])]
    ]


def test_only_choices_of_another_gpu_are_written() -> None:
    rows = [chosen(at, device) for at, device in enumerate([0, 0, 1, 1, 1, 0, 0, 1, 1], 1)]
    assert written(*rows) == [(1, 0), (3, 1), (6, 0), (8, 1)]


def test_each_thread_has_its_own_choice_and_one_that_failed_is_none() -> None:
    rows = (chosen(1, 1), chosen(2, 1, tid=11), chosen(3, 1, ret=101), chosen(4, 1), chosen(5, 1, tid=11))
    assert written(*rows) == [(1, 1), (2, 1), (3, 1)]  # what failed is written as every failure is


@pytest.mark.parametrize("kind", [Kind.FORK, Kind.EXEC, Kind.EXIT])
def test_a_new_thread_has_made_no_choice(kind: Kind) -> None:
    assert written(chosen(1, 1), items.event(kind, START + 2 * MS), chosen(3, 1)) == [(1, 1), (3, 1)]


def on_two_gpus() -> Program:
    """Rounds on the second GPU, which the thread chose at the beginning; nothing is lost."""
    made = Program()
    made.starts()
    made.call("cudaMalloc", 2, 4)
    made.call(SET, 10, 20, aux=1)
    for begin in range(1000, 90_000, 10_000):
        made.call(LAUNCH, begin, begin + 10)
        made.call(DEVICE_SYNC, begin + 20, begin + 3000)
    return made


def with_sums_between(low_us: int, high_us: int, *, choices: bool) -> Evidence:
    """The same, of which only sums were kept from one moment to another."""
    made = on_two_gpus()
    every, reducer, gatherer = made.batch(), Reducer(START), Gatherer(made.header)
    edges = [0, low_us, high_us, 200_000]
    for number in range(3):
        low, high = (START + edge * US for edge in edges[number : number + 2])
        part = every[(every["t_end"] > low) & (every["t_end"] <= high)]
        told = [items.apis(), *made.samples] if number == 0 else []
        tick = [*told, part, items.mark(number, min(high, int(every["t_end"].max()) + 1))]
        for item in reducer.reduced(tick) if number == 1 else reducer.whole(tick):
            if isinstance(item, Sample) and item.kind == SUMS and not choices:
                del item.data["choices"]  # as an older gputop wrote it
            gatherer.feed(item)
    return assemble(gatherer)


@pytest.mark.parametrize("choices", [True, False])
def test_behind_sums_a_wait_proves_as_before_where_choices_were_kept(choices: bool) -> None:
    _report, scene, _outcome = examine(with_sums_between(30_500, 50_500, choices=choices))
    gpu = scene.analysis.gpu
    second = gpu.devices.labels.index(f"device 1 of process {MAIN}")
    rows = zip(gpu.gaps.begin.tolist(), gpu.gaps.proved.tolist(), gpu.gaps.device.tolist(), strict=True)
    found = {(at - START) // US: sure for at, sure, device in rows if device == second}
    assert {sure for at, sure in found.items() if at < 30_000} == {True}
    assert {sure for at, sure in found.items() if at > 64_000} == {choices}


def test_a_reset_behind_sums_gives_back_what_lies_on_its_gpu() -> None:
    detail, gatherer = SumsOnly(START), Gatherer({**items.HEADER, "addresses": True})
    rows = (took(2, 0x1000, MIB), chosen(3, 1), took(4, 0x2000, 2 * MIB), chosen(5, 1))
    first = [items.apis(), items.event(Kind.EXEC, START + MS), *rows, items.mark(1, START + 10 * MS)]
    reset = items.call(START + 20 * MS, 1000, "cudaDeviceReset")
    for item in [*first, reset, items.mark(2, START + 30 * MS)]:
        for one in detail.consume(item):
            gatherer.feed(one)
    for one in detail.finish():
        gatherer.feed(one)
    assert (gatherer.held.total(10), gatherer.held.unsure) == (MIB, frozenset())

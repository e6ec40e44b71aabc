"""Shapes of launches: told once by number, known from any moment on, counted, unknown where lost."""

from __future__ import annotations

import numpy as np
import pytest

from gputop.engine.calls.launch_counts import KernelRow, shape_text
from gputop.engine.engine import Engine
from gputop.engine.gpus.nvml_rows import UNKNOWN, fill_of, smaller
from gputop.engine.session_totals import collect, finish
from gputop.engine.tally import Tally, tally
from gputop.merging.clocks import Clock
from gputop.merging.numbering import Apis, Numbering, PartOffset
from probes.proc.roster import Roster
from probes.samples import sample_data
from probes.schema import MAX_SHAPES, Kind, Records
from probes.shapes import Shape, Shapes, notice_shapes, shape_of
from probes.source import FRAMES, GPUS, PROBLEM, SHAPES, Item, Sample
from probes.stacks.stack_samples import kernel_number
from replay.state_snapshot import FactBook
from tests import items
from tests.items import HEADER, MS, SECOND, START

KERNEL, OTHER = 0x7000, 0x8000
SMALL, LARGE = Shape((10, 1, 1), (512, 1, 1), 0), Shape((4096, 2, 1), (16, 16, 2), 49152)
NUMBERS = {1: SMALL, 2: LARGE}
FILL = 132 * 2048


def shape_record(number: int, shape: Shape, at_ms: int = 0) -> Records:
    sizes = (*shape.grid, *shape.block)
    return items.event(Kind.SHAPE, START + at_ms * MS, shape=number, sizes=sizes, shared=shape.shared_bytes)


def launch(at_ms: int, kernel: int, shape: int, **more: int) -> Records:
    return items.call(START + at_ms * MS, 1000, aux=kernel, run_delay=shape, **more)


def told_shapes() -> list[Sample]:
    return list(notice_shapes(items.joined([shape_record(*one) for one in NUMBERS.items()])))


def gpus(*rows: dict[str, object]) -> Sample:
    return Sample(GPUS, START, {"gpus": [{"index": place, **row} for place, row in enumerate(rows)]})


H100 = {"multiprocessors": 132, "multiprocessor_threads": 2048}
T4 = {"multiprocessors": 40, "multiprocessor_threads": 1024}


def stream() -> list[Item]:
    """Three small launches and a large one of one kernel; of the other one nothing is known of one shape."""
    frames = {"pid": [10], "stack": [kernel_number(10, KERNEL)], "frames": [[["/app", 0, "add(int)"]]]}
    made = [launch(at, KERNEL, shape) for at, shape in enumerate((1, 1, 2, 1))]
    made += [launch(5, OTHER, 2), launch(6, OTHER, 0), launch(7, OTHER, 99), launch(8, OTHER, 2, ret=1)]
    ended = items.mark(1, START + SECOND)
    return [
        items.apis(),
        items.process(10),
        Sample(FRAMES, START, frames),
        gpus(H100),
        *told_shapes(),
        *made,
        ended,
    ]


EXPECTED = (
    KernelRow("add(int)", "/app", KERNEL, 4, ((SMALL, 3), (LARGE, 1)), 3),
    KernelRow("", "", OTHER, 3, ((LARGE, 1),), 0),
)


def test_launches_are_counted_by_shape_and_an_unreported_one_is_unknown() -> None:
    (process,) = collect(HEADER, stream()).processes
    assert process.kernels == EXPECTED
    assert [row.launches - row.shaped for row in process.kernels] == [0, 2]


def test_the_screen_counts_what_the_totals_count() -> None:
    engine = Engine(HEADER)
    for item in stream():
        engine.feed(item)
    (row,) = engine.frame().processes
    assert row.kernels == EXPECTED


def test_sums_of_two_parts_are_those_of_the_whole_wherever_they_are_cut() -> None:
    for cut in range(5, 13):
        whole = stream()
        first, second = tally([*whole[:cut], whole[-1]]), tally(whole[cut:])
        first.merge(second.payload())
        for sample in (one for one in whole[cut:] if isinstance(one, Sample)):
            first.facts.consume(sample)
        assert finish(HEADER, first).processes[0].kernels == EXPECTED


def test_sums_that_an_older_gputop_wrote_show_no_shapes() -> None:
    older = tally(stream()).payload()
    del older["shapes"], older["fill"]
    known = Tally()
    for sample in (one for one in stream() if isinstance(one, Sample) and one.kind != GPUS):
        known.consume(sample)
    known.merge(older)
    (process,) = finish(HEADER, known).processes
    assert [(row.launches, row.shapes, row.small) for row in process.kernels] == [
        (4, (), None),
        (3, (), None),
    ]


def test_who_begins_in_the_middle_is_told_all_shapes() -> None:
    book, later = FactBook(), FactBook()
    first, second = (next(notice_shapes(shape_record(*one))) for one in NUMBERS.items())
    book.consume(first)
    later.consume(second)
    book.absorb(later)
    known = Shapes()
    for sample in book.samples(START):
        if (data := sample_data(sample, SHAPES)) is not None:
            known.consume(data)
    assert {number: known.get(number) for number in (1, 2, 3)} == {**NUMBERS, 3: None}


def test_parts_of_a_merged_recording_keep_their_shapes_apart() -> None:
    known, numbers = Shapes(), []
    for part, shape in enumerate((SMALL, LARGE)):
        numbering = Numbering(PartOffset(part, 2, 0, Clock(0, 0, "same", "")), Apis())
        (sample,) = notice_shapes(shape_record(7, shape))
        told_sample = numbering.item(sample)
        assert isinstance(told_sample, Sample)
        known.consume(told_sample.data)
        counted = items.call(START, 1, "cudaMalloc", run_delay=7, flags=4)
        rows = numbering.records(items.joined([launch(1, KERNEL, 7), launch(2, KERNEL, 0), counted]))
        numbers.append(int(rows["run_delay"][0]))
        assert rows["run_delay"][1:].tolist() == [0, 7]  # none, and time in a run queue
    assert [known.get(number) for number in numbers] == [SMALL, LARGE]


def test_the_last_number_is_reported_in_a_sentence() -> None:
    assert [one.kind for one in notice_shapes(shape_record(MAX_SHAPES - 2, SMALL))] == [SHAPES]
    samples = list(notice_shapes(shape_record(MAX_SHAPES, SMALL)))
    assert [one.kind for one in samples] == [SHAPES, PROBLEM]
    assert "those of later ones are not known" in samples[1].data["text"]


def test_a_record_of_a_shape_names_no_thread() -> None:
    roster = Roster()
    shape, joined = shape_record(1, SMALL), items.event(Kind.COMMUNICATOR, START, bytes=0x41414141)
    assert list(roster.notice(items.joined([shape, joined]))) == []
    assert list(roster.facts(np.zeros(0, [("pid", "u4"), ("tid", "u4"), ("depth", "u4")]), START)) == []


@pytest.mark.parametrize("sizes", [None, [1] * 6, [1] * 8, [1, 1, 1, 1, 1, 1, -1], [1, 1, 1, 1, 1, 1, "1"]])
def test_what_is_no_shape_in_a_damaged_file_is_left_out(sizes: object) -> None:
    assert shape_of(sizes) is None


def test_the_smallest_gpu_decides_what_fills_one() -> None:
    assert fill_of(gpus(H100)) == FILL
    assert fill_of(gpus(H100, T4)) == 40 * 1024
    assert fill_of(gpus(H100, {})) == UNKNOWN
    assert fill_of(gpus({**H100, "mig_enabled": True})) == UNKNOWN
    assert fill_of(gpus()) is None
    assert fill_of(gpus(H100, {"lost": "fallen off the bus"})) == FILL
    assert (smaller(None, 5), smaller(5, None), smaller(5, UNKNOWN), smaller(None, None)) == (
        5,
        5,
        UNKNOWN,
        None,
    )


def test_where_a_gpu_does_not_report_its_size_no_launch_is_called_small() -> None:
    changed = [gpus({}) if isinstance(one, Sample) and one.kind == GPUS else one for one in stream()]
    (process,) = collect(HEADER, changed).processes
    assert {row.small for row in process.kernels} == {None}


def test_a_shape_is_written_as_cuda_writes_a_launch() -> None:
    assert shape_text(SMALL) == "<<<10, 512>>>"
    assert shape_text(LARGE) == "<<<(4096,2), (16,16,2), 49152>>>"
    assert (LARGE.blocks, LARGE.threads) == (8192, 8192 * 512)

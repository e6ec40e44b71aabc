"""Where the time between launches is lost, by function; what spins, and whose threads take a CPU."""

from __future__ import annotations

from itertools import cycle

import pytest

from gputop.analysis.answer.report import Finding
from gputop.analysis.build import examine
from gputop.analysis.causes import CATALOGUE
from gputop.analysis.causes.drains import launch_place
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.findings.findings import owners
from gputop.analysis.findings.gap_findings import short_gaps
from probes.schema import Kind
from probes.source import FRAMES, PLACES, Sample
from tests import items
from tests.items import START
from tests.programs import FUTEX, LAUNCH, MAIN, NANOSLEEP, SYNC, US, Program, started
from tests.simulated import SECOND, Deed, Machine

MODULE = ["/x/site-packages/torch/nn/modules/module.py", 9, "Module._call_impl"]
STEP = [*(one for number in range(40) for one in (Deed("host", 30), Deed("launch", 8, number))), Deed("sync")]
Frame = list[object]


def launching(stacks: list[list[Frame]]) -> Finding:
    """The first finding of a loop that launches too slowly, whose samples meet these stacks in turn."""
    machine = Machine()
    while machine.length < 2 * SECOND:
        machine.run(STEP)
    machine.utilization(SECOND // 6)
    program = machine.finished()
    numbers = list(range(1, len(stacks) + 1))
    times = list(range(START + 100_000 * US, START + 2_900_000 * US, 20_011 * US))
    met = [number for number, _time in zip(cycle(numbers), times, strict=False)]
    program.samples += [
        Sample(FRAMES, START, {"pid": [MAIN] * len(stacks), "stack": numbers, "frames": stacks}),
        Sample(PLACES, START, {"time": times, "tid": [MAIN] * len(times), "stack": met}),
    ]
    return program.report().findings[0]


def at(line: int, function: str) -> Frame:
    return ["/app/train.py", line, function]


@pytest.mark.slow
def test_a_loop_over_tensors_is_summed_by_function_and_a_line_that_calls_out_stands_alone() -> None:
    """Two lines of ``train_step`` are met twice each, three of ``update_ema`` once each."""
    calls = [[MODULE, at(line, "train_step")] for line in (47, 48)] * 2
    loop = [[at(line, "update_ema"), at(51, "train_step")] for line in (38, 39, 40)]
    found = launching([*calls, *loop])
    assert found.cause == "C06"
    assert found.line is not None
    assert found.line.function == "update_ema"
    assert any("% of it is lost between launches at train.py:" in text for text in found.evidence)


@pytest.mark.slow
def test_a_line_that_calls_out_most_is_the_line() -> None:
    found = launching([[MODULE, at(47, "train_step")]] * 4 + [[at(39, "update_ema"), at(51, "train_step")]])
    assert found.line is not None
    assert (found.line.function, found.line.line) == ("train_step", 47)


@pytest.mark.slow
def test_of_parts_that_samples_cannot_distinguish_the_function_that_launches_by_itself_is_named() -> None:
    one, other = [MODULE, at(47, "train_step")], [at(39, "update_ema"), at(51, "train_step")]
    found = launching([one, *[other, one] * 8])
    assert found.line is not None
    assert found.line.function == "update_ema"


@pytest.mark.slow
def test_how_long_a_function_takes_is_known_by_its_part_of_the_step() -> None:
    """Half of a step's calls are ``update_ema``'s, and three of four samples meet the other half."""
    machine = Machine()
    step = [*(one for number in range(40) for one in (Deed("host", 30), Deed("launch", 8, number)))]
    begins = []
    while machine.length < 2 * SECOND:
        begins.append(machine.now)
        machine.run([*step, Deed("sync")])
    machine.utilization(SECOND // 6)
    program = machine.finished()
    frames = [[MODULE, at(47, "train_step")], [at(39, "update_ema"), at(51, "train_step")]]
    whole = begins[1] - begins[0]
    times, stacks = [], []
    for number, begin in enumerate(begins[20:-20:8]):
        late = number % 4 == 0
        times.append(START + (begin + whole * (11 + 3 * (number % 8) + 25 * late) // 60) * US)
        stacks.append(1 + late)
    program.samples += [
        Sample(FRAMES, START, {"pid": [MAIN] * 2, "stack": [1, 2], "frames": frames}),
        Sample(PLACES, START, {"time": times, "tid": [MAIN] * len(times), "stack": stacks}),
    ]
    _report, _scene, outcome = examine(program.evidence())
    claim = next(claim for cause, claim in outcome.claims if cause.number == "C06")
    place = launch_place(claim)
    assert place is not None
    assert place.host_ns / 3e9 == pytest.approx(0.5, abs=0.15)


@pytest.mark.slow
def test_launches_too_short_to_follow_within_a_loop_of_reads_are_the_reads() -> None:
    """``grad.ne(grad).any()`` for each of forty gradients: two kernels, and the answer is read."""
    check = [
        Deed("launch", 4, 51),
        Deed("host", 5),
        Deed("launch", 4, 52),
        Deed("host", 6),
        Deed("read", size=1),
    ]
    machine = Machine()
    while machine.length < 2 * SECOND:
        machine.run([*(Deed("launch", 400, number) for number in range(5)), *check * 40])
    machine.utilization(SECOND // 6)
    found = AttributionContext(machine.finished().analysis())
    owner = owners(found)
    told = {CATALOGUE[row].number: ns for (row, _pid), ns in short_gaps(found, owner).items()}
    assert sum(told.values()) > 0
    assert told.get("C06", 0) < 0.1 * sum(told.values())


# -- spinning on shared memory ------------------------------------------------------------------------

ROUND, PEER, SPIN = 16_000, 300, 7


def spinning(*, by_wakeup: bool = False, rests: int = 0) -> Program:
    """The submitter runs one function for 14 ms a step; another process works as long, and then sleeps.

    Args:
        by_wakeup: It also wakes that process each time: they talk through the kernel.
        rests: How often the other process sleeps meanwhile.
    """
    program = started()
    program.starts(PEER)
    program.samples.append(items.names(START, {MAIN: "engine", PEER: "scheduler"}))
    times = []
    for begin in range(0, 40 * ROUND, ROUND):
        program.call(LAUNCH, begin, begin + 10)
        program.call(SYNC, begin + 20, begin + 1500)
        waker = {"waker_pid": MAIN, "waker_tid": MAIN} if by_wakeup else {}
        if begin:
            program.off(
                begin - 200, begin + 1400, op=FUTEX if by_wakeup else NANOSLEEP, pid=PEER, tid=PEER, **waker
            )
        for number in range(rests):
            nap = begin + 2500 + number * 1000
            program.off(nap, nap + 300, op=NANOSLEEP, pid=PEER, tid=PEER)
        times += [START + (begin + more) * US for more in (4000, 9000, 14_000)]
    program.call(LAUNCH, 40 * ROUND, 40 * ROUND + 10)
    frames = [[["/app/engine.py", 12, "dequeue"]]]
    program.samples += [
        Sample(FRAMES, START, {"pid": [MAIN], "stack": [SPIN], "frames": frames}),
        Sample(PLACES, START, {"time": times, "tid": [MAIN] * len(times), "stack": [SPIN] * len(times)}),
    ]
    return program


def test_who_spins_until_another_process_is_done_polls_for_it() -> None:
    found, *_ = spinning().report().findings
    assert found.cause == "C29"
    assert found.title.startswith("polls for process scheduler")
    assert found.name_level != "proved"


@pytest.mark.parametrize("other", [{"by_wakeup": True}, {"rests": 9}], ids=["wakes it", "rests meanwhile"])
def test_who_computes_beside_another_process_does_not_poll(other: dict[str, int]) -> None:
    found, *_ = spinning(**other).report().findings  # type: ignore[arg-type]
    assert found.cause == "C28"


# -- threads of its own -------------------------------------------------------------------------------

CROWD = 601


def test_threads_of_its_own_that_take_its_cpu_are_named_with_their_line() -> None:
    program = started()
    program.thread(CROWD)
    program.samples.append(items.names(START, {MAIN: "main", CROWD: "hasher"}))
    times = []
    for begin in range(0, 40 * ROUND, ROUND):
        program.call(LAUNCH, begin, begin + 10)
        program.call(SYNC, begin + 20, begin + 1500)
        program.preempted(begin + 1600, begin + 15_000, cpu=0)
        running = {"pid": MAIN, "tid": CROWD, "duration": 13_400 * US, "cpu": 0}
        program.records.append(items.event(Kind.OCCUPANT, START + (begin + 15_000) * US, **running))
        times += [START + (begin + more) * US for more in (4000, 9000, 14_000)]
    program.call(LAUNCH, 40 * ROUND, 40 * ROUND + 10)
    frames = [[["/app/hash.py", 33, "crowd_hash"]]]
    program.samples += [
        Sample(FRAMES, START, {"pid": [MAIN], "stack": [SPIN], "frames": frames}),
        Sample(PLACES, START, {"time": times, "tid": [CROWD] * len(times), "stack": [SPIN] * len(times)}),
    ]
    found, *_ = program.report().findings
    assert found.cause == "C13"
    assert "of its own process" in found.title
    assert found.line is not None
    assert (found.line.function, found.line.line) == ("crowd_hash", 33)


def test_a_thread_that_is_met_in_a_library_computes_where_it_is_met_at_other_times() -> None:
    """Its stack cannot be followed out of libc; the line at which the submitter waits is not where it is."""
    program = started()
    program.thread(CROWD)
    program.samples.append(items.names(START, {MAIN: "main", CROWD: "parser"}))
    inside, outside = [], []
    for begin in range(0, 40 * ROUND, ROUND):
        program.call(LAUNCH, begin, begin + 10)
        program.call(SYNC, begin + 20, begin + 1500)
        program.off(begin + 1600, begin + 15_900, op=FUTEX, waker_pid=MAIN, waker_tid=CROWD)
        inside += [START + (begin + more) * US for more in (4000, 9000, 14_000)]
        outside.append(START + (begin + 700) * US)
    program.call(LAUNCH, 40 * ROUND, 40 * ROUND + 10)
    frames = [
        [["/usr/lib/x86_64-linux-gnu/libc.so.6", 0, "vfprintf"], ["", 0, "…"]],
        [["/app/parse.py", 33, "parse_numbers"]],
    ]
    times, stacks = [*inside, *outside], [SPIN] * len(inside) + [SPIN + 1] * len(outside)
    program.samples += [
        Sample(FRAMES, START, {"pid": [MAIN] * 2, "stack": [SPIN, SPIN + 1], "frames": frames}),
        Sample(PLACES, START, {"time": times, "tid": [CROWD] * len(times), "stack": stacks}),
    ]
    found, *_ = program.report().findings
    assert found.cause == "C29"
    assert found.line is not None
    assert (found.line.function, found.line.line) == ("parse_numbers", 33)

"""Causes that are reported by the code in which the thread was, and by the processes that it started."""

from __future__ import annotations

import pytest

from gputop.analysis.causes import CATALOGUE
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.chains.roles import births_in_gaps, most_at_a_time
from probes.source import FRAMES, Sample
from tests import cause_stories as made
from tests import items
from tests.cause_stories import STEP_US, STEPS, WORKER
from tests.programs import FUTEX, LAUNCH, MAIN, NANOSLEEP, RECVFROM, SYNC, Program, started

TAKES = 1 << 62 | 2  # a stack
WORK_US = 10_000


def causes(program: Program) -> list[str]:
    return [one.cause for one in program.report().findings if one.kind == "idle"]


def test_workers_that_are_started_each_epoch_are_one_cause_and_counted_at_a_time() -> None:
    program = made.loader_each_epoch()
    (found,) = (one for one in program.report().findings if one.kind == "idle")
    assert (found.cause, found.title) == ("C33", "DataLoader workers are started anew every epoch")
    assert "persistent_workers=True" in found.advice[0]
    scene = AttributionContext(program.analysis())
    births = births_in_gaps(scene)
    assert births.count.sum() == 2 * STEPS
    assert most_at_a_time(scene, births.pids) == 2
    assert any("2 at a time" in text for text in found.evidence)


def test_a_process_in_each_step_has_no_word_of_a_loader() -> None:
    (found,) = (one for one in made.started_each_step().report().findings if one.kind == "idle")
    assert (found.cause, found.title) == ("C37", "a process is started every step and waited for")
    assert "DataLoader" not in " ".join(found.advice)


def unawaited(awaited_us: int) -> Program:
    """For each step a process is started; after so long it wakes the thread, which works for 8 ms in all."""
    program = started()
    for begin in range(0, STEPS * STEP_US, STEP_US):
        program.call(LAUNCH, begin, begin + 10)
        program.call(SYNC, begin + 20, begin + 4000)
        child = 1000 + begin // STEP_US
        program.starts(child, begin + 4100, maker=MAIN)
        if awaited_us:
            program.off(begin + 4200, begin + 4100 + awaited_us, op=0, waker_pid=child, waker_tid=child)
        program.ends(begin + STEP_US - 100, child)
    program.call(LAUNCH, STEPS * STEP_US, STEPS * STEP_US + 10)
    return program


@pytest.mark.parametrize(("awaited_us", "told"), [(0, False), (6000, True)])
def test_a_process_that_is_not_waited_for_takes_nothing(awaited_us: int, *, told: bool) -> None:
    assert ("C37" in causes(unawaited(awaited_us))) == told


def test_the_end_of_the_processes_before_belongs_to_the_start_of_new_ones() -> None:
    """A thread first waits for those of the step before, which end meanwhile, and then starts the next."""
    program = started()
    for begin in range(0, STEPS * STEP_US, STEP_US):
        program.call(LAUNCH, begin, begin + 10)
        program.call(SYNC, begin + 20, begin + 1000)
        child = 1000 + begin // STEP_US
        if begin:
            program.off(begin + 1100, begin + 5000, op=0, waker_pid=child - 1, waker_tid=child - 1)
            program.ends(begin + 2000, child - 1)
        program.starts(child, begin + 5100, maker=MAIN)
        program.off(begin + 5200, begin + 11_900, op=0, waker_pid=child, waker_tid=child)
    program.call(LAUNCH, STEPS * STEP_US, STEPS * STEP_US + 10)
    report = program.report()
    (found,) = (one for one in report.findings if one.kind == "idle")
    assert found.cause == "C37"
    assert found.loss.lower > 0.98 * (STEPS - 1) * (STEP_US - 1000) * 1000
    assert report.unexplained_ns < 0.01 * found.loss.lower


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("/x/torch/_dynamo/convert_frame.py", "torch.compile"),
        ("/x/triton/compiler/compiler.py", "Triton"),
        ("/x/numba/core/compiler.py", "Numba"),
        ("/x/cupy/cuda/compiler.py", "CuPy"),
    ],
)
def test_a_compiler_in_the_loop_is_named(file: str, name: str) -> None:
    program = made.within(made.loop(made.nothing), file)
    made.sampled(program, made.BUSY_US + 500, STEP_US)
    (found,) = (one for one in program.report().findings if one.kind == "idle")
    assert (found.cause, found.title) == ("C34", f"compiles every step ({name})")


def test_code_that_was_met_in_less_than_half_of_a_gap_is_not_what_it_went_into() -> None:
    program = made.within(made.loop(made.nothing), "/x/numba/core/compiler.py")
    made.sampled(program, made.BUSY_US + 500, made.BUSY_US + 2000)
    made.sampled(program, made.BUSY_US + 2500, STEP_US, stack=made.CODE + 1)
    assert causes(program)
    assert "C34" not in causes(program)


def test_host_arrays_are_one_cause_at_the_line_of_the_launch() -> None:
    first, *_ = made.host_arrays().report().findings
    assert (first.cause, first.line.line if first.line else 0) == ("C35", 12)
    assert first.gain.ns >= STEPS * 900_000, "the copies go, too"


def test_anomaly_mode_is_reported_only_where_the_stacks_are_kept() -> None:
    program = made.anomalies()
    assert causes(program)[0] == "C36"
    program.samples = [sample for sample in program.samples if sample.kind != "places"]
    assert "C36" not in causes(program)


def test_keeping_stacks_in_the_forward_pass_is_anomaly_modes_too() -> None:
    """The GPU is idle for 1.6 ms a step while the stack of an operation is kept, behind no read."""
    program = made.anomalies()
    for begin in range(0, STEPS * STEP_US, STEP_US):
        program.call(LAUNCH, begin + 9_620, begin + 9_630)
        program.call(SYNC, begin + 9_640, begin + 10_100)
        program.call(LAUNCH, begin + 11_700, begin + 11_710)
    (found,) = (one for one in program.report().findings if one.kind == "idle")
    assert found.cause == "C36"
    assert found.loss.lower == pytest.approx(STEPS * (9 * 400_000 + 1_600_000), rel=0.02)


def test_what_follows_the_last_check_of_a_backward_pass_is_anomaly_modes_too() -> None:
    """The thread that called backward() launches 1.4 ms after autograd's thread has read the last flag."""
    program = made.anomalies()
    for begin in range(0, STEPS * STEP_US, STEP_US):
        program.call(LAUNCH, begin + 11_000, begin + 11_010)
        program.call(SYNC, begin + 11_020, begin + 11_900)
    found = {one.cause: one for one in program.report().findings if one.kind == "idle"}
    assert found["C36"].loss.lower == pytest.approx(STEPS * (9 * 400_000 + 1_400_000), rel=0.02)
    assert "C01" not in found
    assert "C07" not in found


def test_memory_that_empty_cache_gives_back_is_named_so() -> None:
    program = started()
    for begin in range(0, STEPS * STEP_US, STEP_US):
        program.call(LAUNCH, begin, begin + 10)
        program.call(SYNC, begin + 20, begin + 4000)
        program.call("cudaFree", begin + 4100, begin + 7000, stack=made.CODE)
        program.call("cudaMalloc", begin + 7100, begin + 9000, bytes=8 << 20)
    program.call(LAUNCH, STEPS * STEP_US, STEPS * STEP_US + 10)
    (found,) = (one for one in program.report().findings if one.cause == "C20")
    assert "empty_cache" not in found.title + found.advice[0]
    frames = [["/x/site-packages/torch/cuda/memory.py", 280, "empty_cache"], ["/app/main.py", 12, "main"]]
    program.samples.append(Sample(FRAMES, 0, {"pid": [MAIN], "stack": [made.CODE], "frames": [frames]}))
    (found,) = (one for one in program.report().findings if one.cause == "C20")
    assert found.title == "`torch.cuda.empty_cache()` in the loop"
    assert "remove it from the loop" in found.advice[0]
    assert found.line is not None
    assert found.line.line == 12

    takes = [["/x/site-packages/torch/nn/modules/linear.py", 125, "forward"], ["/app/main.py", 11, "main"]]
    stacks = {"pid": [MAIN] * 2, "stack": [made.CODE, TAKES], "frames": [frames, takes]}
    longer = started()
    for begin in range(0, STEPS * STEP_US, STEP_US):
        longer.call(LAUNCH, begin, begin + 10)
        longer.call(SYNC, begin + 20, begin + 3000)
        longer.call("cudaFree", begin + 3100, begin + 4000, stack=made.CODE)
        longer.call("cudaMalloc", begin + 4100, begin + 9000, bytes=8 << 20, stack=TAKES)
    longer.call(LAUNCH, STEPS * STEP_US, STEPS * STEP_US + 10)
    longer.samples.append(Sample(FRAMES, 0, stacks))
    (found,) = (one for one in longer.report().findings if one.cause == "C20")
    assert found.line is not None
    assert found.line.line == 12  # where it is emptied, not where that costs most


@pytest.mark.parametrize(("answer_us", "told"), [(100, False), (700, True), (2500, True)])
def test_an_answer_that_costs_little_more_than_two_wakeups_is_no_fault(answer_us: int, told: bool) -> None:
    """A step of 10 ms of work with one exchange of so long: 1, 7 and 20 % of the time."""
    program = started()
    whole = WORK_US + answer_us
    for begin in range(0, STEPS * whole, whole):
        program.call(LAUNCH, begin, begin + 10)
        program.call(SYNC, begin + 20, begin + WORK_US)
        program.off(begin + WORK_US, begin + whole - 10, op=RECVFROM, waker_pid=WORKER, waker_tid=WORKER)
    program.call(LAUNCH, STEPS * whole, STEPS * whole + 10)
    program.starts(WORKER, maker=MAIN)
    program.samples.append(items.names(0, {WORKER: "tokenizer"}, pid=WORKER))
    assert ("C29" in causes(program)) == told


def test_a_wait_that_only_its_time_out_ends_is_a_sleep() -> None:
    """``Event.wait(0.007)`` of an event that nobody sets."""
    program = made.loop(made.stays(FUTEX, flags=made.IRQ))
    first, *_ = program.report().findings
    assert first.cause == "C32"
    assert first.loss.lower == pytest.approx(STEPS * 7_000_000, rel=0.05)


@pytest.mark.parametrize(("counts", "cause"), [((3,), "C32"), ((3, 4, 5), "")])
def test_sleeps_of_one_number_are_no_polling(counts: tuple[int, ...], cause: str) -> None:
    """``for _ in range(3): time.sleep(0.002)``, or until something has come."""
    program = started()
    for number, begin in enumerate(range(0, STEPS * STEP_US, STEP_US)):
        program.call(LAUNCH, begin, begin + 10)
        program.call(SYNC, begin + 20, begin + 1000)
        for sleep in range(counts[number % len(counts)]):
            at = begin + 1050 + 2050 * sleep
            program.off(at, at + 2000, op=NANOSLEEP, flags=made.IRQ)
    program.call(LAUNCH, STEPS * STEP_US, STEPS * STEP_US + 10)
    assert ("C32" in causes(program)) == bool(cause)


def test_what_fills_a_gap_decides_before_what_opened_it() -> None:
    order = [cause.number for cause in CATALOGUE]
    assert max(map(order.index, ("C33", "C34", "C37"))) < min(map(order.index, ("C08", "C26", "C12")))

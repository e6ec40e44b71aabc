"""Where the host was met while the GPU had nothing to do: samples at threads become a line of its chain."""

from __future__ import annotations

import pytest

from gputop.analysis.answer.report import Finding
from gputop.analysis.evidence.evidence import places_of
from gputop.engine.calls.stack_table import Line
from probes.source import FRAMES, PLACES, Sample
from tests import items
from tests.items import START
from tests.programs import COPY_ASYNC, FSYNC, FUTEX, H2D, LAUNCH, MAIN, PREAD, SYNC, US, Program, started

STEP = 20_000  # us: 10 of launches and waiting, 10 of the host's own work
DECODE, AUGMENT, UNTOLD, NEXT, LOG, WITHIN, SYNCED = (1 << 62 | number for number in range(1, 8))
WORKER = 20


def loop(samples: list[tuple[int, int]], tid: int = MAIN, steps: int = 10) -> Program:
    """Steps whose input is prepared by the thread itself; ``samples`` are (us within each step, stack)."""
    program = started()
    for begin in range(0, steps * STEP, STEP):
        program.call(COPY_ASYNC, begin, begin + 500, kind=H2D, bytes=1 << 20)
        program.call(LAUNCH, begin + 510, begin + 520)
        program.call(SYNC, begin + 530, begin + 10_000)
    program.call(COPY_ASYNC, steps * STEP, steps * STEP + 500, kind=H2D, bytes=1 << 20)
    times = [START + (begin + at) * US for begin in range(0, steps * STEP, STEP) for at, _ in samples]
    stacks = [stack for _ in range(steps) for _, stack in samples]
    frames = [[["/app/data.py", 7, "decode"]], [["/app/data.py", 9, "augment"]]]
    told = {"pid": [MAIN, MAIN], "stack": [DECODE, AUGMENT], "frames": frames}
    program.samples.append(Sample(FRAMES, START, told))
    places = {"time": times, "tid": [tid] * len(times), "stack": stacks}
    program.samples.append(Sample(PLACES, START, places))
    return program


def finding(program: Program) -> Finding:
    (found,) = (one for one in program.report().findings if one.kind == "idle")
    return found


def test_the_line_that_was_met_most_often_is_named_and_is_the_findings() -> None:
    found = finding(loop([(11_000, DECODE), (13_000, DECODE), (15_000, AUGMENT)]))
    assert found.chain[-1].text.endswith(
        "was running, most often at data.py:7 in decode() (20 of 30 samples)"
    )
    assert found.line is not None
    assert (found.line.file, found.line.line, found.line.function) == ("/app/data.py", 7, "decode")


def test_looks_while_the_gpu_had_work_do_not_count() -> None:
    found = finding(loop([(5_000, DECODE), (6_000, DECODE), (15_000, AUGMENT)]))
    assert "data.py:9 in augment() (10 of 10 samples)" in found.chain[-1].text


@pytest.mark.parametrize(
    ("samples", "tid"), [([], MAIN), ([(15_000, UNTOLD)], MAIN), ([(15_000, DECODE)], MAIN + 77)]
)
def test_without_a_known_sample_of_this_thread_none_is_named(
    samples: list[tuple[int, int]], tid: int
) -> None:
    found = finding(loop(samples, tid))
    assert found.chain[-1].text.endswith("was running")
    assert found.line is None


def test_one_look_is_not_enough() -> None:
    program = loop([(15_000, DECODE)])
    for name in ("time", "tid", "stack"):
        del program.samples[-1].data[name][1:]
    assert "most often" not in finding(program).chain[-1].text


FRAMES_OF = {
    NEXT: [["/lib/python3.11/selectors.py", 415, "select"], ["/app/train.py", 5, "main"]],
    LOG: [["/app/train.py", 6, "main"]],
    DECODE: [["/app/data.py", 7, "decode"]],
    WITHIN: [["/lib/python3.11/threading.py", 327, "wait"]],
    SYNCED: [["/app/train.py", 9, "step"]],
}


def blocked(*waits: tuple[int, int, int, int], worker: int = 0, by: int = WORKER, steps: int = 10) -> Program:
    """Steps whose thread is blocked, by ``waits``: (us within each step, us until, system call, stack).

    A worker, if there is one, sleeps for the disk meanwhile, and wakes it at the end of each wait.
    """
    program = started()
    if by == WORKER:
        program.starts(WORKER, maker=MAIN)
        program.samples.append(items.names(START, {WORKER: "pt_data_worker"}, pid=WORKER))
    for begin in range(0, (steps + 1) * STEP, STEP):
        program.call(COPY_ASYNC, begin, begin + 500, kind=H2D, bytes=1 << 20)
        program.call(LAUNCH, begin + 510, begin + 520)
        program.call(SYNC, begin + 530, begin + 10_000, stack=SYNCED)
        for low, high, op, stack in waits:
            woken = {"waker_pid": by, "waker_tid": by} if by else {}
            program.off(begin + low, begin + high, op=op, stack=stack, **woken)
        if by == WORKER:
            program.off(begin + 10_020, begin + 19_950, pid=WORKER, op=PREAD, stack=worker)
    told = {"pid": [MAIN] * len(FRAMES_OF), "stack": list(FRAMES_OF), "frames": list(FRAMES_OF.values())}
    program.samples.append(Sample(FRAMES, START, told))
    return program


def place(line: Line | None) -> tuple[str, int] | None:
    return (line.file.rpartition("/")[2], line.line) if line is not None else None


def test_a_wait_for_a_loader_is_at_the_line_of_its_worker_and_the_chain_has_that_of_the_loop() -> None:
    found = finding(blocked((10_010, 19_960, FUTEX, NEXT), worker=DECODE))
    assert found.cause == "C10"
    assert place(found.line) == ("data.py", 7)
    assert [link.role for link in found.chain] == ["", "submitter", "submitter", "loader"]
    waiter, segment = found.chain[-2:]
    assert waiter.text.endswith("waited for a lock at train.py:5 in main()")
    assert segment.text.endswith("waited for the disk at data.py:7 in decode()")
    assert (place(waiter.line), place(segment.line)) == (("train.py", 5), ("data.py", 7))


def test_time_decides_not_how_often_a_line_waits() -> None:
    short = [(10_000 + 100 * at, 10_090 + 100 * at, FSYNC, LOG) for at in range(1, 9)]
    found = blocked(*short, (11_000, 19_960, FSYNC, NEXT), by=0).report().findings[0]
    assert found.loss.lower == 10 * (8 * 90 + 8960) * US
    assert place(found.line) == ("train.py", 5)


def test_a_wait_of_its_own_names_its_line() -> None:
    found = finding(blocked((10_010, 19_960, FSYNC, LOG), by=0))
    assert found.cause == "C18"
    assert found.chain[-1].text.endswith("waited for the disk at train.py:6 in main()")
    assert (place(found.line), place(found.chain[-1].line)) == (("train.py", 6), ("train.py", 6))


@pytest.mark.parametrize("stack", [0, 1, UNTOLD, WITHIN])
def test_without_a_line_of_the_program_the_call_before_is_the_place(stack: int) -> None:
    """Not asked, not known, not reported, or a thread that is in libraries only."""
    found = finding(blocked((10_010, 19_960, FUTEX, stack), worker=stack))
    assert place(found.line) == ("train.py", 9)
    assert all(" at " not in link.text for link in found.chain[2:])


def test_a_damaged_sample_is_taken_as_far_as_it_goes() -> None:
    assert len(places_of({"time": [1, 2], "tid": [5], "stack": [DECODE, DECODE]})) == 1
    assert len(places_of({})) == 0

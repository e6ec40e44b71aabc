"""Autograd's threads have no Python: their calls are at the line that waits in ``backward()``."""

from __future__ import annotations

import pytest

from gputop.analysis.evidence.evidence import Evidence
from probes.source import FRAMES, Sample
from tests import items
from tests.items import START
from tests.programs import COPY_ASYNC, D2H, FUTEX, LAUNCH, MAIN, SYNC, Program, started

ENGINE = 11  # the thread of autograd
BACKWARD, SECOND, NATIVE, OWN, LOADER, EXTENSION = (1 << 62 | number for number in range(1, 7))
TORCH = "/usr/lib/python3.11/site-packages/torch"
WAITING = [
    [f"{TORCH}/autograd/graph.py", 829, "_engine_run_backward"],
    [f"{TORCH}/_tensor.py", 581, "backward"],
]
FRAMES_OF = {
    BACKWARD: [*WAITING, ["/app/train.py", 31, "main"]],
    SECOND: [*WAITING, ["/app/train.py", 47, "main"]],
    NATIVE: [[f"{TORCH}/lib/libtorch_cuda.so", 0, "torch::autograd::Engine::thread_main+0x1"]],
    OWN: [["/app/function.py", 12, "backward"]],
    LOADER: [["/app/train.py", 20, "main"]],
    EXTENSION: [["/app/fused.so", 0, "fused_backward+0x10"]],
}


def training(
    waits: list[tuple[int, int, int]], calls: list[tuple[int, int]], name: str = "pt_autograd_0"
) -> Evidence:
    """The main thread waits, by (from, to, stack); the other one launches, by (when, stack); in us."""
    return program(waits, calls, name).evidence()


def program(waits: list[tuple[int, int, int]], calls: list[tuple[int, int]], name: str) -> Program:
    made = started()
    made.thread(ENGINE)
    made.samples.append(items.names(START, {MAIN: "python", ENGINE: name}))
    told = {"pid": [MAIN] * len(FRAMES_OF), "stack": list(FRAMES_OF), "frames": list(FRAMES_OF.values())}
    made.samples.append(Sample(FRAMES, START, told))
    for begin, end, stack in waits:
        made.off(begin, end, op=FUTEX, stack=stack)
    for begin, stack in calls:
        made.call(LAUNCH, begin, begin + 5, tid=ENGINE, pid=MAIN, stack=stack)
    return made


def lines(evidence: Evidence) -> list[str]:
    """The line of each call, as ``train.py:31``."""
    found = [evidence.facts.stacks.line(stack) for stack in evidence.calls["stack"].tolist()]
    return [line.brief if line is not None else "" for line in found]


@pytest.mark.parametrize("stack", [0, 1, NATIVE])
def test_calls_without_python_are_at_the_line_that_waits_in_backward(stack: int) -> None:
    made = training(
        [(100, 900, BACKWARD), (1100, 1900, SECOND)], [(200, stack), (1200, stack), (1800, stack)]
    )
    assert lines(made) == ["train.py:31", "train.py:47", "train.py:47"]


@pytest.mark.parametrize(("stack", "line"), [(OWN, "function.py:12"), (EXTENSION, "fused_backward+0x10")])
def test_a_backward_function_of_the_program_keeps_its_own_line(stack: int, line: str) -> None:
    assert lines(training([(100, 900, BACKWARD)], [(200, stack)])) == [line]


def test_only_waits_in_backward_count_and_only_autograd_s_threads() -> None:
    before = "thread_main+0x1"
    assert before in lines(training([(100, 900, LOADER)], [(200, NATIVE)]))[0]
    assert before in lines(training([(100, 900, BACKWARD)], [(200, NATIVE)], "feeder"))[0]
    assert before in lines(training([(100, 900, BACKWARD)], [(1000, NATIVE)]))[0]
    assert before in lines(training([(100, 900, BACKWARD)], [(50, NATIVE)]))[0]


def test_who_waits_may_be_woken_now_and_then() -> None:
    """A hook in Python takes the lock between two parts of the same wait."""
    made = training([(100, 300, BACKWARD), (320, 900, BACKWARD)], [(310, NATIVE)])
    assert lines(made) == ["train.py:31"]
    made = training([(100, 300, BACKWARD), (320, 900, SECOND)], [(310, NATIVE)])
    assert "thread_main" in lines(made)[0]


def test_a_finding_about_autograd_s_thread_names_the_line_of_backward() -> None:
    """A hook reads a value in each backward pass, and the GPU is idle meanwhile."""
    waits = [(begin + 10, begin + 18_000, BACKWARD) for begin in range(0, 400_000, 20_000)]
    made = program(waits, [], "pt_autograd_0")
    for begin in range(0, 400_000, 20_000):
        work = {"tid": ENGINE, "pid": MAIN, "stack": NATIVE}
        made.call(LAUNCH, begin + 20, begin + 30, **work)
        made.call(COPY_ASYNC, begin + 40, begin + 50, kind=D2H, bytes=4, **work)
        made.call(SYNC, begin + 60, begin + 9000, **work)
        made.call(LAUNCH, begin + 17_000, begin + 17_010, **work)
        made.call(SYNC, begin + 17_020, begin + 17_900, **work)
    found = made.report().findings[0]
    assert found.cause == "C01"
    assert found.line is not None
    assert found.line.brief == "train.py:31"

"""What led to a wait: PyTorch's loader, a server's wait for requests; what comes between two launches."""

from __future__ import annotations

import numpy as np
import pytest

from gputop.analysis.answer.report import Finding
from gputop.analysis.chains.attribution_context import AttributionContext, any_on_the_way, in_loader
from gputop.analysis.chains.chain import State
from probes.source import FRAMES, Sample
from tests.items import START
from tests.programs import (
    COPY_ASYNC,
    D2H,
    FUTEX,
    H2D,
    LAUNCH,
    MAIN,
    POLL,
    PREAD,
    RECVFROM,
    SYNC,
    US,
    Program,
    started,
)
from tests.simulated import SECOND, Deed, Machine, launches

WORKER, CLIENT = 20, 77
STEP_US, STEPS = 12_000, 40
LOADER, SERVER, PLAIN = (1 << 62 | number for number in (1, 2, 3))
FILES = {
    LOADER: "/usr/lib/python3.11/site-packages/torch/utils/data/dataloader.py",
    SERVER: "/usr/lib/python3.11/socketserver.py",
    PLAIN: "/app/train.py",
}


def waiting(stack: int, *, syscall: int = FUTEX, waker: int = WORKER) -> Program:
    """The main thread waits for 8 ms of a step, woken by another process that reads from a file meanwhile."""
    program = started()
    program.starts(WORKER, maker=MAIN)
    for begin in range(0, STEPS * STEP_US, STEP_US):
        program.call(LAUNCH, begin, begin + 10)
        program.call(SYNC, begin + 20, begin + 4_000)
        woken = {"waker_pid": waker, "waker_tid": waker}
        program.off(begin + 4_010, begin + 11_990, op=syscall, stack=stack, **woken)
        program.off(begin + 4_500, begin + 11_900, op=PREAD, pid=WORKER)
    program.call(LAUNCH, STEPS * STEP_US, STEPS * STEP_US + 10)
    rows = [[[FILES[one], 9, "f"], ["/app/train.py", 12, "main"]] for one in FILES]
    data = {"pid": [MAIN] * len(FILES), "stack": list(FILES), "frames": rows}
    program.samples.append(Sample(FRAMES, START, data))
    return program


def test_what_a_wait_led_to_is_found_however_far_down() -> None:
    scene = AttributionContext(waiting(LOADER).analysis())
    slices = scene.evidence.slices
    mine = any_on_the_way(scene, slices["pid"] == MAIN)
    workers = any_on_the_way(scene, slices["pid"] == WORKER)
    below = scene.pid == WORKER
    assert below.any()
    assert mine[below].all(), "the main thread's wait led to the worker"
    assert not workers[scene.own].any(), "nobody came to the main thread through the worker"
    assert not any_on_the_way(scene, np.zeros(len(slices), np.bool_)).any()


@pytest.mark.parametrize(("stack", "found"), [(LOADER, True), (SERVER, False), (PLAIN, False), (0, False)])
def test_a_wait_within_the_loader_is_known_by_its_python_code(stack: int, found: bool) -> None:
    scene = AttributionContext(waiting(stack).analysis())
    assert bool(in_loader(scene)[scene.pid == WORKER].any()) == found


def test_a_scene_without_waits_has_no_lineage() -> None:
    program = started()
    for begin in range(0, 100_000, 1_000):
        program.call(LAUNCH, begin, begin + 10)
        program.call(SYNC, begin + 20, begin + 500)
    scene = AttributionContext(program.analysis())
    assert not in_loader(scene).any()
    assert not any_on_the_way(scene, np.zeros(0, np.bool_)).any()
    assert (scene.segments.state == State.RUN).all()


@pytest.mark.parametrize("syscall", [FUTEX, POLL, RECVFROM])
def test_a_servers_wait_is_no_fault_whatever_it_waits_in(syscall: int) -> None:
    report = waiting(SERVER, syscall=syscall, waker=CLIENT).report()
    assert report.findings == ()
    assert report.diagnosis is not None
    assert report.diagnosis.kind == "no-requests"


@pytest.mark.parametrize(("stack", "kind", "cause"), [(LOADER, "input", "C10"), (PLAIN, "host", "C30")])
def test_the_same_wait_is_input_only_within_a_loader(stack: int, kind: str, cause: str) -> None:
    report = waiting(stack).report()
    assert report.findings[0].cause == cause
    assert report.diagnosis is not None
    assert report.diagnosis.kind == kind
    assert ("DataLoader" in report.verdict) == (stack == LOADER)


# -- what comes between launches, and copies that are staged ----------------------------------------


def told(step: list[Deed]) -> dict[str, Finding]:
    """The findings of a loop with NVML beside it, by cause."""
    machine = Machine()
    while machine.length < 2 * SECOND:
        machine.run(step)
    machine.utilization(SECOND // 6)
    return {one.cause: one for one in machine.finished().report().findings}


def share(finding: Finding) -> float:
    """Of three seconds."""
    return finding.loss.middle / (2 * SECOND * US)


@pytest.mark.slow
def test_python_between_launches_is_overhead_and_the_advice_is_to_launch_less() -> None:
    step = [one for number in range(30) for one in (Deed("launch", 10, number), Deed("host", 80))]
    finding = told(step)["C06"]
    assert (str(finding.level), finding.title) == ("strong", "CPU overhead between launches")
    assert share(finding) == pytest.approx(0.88, abs=0.05)
    assert "CUDA graphs" in finding.advice[0]


def test_long_work_between_launches_is_no_matter_of_launches() -> None:
    finding = told([*launches([100] * 4), Deed("host", 7_000)])["C28"]
    assert finding.title == "host work between launches"
    assert "graphs" not in finding.advice[0]
    assert "7." in finding.advice[0] or "6." in finding.advice[0]


def test_large_copies_from_pageable_memory_cost_what_the_cpu_stages() -> None:
    finding = told([Deed("send", size=32 << 20), *launches([1_000] * 4)])["C04"]
    # 4.2 ms of a step of 8.2; of the last kernel's end nothing is seen
    assert share(finding) == pytest.approx(0.5, abs=0.05)
    assert "33.6MB" in finding.advice[0] or "32" in finding.advice[0]
    assert "page-locked" in finding.advice[0], "nothing tells of PyTorch"
    assert finding.api == "cudaMemcpyAsync"


@pytest.mark.parametrize(("queued", "cause"), [(True, "C01"), (False, "C03")])
def test_who_has_no_cpu_between_a_read_and_its_wait_waits_for_the_read(queued: bool, cause: str) -> None:
    """25 ms pass between ``cudaMemcpyAsync`` to the host and its synchronisation."""
    program = started()
    for at in range(0, 40 * 40_000, 40_000):
        program.call(LAUNCH, at, at + 10)
        program.call(COPY_ASYNC, at + 20, at + 4_000, kind=D2H, bytes=4)
        if queued:
            program.off(at + 4_010, at + 28_990, at + 4_010)
        program.call(SYNC, at + 29_000, at + 29_010)
    program.call(LAUNCH, 40 * 40_000, 40 * 40_000 + 10)
    told = {one.cause: one for one in program.report().findings}
    assert cause in told


def test_what_wakes_late_within_a_copy_may_have_been_lost_as_well() -> None:
    """Every fourth thread gets its CPU back 2 ms after the GPU was done; then 2 ms of staging."""
    program = started()
    at = 0
    for step in range(40):
        late = 2_000 * (step % 4 == 0)
        program.call(LAUNCH, at, at + 10)
        program.off(at + 30, at + 8_020 + late, waker_pid=0, waker_tid=0)
        program.call(COPY_ASYNC, at + 20, at + 10_020 + late, kind=H2D, bytes=50 << 20)
        at += 10_040 + late
    (finding,) = (one for one in program.report().findings if one.cause == "C04")
    staging, late_ns = 40 * 2_000_000, 10 * 2_000_000
    assert finding.kind == "waste"
    assert finding.loss.upper == pytest.approx(staging + late_ns, rel=0.03)
    assert finding.gain.ns >= finding.loss.upper


@pytest.mark.slow
def test_small_copies_are_not_staged_ones() -> None:
    found = told([*[Deed("send", size=2_048), Deed("host", 60)] * 30, *launches([300] * 4)])
    assert "C04" not in found
    assert "C05" in found


def test_a_busy_gpu_has_no_overhead_between_launches() -> None:
    step = [one for number in range(10) for one in (Deed("launch", 900, number), Deed("host", 80))]
    assert told([*step, Deed("read")] * 10).keys() <= {"C01"}

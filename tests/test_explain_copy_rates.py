"""How fast copies go is learned from those that are waited for; what is not learned is part of the error.

The first tests make calls that a link of a known rate would give; the others hold the idle time of whole
programs against the simulated GPU's trace, at several rates of its link.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.analysis.proofs.work_queue import Rate
from gputop.simgpu import read_trace
from tests import inside
from tests.estimated import only, seen_by_nvml
from tests.gputop_command import GPUTOP
from tests.programs import COPY, COPY_ASYNC, H2D, LAUNCH, SYNC, Program, started
from tests.waiting import HANGS_S

SIZE = 8 << 20
RATES = [3.0, 12.0, 40.0]  # bytes per ns
PINNED, PAGEABLE = 0x5000_0000, 1 << 40
COPIES = Path(__file__).with_name("simgpu_programs") / "copies.py"


def moved_us(rate: float) -> int:
    return int(SIZE / rate / 1000)


def staged_us() -> int:
    return 100


def pinned_and_waited_for(program: Program, at: int, rate: float) -> int:
    program.call(COPY_ASYNC, at, at + 5, kind=H2D, bytes=SIZE, aux=PINNED)
    program.call(SYNC, at + 10, at + 5 + moved_us(rate))
    return at + 10 + moved_us(rate)


def staged_one_after_the_other(program: Program, at: int, rate: float) -> int:
    """The second waits until the link has moved what was staged of the first, then the CPU stages it."""
    program.call(COPY, at, at + staged_us(), kind=H2D, bytes=SIZE, aux=PAGEABLE)
    first = at + max(moved_us(rate), staged_us())
    program.call(COPY, at + staged_us() + 2, first + staged_us(), kind=H2D, bytes=SIZE, aux=PAGEABLE)
    end = first + moved_us(rate) + 5
    program.call(SYNC, first + staged_us() + 200, end + 200)
    return end + 200


def made(step: Callable[[Program, int, float], int], rate: float) -> Program:
    """Forty steps of it, with a kernel and a wait behind each."""
    program = started()
    program.call("cudaHostAlloc", 0, 5, bytes=SIZE, aux=PINNED)
    at = 1_000
    for _ in range(40):
        at = step(program, at, rate) + 300
        program.call(LAUNCH, at, at + 5)
        program.call(SYNC, at + 10, at + 500)
        at += 1_000
    program.length_us = max(at, 2_000_000)
    seen_by_nvml(program, 0.1, end_s=program.length_us / 1e6)
    return program


def learned(program: Program) -> dict[tuple[int, bool], Rate]:
    return only(program.analysis()).queue.rates.known


@pytest.mark.parametrize("rate", RATES[:2])
def test_a_pinned_copy_that_is_waited_for_shows_its_rate(rate: float) -> None:
    found = learned(made(pinned_and_waited_for, rate))[H2D, True]
    assert found.ns == pytest.approx(1 / rate, rel=found.error)


@pytest.mark.parametrize("rate", RATES[:2])
def test_a_staged_copy_waits_for_the_one_before_it(rate: float) -> None:
    found = learned(made(staged_one_after_the_other, rate))[H2D, False]
    assert found.ns == pytest.approx(1 / rate, rel=found.error)


@pytest.mark.parametrize("rate", RATES[:2])
@pytest.mark.parametrize("late_us", [300, 1_500, 6_000])
def test_where_each_copy_waited_for_a_cpu_the_error_holds_its_rate(rate: float, late_us: int) -> None:
    """The GPU had it sooner, as the thread got its CPU late each time."""

    def late(program: Program, at: int, rate: float) -> int:
        program.call(COPY_ASYNC, at, at + 5, kind=H2D, bytes=SIZE, aux=PINNED)
        over = at + 5 + moved_us(rate)
        program.call(SYNC, at + 10, over + late_us)
        program.off(at + 20, over + late_us - 2, over)
        return over + late_us + 5

    found = learned(made(late, rate))[H2D, True]
    assert abs(found.ns - 1 / rate) <= found.ns * found.error * 1.001


def test_copies_of_which_nothing_is_known_may_be_as_slow_as_their_proofs_allow() -> None:
    """Given with kernels behind them that are waited for rarely: nobody says how fast they are."""
    program = started()
    at = 1_000
    for step in range(60):
        program.call(COPY_ASYNC, at, at + 5, kind=H2D, bytes=SIZE, aux=PINNED)
        program.call(LAUNCH, at + 10, at + 15)
        if step % 10 == 9:
            program.call(SYNC, at + 20, at + 10_000)
        at += 30_000
    program.length_us = at
    seen_by_nvml(program, 0.05, end_s=at / 1e6)
    estimate = only(program.analysis())
    assert not estimate.queue.rates.known
    assert estimate.queue.rates.doubt > 0.1


def told(folder: Path, kind: str, rate: float) -> tuple[float, float, tuple[float, float]]:
    """(idle share, its error, the true share with and without the time that work takes to begin)."""
    folder.mkdir()
    env = dict(
        os.environ,
        SIMGPU_TRACE=str(folder / "trace"),
        SIMGPU_STATE=str(folder / "state"),
        SIMGPU_PCIE_GBPS=str(int(rate)),
    )
    path = folder / "run.gputop"
    command = [*GPUTOP, "record", "--simgpu", "-o", str(path), "--", sys.executable, str(COPIES), kind]
    subprocess.run(command, env=env, check=True, capture_output=True, timeout=HANGS_S)
    said = json.loads(inside.run("explain", "--json", str(path)).stdout)
    (gpu,) = said["gpus"]
    trace = read_trace(folder / "trace")
    begin = int(trace.rows["enqueue"].min())
    end = begin + gpu["span_ns"]
    shares = []
    for work_from in ("start", "enqueue"):
        gaps = trace.idle_intervals(None, 0, begin, end, work_from=work_from)
        shares.append(int((gaps[:, 1] - gaps[:, 0]).sum()) / gpu["span_ns"])
    idle = gpu["idle_ns"]["estimate"] or gpu["idle_ns"]["lower"]
    return idle / gpu["span_ns"], (gpu["error_ns"] or 0) / gpu["span_ns"], (shares[0], shares[1])


@pytest.mark.long
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize(
    "kind",
    [
        "sent",
        "sent-twice",
        "sent-pinned",
        "sent-async",
        "read",
        "read-empty",
        "read-async",
        "both",
        "both-async",
    ],
)
def test_the_reported_error_of_a_program_that_copies_holds(kind: str, rate: float, tmp_path: Path) -> None:
    share, error, (idle, without_work) = told(tmp_path / "run", kind, rate)
    assert max(share - idle, without_work - share) <= error + 0.01, f"{share:.3f} told, {idle:.3f} true"


def test_a_copy_whose_end_a_wait_shows_is_no_part_of_the_error() -> None:
    """Behind kernels that nobody waited for, its rate is not learned; yet its wait ends with it."""
    program = started()
    at = 1_000
    for _ in range(400):
        program.call(LAUNCH, at, at + 5)
        program.call(COPY_ASYNC, at + 10, at + 3_010, kind=H2D, bytes=SIZE, aux=PAGEABLE)
        program.call(SYNC, at + 3_020, at + 7_020)
        at += 12_000
    program.length_us = at
    seen_by_nvml(program, 0.1, end_s=at / 1e6)
    estimate = only(program.analysis())
    assert (H2D, False) not in estimate.queue.rates.known
    assert estimate.queue.rates.doubt > 0.1
    assert estimate.error_ns < 0.02 * at * 1_000

"""Counts are exact: what a program made is what gputop, the simulated GPU and bpftrace count."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import pytest

from probes.api import NAMES
from tests.ebpf.recording import Recorded, Workshop, bpftrace, bpftrace_counts, compile_program, traced
from tests.waiting import until_good, wait_until

pytestmark = pytest.mark.ebpf

THREADS, PROCESSES = 8, 3
COMPARED = {
    "libcudart.so.12": ["cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamSynchronize", "cudaMalloc"],
    "libcuda.so.1": ["cuLaunchKernel", "cuStreamSynchronize", "cuStreamQuery", "cuMemAlloc_v2"],
}
CHEAP = {"SIMGPU_LAUNCH_NS": "0", "SIMGPU_LATENCY_NS": "0", "SIMGPU_KERNEL_NS": "1"}
WANTED_PER_S = 200_000
MORE_THAN_FIT = 100_000  # calls, into a ring of 1 MiB
PACE_NS = 210_000  # a launch with its part of the rest is 2.3 calls, by 24 threads: 260,000 a second


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(compile_program("counts.c", tmp_path_factory.mktemp("bin")))


def counting_script(libraries: Path) -> str:
    """bpftrace on the compared symbols."""
    probes = [
        f"uprobe:{libraries / name}:{symbol}" for name, symbols in COMPARED.items() for symbol in symbols
    ]
    return ",\n".join(probes) + " { @[pid, probe] = count(); }"


def assert_same_as_told(
    run: Recorded, workshop: Workshop, *, processes: int = PROCESSES, names: Collection[str] = NAMES
) -> None:
    """Each process: gputop = its own count = the simulated GPU's, to the call."""
    assert len(run.said) == processes
    for line in run.said:
        pid = line["pid"]
        for api, made in line["made"].items():
            assert run.nesting(pid, api) == ({False: made} if api in names else {})
        simulated = workshop.simgpu_counts(pid)
        assert {api: simulated[api] for api in line["made"]} == line["made"]
        assert run.counts(pid) == traced(simulated, names)
        for api, made in line["direct"].items():
            assert run.nesting(pid, api) == {False: made}
    assert sum(run.counts(line["pid"]).total() for line in run.said) == sum(
        call["count"] for process in run.stats["processes"] for call in process["calls"]
    ), "no call belongs to anybody else"


def assert_what_is_missing_is_told(run: Recorded, workshop: Workshop, processes: int) -> None:
    """Where records were lost: no call is reported twice, and as many calls are missing as were lost."""
    assert len(run.said) == processes
    simulated = {line["pid"]: traced(workshop.simgpu_counts(line["pid"])) for line in run.said}
    assert all(run.counts(pid) <= made for pid, made in simulated.items())
    counted = sum(run.counts(pid).total() for pid in simulated)
    assert counted + run.lost_calls == sum(made.total() for made in simulated.values())


def assert_same_as_bpftrace(run: Recorded, counted: dict[int, Counter[str]]) -> None:
    """Each process and compared symbol: gputop = bpftrace."""
    for line in run.said:
        seen = run.counts(line["pid"])
        names = [re.sub(r"_v2$", "", symbol) for symbols in COMPARED.values() for symbol in symbols]
        assert all(seen[name] for name in names), "each of them was called"
        assert traced(counted[line["pid"]]) == Counter({name: seen[name] for name in names})


@pytest.mark.bpftrace
def test_counts_of_c_processes_and_threads_equal_their_own_and_bpftraces(
    tmp_path: Path, program: str, traced_names: frozenset[str]
) -> None:
    workshop, output = Workshop(tmp_path), tmp_path / "bpftrace.txt"
    with bpftrace(counting_script(workshop.libraries), output):
        run = workshop.record(program, "libcudart.so.12", str(THREADS), str(PROCESSES), "2000", env=CHEAP)
    assert run.lost == 0
    assert_same_as_told(run, workshop, names=traced_names)
    assert_same_as_bpftrace(run, bpftrace_counts(output))


@pytest.mark.long
@pytest.mark.bpftrace
def test_counts_of_python_processes_that_leave_by_exit_in_the_middle_equal_bpftraces(tmp_path: Path) -> None:
    workshop, output = Workshop(tmp_path), tmp_path / "bpftrace.txt"
    with bpftrace(counting_script(workshop.libraries), output):
        run = workshop.python("python_counts.py", "300", **CHEAP)
    assert run.lost == 0
    assert_same_as_told(run, workshop)
    assert_same_as_bpftrace(run, bpftrace_counts(output))


@pytest.mark.long
@pytest.mark.timed
def test_nothing_is_lost_at_200_000_calls_a_second(tmp_path: Path, program: str) -> None:
    """Counted are calls of probed functions, as records are: a launch is a runtime and a driver call.

    A machine that is slow for some seconds does not reach it, or loses records; the counts are exact anyway.
    """
    arguments = ("libcudart.so.12", str(THREADS), str(PROCESSES), "20000", str(PACE_NS))

    def measured() -> tuple[int, float]:
        """Records lost, and calls a second."""
        workshop = Workshop(Path(tempfile.mkdtemp(dir=tmp_path)))
        run = workshop.record(program, *arguments, env=CHEAP)
        made = sum(traced(workshop.simgpu_counts(line["pid"])).total() for line in run.said)
        busy_ns = max(line["end_ns"] for line in run.said) - min(line["begin_ns"] for line in run.said)
        reached = made * 1e9 / busy_ns
        print(f"{made} calls in {busy_ns / 1e9:.2f} s: {reached:.0f} calls/s, {run.lost} records lost")
        if run.lost == 0:
            assert_same_as_told(run, workshop)
        else:
            assert_what_is_missing_is_told(run, workshop, PROCESSES)
        return run.lost, reached

    found: list[bool] = []

    def good(one: tuple[int, float]) -> bool:
        """At once, or twice in a row: what loses some now and then is no machine that is slow for once."""
        found.append(one[0] == 0 and one[1] >= WANTED_PER_S)
        return all(found[-2:])

    lost, reached = until_good(measured, good)
    assert lost == 0
    assert reached >= WANTED_PER_S
    assert all(found[-2:])


def launches_so_far(workshop: Workshop) -> int:
    """About how many the simulated GPU has counted, of both layers, while it counts."""
    if not workshop.simgpu_log.exists():
        return 0
    text = workshop.simgpu_log.read_text(errors="replace")
    return sum(map(int, re.findall(r'"cu(?:da)?LaunchKernel": *(\d+)', text)))


def stop_for_a_while(recorder: subprocess.Popen[str], workshop: Workshop) -> None:
    """Stops it at the program's first call, until more calls were made than its ring holds."""
    wait_until(lambda: launches_so_far(workshop) > 0, "the first call")
    os.kill(recorder.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: launches_so_far(workshop) > MORE_THAN_FIT, "so many calls")
    finally:
        os.kill(recorder.pid, signal.SIGCONT)


def test_what_a_small_ring_loses_is_counted_as_lost(tmp_path: Path, program: str) -> None:
    workshop = Workshop(tmp_path)
    arguments = ("libcudart.so.12", str(THREADS), str(PROCESSES), "4000")
    recorder = workshop.start(["--", program, *arguments], ("--simgpu", "--ring", "1"), CHEAP)
    stop_for_a_while(recorder, workshop)
    run = workshop.finish(recorder)
    made = sum(traced(workshop.simgpu_counts(line["pid"])).total() for line in run.said)
    counted = sum(run.counts(line["pid"]).total() for line in run.said)
    assert run.stats["lost"]["by_kind"]["calls"] > 1000
    assert counted + run.stats["lost"]["by_kind"]["calls"] == made


def test_what_a_stopped_gputop_loses_is_counted_as_lost(tmp_path: Path, program: str) -> None:
    workshop = Workshop(tmp_path)
    recorder = workshop.start(
        ["--", program, "libcudart.so.12", "2", "1", "50000"], ("--simgpu", "--ring", "1"), CHEAP
    )
    stop_for_a_while(recorder, workshop)
    run = workshop.finish(recorder)
    (line,) = run.said
    made = traced(workshop.simgpu_counts(line["pid"])).total()
    assert run.stats["lost"]["by_kind"]["calls"] > 1000
    assert run.counts(line["pid"]).total() + run.stats["lost"]["by_kind"]["calls"] == made
    assert run.stats["lost"]["by_kind"]["nesting"] == run.stats["lost"]["by_kind"]["threads"] == 0

"""Coming and going of gputop beside a running job: nothing of it is left, and the job notices nothing."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from probes.proc.procfs import process_state
from replay.reader import SessionReader
from tests.ebpf.bpf_objects import BpfObjects, existing, held_by, others_probe
from tests.ebpf.growing import marks
from tests.ebpf.jobs import running
from tests.ebpf.recording import Workshop, compile_program
from tests.waiting import HANGS_S, until_good, wait_until

pytestmark = pytest.mark.ebpf

TIMES, MANY_TIMES = 3, 20
ATTEMPTS = 5
THREADS, CALLS = 500, 40
LINES = 15  # of 20 ms each: how long a cost is measured


def record_briefly(workshop: Workshop, pid: int, file: Path) -> int:
    """Records a running process for a moment; returns how many calls were seen."""
    workshop.file = file
    for _ in range(ATTEMPTS):  # one that is kept from its CPU makes no call for a moment
        run = workshop.finish(workshop.start(["--pid", str(pid), "--duration", "0.2"]))
        assert run.lost == 0
        if pid in {process["pid"] for process in run.stats["processes"]}:
            return run.counts(pid).total()
    return 0


@pytest.mark.parametrize(
    ("attach", "times"),
    [
        ("multi", TIMES),
        pytest.param("perf", 2, marks=pytest.mark.long),
        pytest.param("multi", MANY_TIMES, marks=pytest.mark.long),
    ],
)
def test_a_job_beside_which_gputop_comes_and_goes_makes_the_same_calls_with_the_same_results(
    tmp_path: Path, attach: str, times: int
) -> None:
    workshop, stop = Workshop(tmp_path, attach), tmp_path / "stop"
    program = compile_program("steady.c", tmp_path)
    with running(workshop, program, stop) as job:
        for turn in range(times):
            seen = record_briefly(workshop, job.pid, tmp_path / f"{turn}.gputop")
            assert seen > 0, "it was attached"
            assert job.poll() is None
        stop.touch()
    last = workshop.said()[-1]
    assert (last["wrong"], last["errors"]) == (0, 0)
    assert last["made"]["cudaLaunchKernel"] > 100
    simulated = workshop.simgpu_counts(job.pid)
    assert {name: simulated[name] for name in last["made"]} == last["made"]


def cost(workshop: Workshop) -> float:
    """What a call costs from now on, by the program's own clock."""
    before = len(workshop.said())
    wait_until(lambda: len(workshop.said()) >= before + 1 + LINES, "the program to measure")
    return statistics.median(line["ns"] for line in workshop.said()[before + 1 :])


@pytest.fixture
def small_library(tmp_path: Path) -> Path:
    """A runtime with three functions, so that detaching ends soon."""
    shared = ("-shared", "-fPIC", "-fno-optimize-sibling-calls", "-Wl,--defsym=cuMemAlloc_v2=cudaFree")
    return compile_program("fake_cuda.c", tmp_path, *shared, "-DRUNTIME", output="libcudart.so.12")


@pytest.mark.parametrize(
    "fast_again",
    # beside other tests a gputop that watches the whole machine is in every library
    [False, pytest.param(True, marks=[pytest.mark.long, pytest.mark.timed])],
    ids=["probes", "slowdown"],
)
def test_a_killed_gputop_leaves_nothing(tmp_path: Path, small_library: Path, fast_again: bool) -> None:
    """The library is the test's own: others' probes may be in the simulated one until they are detached."""
    workshop, stop = Workshop(tmp_path, "multi"), tmp_path / "stop"
    program = compile_program("call_cost.c", tmp_path)
    with running(workshop, program, small_library, "cudaFree", stop) as job:
        without = min(cost(workshop) for _ in range(3)) if fast_again else 0.0
        recorder = workshop.start(["--pid", str(job.pid)])
        wait_until(lambda: marks(workshop.file) > 0, "the recorder to attach")
        held = held_by(recorder.pid)
        assert len((held & existing()).links) > 8, "the tracepoints, and two of the library"
        probed = cost(workshop) if fast_again else 0.0
        recorder.kill()
        recorder.communicate(timeout=HANGS_S)
        wait_until(lambda: not held & existing(), "links and programs to vanish", every=0.3)
        if fast_again:
            most = 1.25 * without
            after = until_good(lambda: cost(workshop), lambda found: found < most, every=0)
            if after >= most and others_probe():
                pytest.skip("somebody else's gputop probes the library as well")
            assert after < most, "calls cost what they did"
            assert probed > 3 * min(without, after)
        stop.touch()


@contextmanager
def holder(library: Path) -> Iterator[tuple[subprocess.Popen[str], int, BpfObjects]]:
    """A process that holds perf-event probes: itself, its helper's number, its BPF objects."""
    program = Path(__file__).parent / "programs" / "hold_probes.py"
    root = Path(__file__).resolve().parents[2]
    environment = os.environ | {"GPUTOP_ATTACH": "perf", "PYTHONPATH": str(root)}
    process = subprocess.Popen(
        [sys.executable, str(program), str(library)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        symbols, helper = map(int, process.stdout.readline().split())
        held = held_by(process.pid)
        assert symbols == 4
        assert len((held & existing()).links) == 2 * symbols
        yield process, helper, held
    finally:
        process.kill()
        process.wait()


@pytest.mark.long
@pytest.mark.drains
def test_probes_of_perf_events_are_gone_soon_after_gputop_was_killed_and_so_is_their_helper(
    small_library: Path,
) -> None:
    with holder(small_library) as (process, helper, held):
        wait_until(lambda: held_by(helper).links == held.links, "the helper to hold every link, too")
        os.kill(helper, signal.SIGSTOP)
        try:
            wait_until(lambda: process_state(helper) == "T", "the helper to stand still")
            process.kill()
            process.wait(timeout=HANGS_S)
            assert held_by(helper).links == held.links, "it has not waited for the kernel to detach"
            assert (held & existing()).links == held.links
        finally:
            os.kill(helper, signal.SIGCONT)
        wait_until(lambda: not held & existing(), "links and programs to vanish", every=0.3)
        wait_until(lambda: not Path(f"/proc/{helper}/fd").exists(), "the helper to end")


@pytest.mark.drains
def test_a_killed_helper_takes_no_probe_away_and_another_one_does_its_work(small_library: Path) -> None:
    with holder(small_library) as (process, helper, held):
        os.kill(helper, signal.SIGKILL)
        wait_until(lambda: held_by_nobody(helper), "the helper to die")
        assert (held & existing()).links == held.links
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=HANGS_S) == 0
        wait_until(lambda: not held & existing(), "links and programs to vanish", every=0.3)


def held_by_nobody(pid: int) -> bool:
    """Whether a process has closed all its files: it ended, or is a zombie."""
    try:
        return not os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return True


def test_calls_of_500_threads_are_exact_from_the_attachment_on(tmp_path: Path) -> None:
    workshop, go = Workshop(tmp_path), tmp_path / "go"
    program = compile_program("many_threads.c", tmp_path)
    with running(workshop, program, THREADS, CALLS, go) as job:
        recorder = workshop.start(["--pid", str(job.pid)])
        wait_until(lambda: marks(workshop.file) > 0, "the recorder to attach")
        go.touch()
        run = workshop.finish(recorder)
    _start, *threads, between = run.said
    assert len(threads) == THREADS
    assert run.lost == 0
    names, records = run.calls()
    starts = records["t_end"] - records["duration"]
    inside = (starts >= between["begin_ns"]) & (records["t_end"] <= between["end_ns"])
    mine = records[inside & (records["depth"] == 0) & (records["op"] == names.index("cudaStreamQuery"))]
    assert Counter(mine["tid"].tolist()) == {line["tid"]: line["calls"] for line in threads}
    assert inside.sum() == 2 * len(mine), "each with its driver call inside"
    assert (~inside).any(), "it was attached while they called"


def problems(file: Path) -> list[str]:
    """The sentences about latecomers in a recording, in order; empty ones end the one before."""
    reader = SessionReader(file)
    found = [item.data["text"] for item in reader.items() if getattr(item, "kind", "") == "problem"]
    reader.close()
    return [text for text in found if not text or "ran before gputop" in text]


def test_what_is_not_known_of_an_older_process_is_told_until_it_is_known(tmp_path: Path) -> None:
    """Its main thread sleeps until it is woken; only then has a probe seen it."""
    workshop = Workshop(tmp_path)
    sleeper = subprocess.Popen(["sh", "-c", "read line; read line"], stdin=subprocess.PIPE, text=True)
    try:
        recorder = workshop.start(["--pid", str(sleeper.pid)])
        wait_until(lambda: marks(workshop.file) > 1, "the recorder to attach")
        assert len(problems(workshop.file)) == 1
        assert f"process {sleeper.pid} ran before" in problems(workshop.file)[0]
        assert sleeper.stdin is not None
        sleeper.stdin.write("\n")
        sleeper.stdin.flush()
        wait_until(lambda: problems(workshop.file)[1:] == [""], "the end of it")
        sleeper.stdin.close()
        run = workshop.finish(recorder)
    finally:
        sleeper.kill()
        sleeper.wait()
    assert not any("ran before" in text for text in run.stats["problems"])


def test_the_end_of_a_process_that_slept_ever_since_is_seen(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        recorder = workshop.start(["--pid", str(sleeper.pid)])
        wait_until(lambda: marks(workshop.file) > 1, "the recorder to attach")
        slept_until = time.monotonic_ns()
        sleeper.kill()
        wait_until(lambda: process_state(sleeper.pid) == "Z", "its end")
        died_within = time.monotonic_ns() - slept_until
        run = workshop.finish(recorder)
    finally:
        sleeper.kill()
        sleeper.wait()
    process = run.process(sleeper.pid)
    assert process["exited"] is True
    # where it is preempted while it dies, its last slice is seen; nothing else of it is
    assert len(process["threads"]) <= 1
    assert sum(thread["on_cpu_ns"] for thread in process["threads"]) < died_within

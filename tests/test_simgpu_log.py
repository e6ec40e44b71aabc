"""The log is right whatever happens to the process: all other tests compare with it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from gputop.simgpu import ensure_built, read_log, read_trace
from tests.simgpu_programs.harness import Bench, compile_c
from tests.waiting import HANGS_S, wait_until

THREADS, LAUNCHES = 8, 5003


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c("basic.c", tmp_path_factory.mktemp("bin") / "basic")


@pytest.mark.parametrize("ending", ["exit", "_exit", "kill"])
@pytest.mark.parametrize("library", ["libcudart.so.12", "libcudart.so.13"])
def test_counts_are_exact_with_threads_and_processes(
    tmp_path: Path, program: Path, library: str, ending: str
) -> None:
    bench = Bench(tmp_path)
    env = bench.env | {"SIMGPU_LAUNCH_NS": "0"}
    command = [str(program), library, str(THREADS), str(LAUNCHES), ending]
    processes = [subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) for _ in range(3)]
    codes = [process.wait(timeout=HANGS_S) for process in processes]
    assert codes == [-9 if ending == "kill" else 0] * 3
    logs = bench.processes()
    assert sorted(log.pid for log in logs) == sorted(process.pid for process in processes)
    for log in logs:
        assert log.comm == "basic"
        for name, count in (
            ("LaunchKernel", THREADS * LAUNCHES),
            ("StreamQuery", THREADS * (LAUNCHES // 100)),
        ):
            assert log.calls["cuda" + name] == count
            assert log.calls["cu" + name] == count
        assert log.calls["cudaDeviceSynchronize"] == 1
        assert log.kernel_busy_ns > 0


def launched(bench: Bench, pid: int) -> int:
    """How many launches the log has of a process that writes it."""
    try:
        return sum(log.calls.get("cudaLaunchKernel", 0) for log in bench.processes() if log.pid == pid)
    except (OSError, ValueError):  # not there, or in the middle of a line
        return 0


def test_a_kill_at_any_moment_leaves_a_line_that_adds_up(tmp_path: Path, program: Path) -> None:
    bench = Bench(tmp_path)
    env = bench.env | {"SIMGPU_LAUNCH_NS": "0"}
    for i in range(8):
        command = [str(program), "libcudart.so.13", "4", "100000000", "exit"]
        process = subprocess.Popen(command, env=env)
        wait_until(lambda pid=process.pid: launched(bench, pid) > 1000, "a thousand launches")
        time.sleep(0.0137 * i)  # any moment is as good as another
        process.kill()
        process.wait()
    logs = bench.processes()
    assert len(logs) == 8
    for log in logs:
        runtime, driver = log.calls["cudaLaunchKernel"], log.calls["cuLaunchKernel"]
        assert runtime > 1000
        assert 0 <= runtime - driver <= 4, "each thread can be between the two"
        # a line is written once per launch, after it is queued: threads may be between
        assert 0 <= driver - log.kernel_busy_ns <= 5


def test_a_child_has_its_own_line_and_cannot_use_its_parents_device(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    result = bench.run(
        "c = Cuda(); c.launch(1000); c.DeviceSynchronize(); r, w = os.pipe(); pid = os.fork()\n"
        "if pid == 0:\n"
        "    os.write(w, json.dumps([c.launch(1000), c.DeviceSynchronize()]).encode()); os._exit(0)\n"
        "os.waitpid(pid, 0); c.launch(1000)\n"
        "print(json.dumps([os.getpid(), pid, json.loads(os.read(r, 100))]))"
    )
    parent, child, codes = result
    assert codes == [3, 3]
    logs = {log.pid: log for log in bench.processes()}
    assert logs[parent].calls["cudaLaunchKernel"] == 2
    assert logs[child].calls["cudaLaunchKernel"] == 1
    assert logs[child].calls["cudaDeviceSynchronize"] == 1


def test_a_child_of_a_process_that_only_loaded_the_library_can_use_the_device(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    codes = bench.run(
        "c = Cuda(); r, w = os.pipe(); pid = os.fork()\n"
        "if pid == 0:\n"
        "    os.write(w, json.dumps([c.launch(1000), c.DeviceSynchronize()]).encode()); os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "print(json.dumps([json.loads(os.read(r, 100)), c.launch(1000), c.DeviceSynchronize()]))"
    )
    assert codes == [[0, 0], 0, 0]
    assert [log.calls["cudaLaunchKernel"] for log in bench.processes()] == [1, 1]


def test_a_process_that_becomes_another_program_has_two_entries(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    taken = bench.run(
        "import sys\nc = Cuda(); c.launch(1000)\n"
        "free = 'from cuda import *; import ctypes; c = Cuda(); z = ctypes.c_size_t; a, b = z(), z();'\n"
        "free += 'c.MemGetInfo(ctypes.byref(a), ctypes.byref(b)); print(b.value - a.value)'\n"
        "os.execvpe(sys.executable, ['python', '-c', free], os.environ)",
    )
    assert taken == 256 << 20, "only its own context, not the former program's"
    first, second = bench.processes()
    assert first.pid == second.pid
    assert (first.calls["cudaLaunchKernel"], "cudaLaunchKernel" in second.calls) == (1, False)


def test_each_line_is_json_by_itself(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for _ in range(2):
        bench.run("c = Cuda(); c.launch(1000)")
    lines = bench.log.read_text().splitlines()
    assert len(lines) == 2
    for line in lines:
        assert json.loads(line)["calls"]["cudaLaunchKernel"] == 1


def test_a_line_is_added_after_what_stands_in_the_file(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.log.write_text('{"pid":1,"start":2,"lib":"cuda","comm":"x","calls":{}}\n')
    bench.run("c = Cuda(); c.launch(1000)")
    assert [log.comm for log in read_log(bench.log)] == ["x", "python"]


def test_busy_and_idle_time_are_the_devices(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.run(
        "c = Cuda(); a, b = c.stream(1), c.stream(1)\n"
        "c.launch(300_000_000, a); c.launch(10_000_000, b); c.DeviceSynchronize()\n"
        "time.sleep(0.05); c.launch(5_000_000, a); c.DeviceSynchronize()",
        SIMGPU_TRACE=str(tmp_path / "trace"),
    )
    (log,) = bench.processes()
    assert log.gpu_busy_ns == 305_000_000, "work of two streams at once counts once"
    assert log.last_end_ns - log.first_start_ns == log.gpu_busy_ns + log.gpu_idle_ns
    rows = read_trace(tmp_path / "trace").rows
    assert (rows["end"] - rows["start"]).tolist() == [300_000_000, 10_000_000, 5_000_000]
    assert 50_000_000 <= log.gpu_idle_ns == rows["start"][2] - rows["end"][0]
    assert len(set(rows["stream"])) == 2
    assert (set(rows["pid"]), set(rows["kind"])) == ({log.pid}, {"kernel"})


def test_overlapping_work_counts_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.run(
        "c = Cuda(); a, b, d = c.stream(1), c.stream(1), c.stream(1)\n"
        "c.launch(300_000_000, a); c.launch(500_000_000, b); c.launch(5_000_000, d); c.DeviceSynchronize()",
        SIMGPU_TRACE=str(tmp_path / "trace"),
    )
    (log,) = bench.processes()
    first, second, third = read_trace(tmp_path / "trace").rows
    assert first["start"] < second["start"] < third["start"] < first["end"] < second["end"], "all at once"
    assert log.gpu_busy_ns == second["end"] - first["start"]
    assert log.gpu_idle_ns == 0


def test_counting_carries_over_every_digit(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.run("c = Cuda()\nfor _ in range(100_123): c.PeekAtLastError()")
    (log,) = bench.processes()
    assert log.calls["cudaPeekAtLastError"] == 100_123


def printed(command: list[str], env: dict[str, str]) -> list[float]:
    """Runs a program and returns the numbers that it printed."""
    out = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    return [float(number) for number in out.split()]


@pytest.mark.timed
def test_a_launch_is_fast_enough_for_high_rates(tmp_path: Path, program: Path) -> None:
    """A million a second where a turn of an empty loop takes half a nanosecond."""
    env = Bench(tmp_path).env | {"SIMGPU_LAUNCH_NS": "0", "SIMGPU_LATENCY_NS": "0"}
    # a copy: a tracer of another test or user may have probes on the libraries themselves
    env["LD_LIBRARY_PATH"] = str(shutil.copytree(ensure_built(), tmp_path / "lib"))
    command = [str(program), "libcudart.so.13", "1", "200000", "exit"]
    runs = [printed(command, env) for _ in range(3)]
    best = min(cpu / turn for _, cpu, turn in runs)
    assert best < 2000, "turns, in CPU time, for both layers together"


@pytest.mark.timed
def test_a_launch_costs_what_it_does_in_reality_by_default(tmp_path: Path) -> None:
    """3 to 6 µs from its begin, and what this machine needs for one that costs nothing."""
    program = compile_c("launch_times.c", tmp_path / "launch_times")
    base = Bench(tmp_path).env | {"SIMGPU_KERNEL_NS": "1"}
    command = [str(program), "libcudart.so.12", "2001"]
    runs = [(printed(command, base), printed(command, base | {"SIMGPU_LAUNCH_NS": "0"})) for _ in range(5)]
    print(runs)
    assert min(fastest for (fastest, _), _ in runs) >= 3000
    assert min(median for (_, median), _ in runs) > 4000, "not always the least"
    assert min(median - bare for (_, median), (_, bare) in runs) < 6000


def test_an_unwritable_log_does_not_stop_the_program(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.run("c = Cuda(); print(c.launch(1000))", SIMGPU_LOG=os.devnull + "/x") == 0

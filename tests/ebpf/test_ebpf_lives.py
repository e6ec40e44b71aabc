"""Processes that are killed, replaced, joined late, or not watched: calls are counted where they belong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from gputop.simgpu import environment
from probes.schema import CallFlag
from tests.ebpf.growing import marks, notes
from tests.ebpf.recording import PROGRAMS, Workshop, compile_program
from tests.waiting import HANGS_S, wait_until

pytestmark = pytest.mark.ebpf

CALLS = 1000
SPUN_NS = 500_000_000


def cpu_ns(pid: int, tid: int) -> int:
    """What a thread has spent on a CPU."""
    return int(Path(f"/proc/{pid}/task/{tid}/schedstat").read_text().split()[0])


def calls_by_thread(run: object) -> Counter[tuple[int, int]]:
    """(pid, tid) -> outermost calls of cudaStreamQuery in the session file."""
    names, records = run.calls()  # type: ignore[attr-defined]
    mine = records[(records["op"] == names.index("cudaStreamQuery")) & (records["depth"] == 0)]
    return Counter(zip(mine["pid"].tolist(), mine["tid"].tolist(), strict=True))


def test_a_wait_in_which_its_process_is_killed_is_counted_once(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    recorder = workshop.start(["--", str(compile_program("long_wait.c", tmp_path))])
    wait_until(lambda: len(workshop.said()) == 2, "both threads to wait")
    began = {line["tid"]: line["ns"] for line in workshop.said()}
    pid = workshop.said()[0]["pid"]
    until = {tid: cpu_ns(pid, tid) + SPUN_NS for tid in began}
    wait_until(lambda: all(cpu_ns(pid, tid) >= until[tid] for tid in began), "both to have spun so long")
    os.kill(pid, signal.SIGKILL)
    run = workshop.finish(recorder, status=128 + signal.SIGKILL)
    ended = time.monotonic_ns()
    assert run.process(pid)["exited"] is True
    names, records = run.calls()
    marked = records[records["flags"] & CallFlag.ABANDONED != 0]
    outer = marked[marked["depth"] == 0]
    assert {names[op] for op in outer["op"]} == {"cudaStreamSynchronize", "cudaDeviceSynchronize"}
    assert len(outer) == 2
    assert {*outer["tid"].tolist()} == {*began}
    for row in outer:  # the kernel counts a thread's CPU time at its ticks
        assert 0.9 * SPUN_NS <= row["duration"] <= ended - began[row["tid"]]
    for api in ("cudaStreamSynchronize", "cudaDeviceSynchronize"):
        assert run.nesting(pid, api) == {False: 1}
    assert run.nesting(pid, "cudaLaunchKernel") == {False: 1}


def test_a_program_executed_by_a_thread_goes_on_being_counted(tmp_path: Path) -> None:
    program = compile_program("exec_thread.c", tmp_path)
    run = Workshop(tmp_path).record(str(program), str(CALLS), str(3 * CALLS))
    said = {line["where"]: line for line in run.said}
    pid = said["main"]["pid"]
    assert said["exec"]["tid"] == said["exec"]["pid"] == pid
    assert said["thread"]["tid"] != pid
    expected = {(pid, pid): CALLS + 3 * CALLS, (pid, said["thread"]["tid"]): CALLS}
    assert calls_by_thread(run) == expected
    assert run.nesting(pid, "cudaStreamQuery") == {False: 5 * CALLS}
    assert run.process(pid)["exited"] is True


@pytest.mark.long
def test_the_life_of_a_thread_that_executed_a_program_goes_on(tmp_path: Path) -> None:
    program = compile_program("exec_thread.c", tmp_path)
    run = Workshop(tmp_path).record(str(program), str(CALLS), str(CALLS))
    pid = run.said[0]["pid"]
    assert 200e6 <= run.thread(pid, pid)["on_cpu_ns"] < 400e6, "what the new program used, and a little"


@pytest.mark.parametrize("open_before", [False, True])
@pytest.mark.mainly("True")
def test_attached_to_a_process_its_later_threads_and_children_are_counted_and_others_are_not(
    tmp_path: Path, open_before: bool
) -> None:
    """One that has CUDA open is probed alone until it forks: its child waits for that (docs/probes.md)."""
    workshop, other = Workshop(tmp_path), Workshop(tmp_path)
    other.self_log = tmp_path / "other.jsonl"
    go, seen = tmp_path / "go", tmp_path / "seen"
    command = [sys.executable, str(PROGRAMS / "attached.py"), str(go), str(CALLS)]
    command += [str(seen)] if open_before else []
    watched, unwatched = (
        subprocess.Popen(command, env=environment(workshop.env | {"SELF_LOG": str(log)}))
        for log in (workshop.self_log, other.self_log)
    )
    try:
        wait_until(lambda: workshop.said() and other.said(), "both programs to start")
        recorder = workshop.start(["--pid", str(watched.pid)])
        wait_until(lambda: marks(workshop.file) > 0, "the recorder to attach")
        go.touch()
        if open_before:
            wait_until(lambda: any("every program's" in text for text in notes(workshop.file)), "all probes")
        seen.touch()
        run = workshop.finish(recorder)
    finally:
        go.touch()
        seen.touch()
        assert [process.wait(timeout=HANGS_S) for process in (watched, unwatched)] == [0, 0]
    _before, *after = run.said
    assert len(after) == len(other.said()) - 1 == 3
    assert calls_by_thread(run) == {(line["pid"], line["tid"]): line["calls"] for line in after}
    pids = {process["pid"] for process in run.stats["processes"]}
    assert pids == {line["pid"] for line in after}
    assert unwatched.pid not in pids
    assert run.process(watched.pid)["exited"] is True

"""Without root, or where eBPF does not start: NVML and procfs, and a banner with the command for the rest."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from gputop.engine.engine import Engine
from gputop.engine.frame import Frame
from gputop.playback.player import frame_at
from probes.observe.plan import LivePlan
from probes.observe.procfs_source import ProcfsSource
from probes.source import MARK, Sample
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests import inside
from tests.bench.tmux import Terminal
from tests.cli_support import run
from tests.gputop_command import GPUTOP
from tests.rootless_support import (
    CALLER,
    NOBODY,
    RIVALS,
    UNSEEN,
    as_nobody,
    environment,
    frame,
    is_rootless,
    mounted,
    started,
)
from tests.waiting import HANGS_S

ATTEMPTS = 8
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")

# computes and sleeps a known number of times, says what the kernel counted of it, then waits to be read
SLEEPER = """
import os, resource, sys, threading, time
sizes = set()
while len(sizes) < 3:  # of the recording: gputop has looked at this process by then
    time.sleep(0.01)
    sizes.add(os.path.getsize(sys.argv[2]))
before, first = resource.getrusage(resource.RUSAGE_THREAD), time.thread_time_ns()
began = time.monotonic_ns()
for _ in range(200):
    time.sleep(0.004)
for _ in range(150):
    sum(range(100_000))
used, cpu = resource.getrusage(resource.RUSAGE_THREAD), time.thread_time_ns()
lived = time.monotonic_ns() - began
counts = used.ru_nvcsw, before.ru_nvcsw, used.ru_nivcsw - before.ru_nivcsw
open(sys.argv[1], "w").write(f"{os.getpid()} {' '.join(map(str, counts))} {first} {cpu} {lived}")
time.sleep(0.8)
os._exit(0)
"""
# what a container's seccomp profile does to bpf(2): EPERM
WITHOUT_BPF = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, 321), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(rules), ctypes.addressof(code)))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


# -- what is seen, and what is reported --------------------------------------------------------------


def test_nobody_sees_who_uses_the_gpu_and_how_it_is_scheduled(home: Path) -> None:
    with started(home, CALLER, "0") as pid:
        found = frame(home)
    assert is_rootless(found, "no eBPF without root", "--once --json")
    (row,) = [row for row in found["processes"] if row["pid"] == pid]  # others may run beside
    assert (row["pid"], row["user"], row["gpus"], row["gpus_source"]) == (pid, str(NOBODY), [0], "nvml")
    unknown = ("calls_per_second", "top_api_ns_per_second", "top_api_p99_ns")
    assert [row[key] for key in unknown] == [None] * 3, "not known is not 0"
    assert (row["calls"], [thread["cuda"] for thread in row["threads"]]) == ([], [None])
    # it sleeps; on a busy machine it waits for a CPU as well
    assert row["blocked_percent"] > 10 * row["on_cpu_percent"]
    assert row["blocked_percent"] > 50
    assert found["gpus"][0]["name"] == "SimGPU 80GB"


def test_without_nvml_a_mapped_library_shows_who_uses_cuda(home: Path) -> None:
    env = environment(home)
    with started(home, CALLER, "0") as pid, started(home, "import time; time.sleep(60)") as idle:
        env.pop("LD_LIBRARY_PATH")
        done = run("--once", "--json", program=(*as_nobody(), *GPUTOP), env=env | {"LD_LIBRARY_PATH": ""})
    found = json.loads(done.stdout)
    told = {row["pid"] for row in found["processes"]}  # others of this user's may run beside
    assert pid in told
    assert idle not in told
    assert found["gpus"] == []
    assert any("libnvidia-ml" in problem for problem in found["problems"])


@pytest.mark.long
def test_a_process_of_another_user_is_shown_when_requested_with_its_children(home: Path) -> None:
    with started(home, RIVALS, within=()) as pid:
        found = frame(home, "--pid", str(pid), "--duration", "2")
    assert is_rootless(found, f"--pid {pid}")
    assert len(found["processes"]) == 2
    parent, child = sorted(found["processes"], key=lambda row: row["parent_pid"] == pid)
    assert (parent["pid"], child["parent_pid"]) == (pid, pid)
    assert parent["user"] == "root"


def test_a_storm_is_seen_and_its_cause_is_not(home: Path) -> None:
    """Switches are provoked 500 times a second by a rival that yields."""
    rival = RIVALS.replace("    pass", "    os.sched_yield()").replace("os.nice(19)", "")
    with started(home, rival) as pid:
        for _ in range(ATTEMPTS):  # who gets no CPU for two seconds is in no storm
            found = frame(home, "--pid", str(pid))
            if not (storms := [storm for storm in found["storms"] if storm["pid"] == pid]):
                continue
            text = run("--once", "--pid", str(pid), program=(*as_nobody(), *GPUTOP), env=environment(home))
            if "not known without eBPF" in text.stdout:
                break
    (storm,) = storms
    assert storm["runnable_percent"] > 30
    assert storm["occupants"] == []
    assert "not known without eBPF" in text.stdout
    assert "-" in text.stdout.split(f"\n{pid}")[1].split()[:4], "calls per second are unknown"


# -- the figures ---------------------------------------------------------------------------------


def test_thread_totals_of_a_recording_are_those_of_the_kernel(home: Path) -> None:
    file, truth = home / "run.gputop", home / "truth"
    # by way of sh: whether nobody could run this interpreter itself is not the question
    command = ("sh", "-c", 'exec "$@"', "sh", sys.executable, "-c", SLEEPER, str(truth), str(file))
    done = run(
        "record", "-o", str(file), "--", *command, program=(*as_nobody(), *GPUTOP), env=environment(home)
    )
    assert done.returncode == 0
    pid, voluntary, before, involuntary, first_ns, cpu_ns, lived_ns = map(int, truth.read_text().split())
    stats = json.loads(inside.run("stats", "--json", str(file)).stdout)
    assert stats["calls_observed"] is False
    (process,) = [row for row in stats["processes"] if row["pid"] == pid]
    assert process["calls"] == []
    (thread,) = process["threads"]
    assert 200 <= voluntary - before <= thread["voluntary_switches"] <= voluntary + 5
    # how often it is preempted before the first look and after the last depends on who else wants its CPU
    assert thread["involuntary_switches"] >= involuntary
    # its end, after it had read its clock, is counted only by gputop, and its beginning, before gputop looked
    # at it first, only by the program
    assert cpu_ns - first_ns <= thread["on_cpu_ns"] <= cpu_ns + 10_000_000
    total = sum(thread[key] for key in ("on_cpu_ns", "runnable_ns", "blocked_ns"))
    reader = SessionReader(file)
    tick_ns = int(np.diff(reader.marks).max())
    reader.close()
    # by its own clock, and the 0.8 s after it was read; a last tick may be missing at its end
    assert lived_ns + 800_000_000 - tick_ns <= total <= 1.01 * stats["duration_ns"]


@pytest.mark.long
def test_two_rivals_on_one_cpu_are_on_it_and_in_its_queue_as_the_kernel_says(home: Path) -> None:
    for _ in range(ATTEMPTS):
        with started(home, RIVALS) as pid, witness(pid) as readings:
            found = frame(home, "--pid", str(pid), "--duration", "3")
        window = [found["time_ns"] - found["window_ns"], found["time_ns"]]
        times, *columns = np.array(readings).T
        on_cpu, queued = (np.diff(np.interp(window, times, column))[0] for column in columns)
        if min(on_cpu, queued) > 0.3 * found["window_ns"]:
            break  # else somebody before whom all wait had the CPU, and the readings come late, too
    else:
        pytest.skip(f"others kept the CPU from both rivals in all of {ATTEMPTS} attempts")
    row = next(row for row in found["processes"] if row["pid"] == pid)
    assert row["on_cpu_percent"] == pytest.approx(100 * on_cpu / found["window_ns"], abs=3)
    assert row["runnable_percent"] == pytest.approx(100 * queued / found["window_ns"], abs=3)


@contextmanager
def witness(pid: int) -> Iterator[list[tuple[int, int, int]]]:
    """(time, on-CPU time, run-queue time) of a process with one thread, read a hundred times a second."""
    readings: list[tuple[int, int, int]] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.wait(0.01):
            on_cpu, queued = Path(f"/proc/{pid}/schedstat").read_text().split()[:2]
            readings.append((time.monotonic_ns(), int(on_cpu), int(queued)))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield readings
    finally:
        stop.set()
        thread.join()


def _has_run(frame: Frame) -> bool:
    return any(row.on_cpu_percent for row in frame.processes)


def test_replayed_and_sought_frames_equal_the_live_ones(home: Path, tmp_path: Path) -> None:
    with started(home, RIVALS) as pid:
        source = ProcfsSource(LivePlan(pids=(pid,), rate_hz=10), "why")
        source.start()
        file = tmp_path / "session.msgpack"
        writer, engine, frames = SessionWriter(file, source.header), Engine(source.header), []
        for item in source.items():
            writer.write(item)
            if engine.feed(item):
                frames.append(engine.frame())
            at_a_mark = isinstance(item, Sample) and item.kind == MARK
            # on a busy machine the two, who are in nobody's way, may not have run for seconds
            if at_a_mark and len(frames) >= 30 and (any(map(_has_run, frames)) or not source.alive):
                source.close()
        writer.close()
    reader = SessionReader(file)
    engine = Engine(reader.header)
    assert [engine.frame() for item in reader.items() if engine.feed(item)] == frames
    assert any(map(_has_run, frames)), "what is equal tells of the process"
    for index in (0, len(frames) // 2, len(frames) - 1):
        assert frame_at(reader, index) == frames[index]


# -- recording and the screen --------------------------------------------------------------------


def test_a_recording_says_so_once_and_passes_the_status_on(home: Path) -> None:
    words = ("record", "-o", str(home / "x"), "--", "sh", "-c", "exit 7")
    done = run(*words, program=(*as_nobody(), *GPUTOP), env=environment(home))
    assert done.returncode == 7
    assert done.stderr.count(UNSEEN) == 1
    assert "Traceback" not in done.stderr
    assert (home / "x").stat().st_uid == NOBODY


def test_a_private_recording_does_not_hold_the_command_line(home: Path) -> None:
    words = ("record", "--private", "-o", str(home / "x"), "--", "sh", "-c", "exit 0 # secret")
    done = run(*words, program=(*as_nobody(), *GPUTOP), env=environment(home))
    assert done.returncode == 0
    problems = json.loads(inside.run("stats", "--json", str(home / "x")).stdout)["problems"]
    assert UNSEEN in problems[0]
    assert "secret" not in problems[0]


def _all_in(screen: str, *texts: str) -> bool:
    return all(text in screen for text in texts)


def test_nobody_s_screen_shows_the_banner_and_the_process(home: Path) -> None:
    with started(home, CALLER, "0") as pid, Terminal(home) as terminal:
        env = [f"{name}={environment(home)[name]}" for name in ("HOME", "LD_LIBRARY_PATH", "SIMGPU_STATE")]
        words = ["env", *env, *as_nobody(), *GPUTOP]
        terminal.keys(" ".join(words), "Enter")
        # panes are painted one by one: what a terminal holds in between is no frame
        terminal.wait(
            lambda: _all_in(terminal.screen(), f"› {pid:>6}", "no eBPF without root", "shows the reason"), 30
        )
        shown = terminal.screen()
        told = " ".join(shown.split())
        assert "to see them: " in told
        assert "launcher.py gputop" in told, "the command, uncut"
        (row,) = [line.split() for line in shown.splitlines() if line.split()[:2] == ["›", str(pid)]]
        (titles,) = [line for line in shown.splitlines() if "PID" in line and "p99" in line]
        names = titles.replace("▾", " ").replace("GPU MEM", "MEM").replace("TOP CALL", "TOP")
        figures = dict(zip(names.split(), row[1:], strict=False))
        assert (figures["NAME"], figures["GPU"], figures["MEM"][-1]) == ("python", "0", "M"), "NVML tells"
        assert [figures[title] for title in ("CALLS/s", "TOP", "p99")] == ["-"] * 3, "not known is not 0"
        assert "not known without eBPF" in shown
        terminal.keys("q")
        terminal.wait(terminal.at_prompt, HANGS_S)


# -- what stands in the way ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("within", "words"),
    [
        (
            ("setpriv", "--bounding-set=-bpf,-perfmon,-sys_admin"),
            ("this root has no CAP_BPF and no CAP_PERFMON", "--cap-add BPF"),
        ),
        (("setpriv", "--no-new-privs", *as_nobody()), ("no_new_privs",)),
        (("unshare", "--user", "--map-root-user"), ("user namespace", "on the host")),
        (mounted("mount --bind /dev/null /sys/kernel/btf/vmlinux"), ("CONFIG_DEBUG_INFO_BTF",)),
        (mounted("mount -t tmpfs none /sys"), ("CONFIG_DEBUG_INFO_BTF", "-v /sys:/sys:ro")),
        ((sys.executable, "-c", WITHOUT_BPF), ("seccomp", "--security-opt")),
    ],
    ids=["no-capabilities", "no-new-privileges", "user-namespace", "no-btf", "masked-sys", "seccomp"],
)
@pytest.mark.ebpf
@pytest.mark.mainly("seccomp")
def test_what_stands_in_the_way_is_named_and_the_rest_is_shown(
    home: Path, within: Sequence[str], words: Sequence[str]
) -> None:
    with started(home, CALLER, "0") as pid:
        found = frame(home, "--pid", str(pid), within=within)
    assert is_rootless(found, *words)
    assert [row["pid"] for row in found["processes"]] == [pid]
    assert found["processes"][0]["threads"]


@pytest.mark.ebpf
def test_without_bcc_the_package_is_named_and_the_command_runs(home: Path) -> None:
    program = (*mounted(f"mount --bind {home} /usr/lib/python3/dist-packages/bcc"), *GPUTOP)
    words = ("record", "-o", str(home / "x"), "--", "sh", "-c", "exit 3")
    done = run(*words, program=program, env=environment(home))
    assert done.returncode == 3
    assert "apt-get install python3-bpfcc" in done.stderr
    assert done.stderr.count(UNSEEN) == 1


@pytest.mark.ebpf
def test_without_tracefs_nothing_is_missing(home: Path) -> None:
    hide = "; ".join(f"mount -t tmpfs none /sys/kernel/{name} 2>/dev/null" for name in ("tracing", "debug"))
    found = frame(home, within=mounted(hide))
    assert found["calls_observed"]
    # whatever else this machine runs with CUDA is told of as well
    others = re.compile(r"ran before gputop|process \d+")
    assert [problem for problem in found["problems"] if not others.search(problem)] == []


def test_hidden_processes_are_spoken_of(home: Path) -> None:
    within = (*mounted("mount -t proc -o hidepid=2 none /proc"), *as_nobody())
    with started(home, CALLER, "0") as pid, started(home, CALLER, "60", within=()) as others:
        found = frame(home, within=within)
        done = run("--once", "--pid", str(others), program=(*within, *GPUTOP), env=environment(home))
    told = {row["pid"] for row in found["processes"]}  # others of this user's may run beside
    assert pid in told
    assert others not in told
    assert any("hidepid" in problem for problem in found["problems"])
    assert done.returncode == 1
    assert f"process {others} belongs to another user, and /proc hides it" in done.stderr

"""A process that the kernel ends for lack of memory is reported, at the moment that bpftrace sees it."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from replay.reader import SessionReader
from tests import inside
from tests.ebpf.control_group import control_group
from tests.ebpf.recording import Recorded, Workshop, bpftrace

pytestmark = [pytest.mark.ebpf, pytest.mark.bpftrace]
LIMIT = 64 << 20
MS = 1_000_000
SCRIPT = 'tracepoint:oom:mark_victim { printf("victim %d at %llu\\n", args->pid, nsecs); }'
GREEDY = """
import os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
open(sys.argv[2], "w").write(str(os.getpid()))
kept = [bytearray(b"x") * (1 << 20) for _ in range(512)]
"""


@dataclass(frozen=True)
class Killed:
    """A recording, the victim, its moment by bpftrace, and what the kernel counted meanwhile, ns."""

    run: Recorded
    pid: int
    start: int
    moment: int
    pressure: int | None
    steal: int


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """A recording, the victim's number, and its start and the victim's moment by bpftrace, in ns."""
    folder = tmp_path_factory.mktemp("oom")
    script, said, output = folder / "greedy.py", folder / "pid", folder / "bpftrace.txt"
    script.write_text(GREEDY)
    before = counted()
    limit = str(LIMIT)
    group = control_group("memory", {"memory.limit_in_bytes": limit}, {"memory.max": limit})
    with group as place, bpftrace(SCRIPT, output):
        command = f"{sys.executable} {script} {place} {said}; sleep 1; true"
        run = Workshop(folder).record("sh", "-c", command)
    pressure, steal = (
        None if old is None or new is None else new - old for old, new in zip(before, counted(), strict=True)
    )
    pid = int(said.read_text())
    moments = [
        int(at)
        for victim, at in re.findall(r"victim (\d+) at (\d+)", output.read_text())
        if int(victim) == pid
    ]
    assert len(moments) == 1, "the kernel did not end it: this is not what the case is about"
    return Killed(run, pid, started_ns(run), moments[0], pressure, steal or 0)


def counted() -> tuple[int | None, int | None]:
    """Memory pressure (None: this kernel tells none) and steal of this machine until now, ns."""
    try:
        told = re.search(r"some .*total=(\d+)", Path("/proc/pressure/memory").read_text())
    except OSError:
        told = None
    steal = int(Path("/proc/stat").read_text().split()[8])
    return int(told[1]) * 1000 if told else None, steal * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def started_ns(run: Recorded) -> int:
    """When the recording began, CLOCK_MONOTONIC."""
    reader = SessionReader(run.path)
    started = int(reader.header["start_ns"])
    reader.close()
    return started


def test_who_was_ended_and_when(killed: Killed) -> None:
    seen = killed.run.process(killed.pid)
    assert seen["oom_ns"] == pytest.approx(killed.moment - killed.start, abs=5 * MS)
    assert seen["exited"]


def test_nobody_else_is_reported_to_have_been(killed: Killed) -> None:
    run, pid = killed.run, killed.pid
    assert [row["pid"] for row in run.stats["processes"] if "oom_ns" in row] == [pid]


def test_memory_pressure_and_steal_are_what_the_kernel_counted_meanwhile(killed: Killed) -> None:
    machine = killed.run.stats["machine"]
    print(machine, killed)
    assert 0 <= machine["steal_ns"] <= killed.steal
    if killed.pressure is None:
        assert machine["memory_some_ns"] is None
        return
    assert 0 < machine["memory_some_ns"] <= killed.pressure
    assert 0 <= machine["memory_full_ns"] <= machine["memory_some_ns"]


def test_stats_explain_and_the_notes_of_a_frame_say_so(killed: Killed) -> None:
    run, pid = killed.run, killed.pid
    assert "out of memory" in inside.run("stats", str(run.path)).stdout
    explained = inside.run("explain", str(run.path)).stdout
    assert re.search(rf"the kernel killed python.* \({pid}\) .* after the start .*: out of memory", explained)
    shown = inside.run("replay", str(run.path), "--once", "--json").stdout
    assert f"the kernel ends process {pid}: out of memory" in shown

"""What gputop says of each thread is what the kernel counted of it: switches, run-queue wait, CPU time.

The kernel of a sandboxed virtual machine may run no BPF program while one of the sandbox's own threads is
current. A switch from such a thread to ours is then seen by nobody: a wait without an end. bpftrace tells
how many there were (switches out less switches in); where there were none, nothing is forgiven.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from recording import Recorded, Workshop, bpftrace, compile_program

pytestmark = [pytest.mark.ebpf, pytest.mark.bpftrace]

MS = 1_000_000
ATTEMPTS = 4
# mode -> threads, and the fewest switches that make the case what it is
CASES = {
    "sleep": (4, 500),
    "spin": (4, 20),
    "fight": (4, 20),
    "migrate": (4, 50),
    "yield": (4, 1000),
    "talk": (4, 1000),
    "process": (3, 20),
}
SWITCHES_SCRIPT = (
    "tracepoint:sched:sched_switch { @out[args->prev_pid] = count(); @in[args->next_pid] = count(); }"
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(compile_program("switches.c", tmp_path_factory.mktemp("bin")))


def record(program: str, mode: str, directory: Path, attach: str) -> Recorded:
    """One recording; the program's threads say at their ends what the kernel counted."""
    threads, fewest = CASES[mode]
    recorded = Workshop(directory, attach).record(program, mode, str(threads))
    assert recorded.lost == 0
    assert len(recorded.said) == threads
    switches = sum(line["voluntary"] + line["involuntary"] for line in recorded.said)
    assert switches >= fewest, "the scheduler did not do what the case is about"
    return recorded


def hidden_switches(output: Path) -> Counter[int]:
    """Thread -> switches to it that no BPF program could see, by bpftrace."""
    found = re.findall(r"^@(in|out)\[(\d+)\]: (\d+)$", output.read_text(), re.M)
    hidden: Counter[int] = Counter()
    for way, tid, count in found:
        hidden[int(tid)] += int(count) if way == "out" else -int(count)
    return hidden


@dataclass(frozen=True)
class Case:
    """A recording, and what bpftrace says of its threads."""

    run: Recorded
    hidden: Counter[int]

    def pairs(self, *, hidden: bool) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """What the kernel counted of each thread, and gputop; those with hidden switches only if wanted."""
        lines = [line for line in self.run.said if hidden or not self.hidden[line["tid"]]]
        return [(line, self.run.thread(line["pid"], line["tid"])) for line in lines]


@pytest.fixture(scope="module", params=[*CASES, "sleep as on 5.15", "talk as on 5.15"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, program: str) -> Case:
    """A recording of a mode in which most threads had no hidden switch.

    Before Linux 5.18 the state of who leaves comes from the task, not from the tracepoint.
    """
    mode, _, old = request.param.partition(" as on ")
    for _ in range(ATTEMPTS):
        directory = tmp_path_factory.mktemp(mode)
        with bpftrace(SWITCHES_SCRIPT, directory / "bpftrace.txt"):
            run = record(program, mode, directory, "perf" if old else "multi")
        found = Case(run, hidden_switches(directory / "bpftrace.txt"))
        if 2 * len(found.pairs(hidden=False)) >= len(run.said):
            return found
    pytest.fail(f"in {ATTEMPTS} recordings most threads had switches that no BPF program could see")


def test_switches_of_each_thread_equal_the_kernels_counters(case: Case) -> None:
    for line, seen in case.pairs(hidden=True):
        voluntary = line["voluntary"] - seen["voluntary_switches"]
        involuntary = line["involuntary"] - seen["involuntary_switches"]
        hidden = case.hidden[line["tid"]]
        print(f"{line} missed {voluntary} + {involuntary}, hidden {hidden}")
        assert -1 <= voluntary <= 1 + hidden
        assert -1 <= involuntary <= 1 + hidden
        assert voluntary + involuntary <= 2 + hidden


def test_runnable_time_of_each_thread_equals_its_run_delay(case: Case) -> None:
    for line, seen in case.pairs(hidden=False):
        apart = seen["runnable_ns"] - line["run_delay"]
        print(f"run delay {line['run_delay'] / MS:.2f} ms, {apart / 1e3:+.1f} us apart")
        assert abs(apart) <= max(line["run_delay"] // 100, MS), line


def test_on_cpu_time_of_each_thread_equals_its_cpu_clock(case: Case) -> None:
    for line, seen in case.pairs(hidden=False):
        apart = seen["on_cpu_ns"] - line["cpu"]
        print(f"CPU time {line['cpu'] / MS:.2f} ms, {apart / 1e3:+.1f} us apart")
        assert abs(apart) <= max(line["cpu"] // 50, 2 * MS), line

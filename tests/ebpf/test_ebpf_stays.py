"""Stays off the CPU are those that bpftrace sees at the same time, and that the program measures itself."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.ebpf.recording import Recorded, Workshop, bpftrace, compile_program

pytestmark = [pytest.mark.ebpf, pytest.mark.bpftrace]
READS = 64
MS = 1_000_000
ATTEMPTS = 4
SCRIPT = """
tracepoint:sched:sched_switch {
  @out[args->prev_pid] = count();
  @in[args->next_pid] = count();
  if (@gone[args->next_pid]) {
    @late[args->next_pid] = count();
  } else if (@since[args->next_pid]) {
    $stay = nsecs - @since[args->next_pid];
    @count[args->next_pid] = count();
    @sum[args->next_pid] = sum($stay);
    @max[args->next_pid] = max($stay);
    delete(@since[args->next_pid]);
  }
  if (args->prev_pid) { @since[args->prev_pid] = nsecs; }
}
// on its way out a thread may be switched some times more
tracepoint:sched:sched_process_exit { @gone[args->pid] = 1; }
"""


@dataclass(frozen=True)
class Both:
    """A recording, and what bpftrace told of each thread."""

    run: Recorded
    traced: dict[int, dict[str, int]]

    def line(self, what: str) -> dict[str, Any]:
        """What the program said of a thread."""
        (found,) = [line for line in self.run.said if line["what"] == what]
        return found

    def whole(self) -> bool:
        """Whether bpftrace saw a thread leave its CPU as often as it saw it come, and kept when that was.

        The kernel calls no program of a tracepoint on a CPU where a map operation was preempted, and on a
        busy machine it refuses a map new elements for a while: a time that was not kept makes no stay.
        """
        rows = [self.traced[line["tid"]] for line in self.run.said]
        stays = [row["in"] - row.get("late", 0) - row.get("count", 0) for row in rows]
        return all(row["in"] == row["out"] for row in rows) and max(stays) <= 1  # a birth is no stay

    def seen(self, what: str) -> dict[str, Any]:
        """What gputop tells of it."""
        line = self.line(what)
        found: dict[str, Any] = self.run.thread(line["pid"], line["tid"])["off_cpu"]
        return found


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    folder = tmp_path_factory.mktemp("stays")
    program, file, output = compile_program("stays.c", folder), folder / "pages", folder / "bpftrace.txt"
    file.write_bytes(os.urandom(READS << 16))
    os.sync()
    for attempt in range(ATTEMPTS):
        bench = folder / str(attempt)
        bench.mkdir()
        with bpftrace(SCRIPT, output):
            run = Workshop(bench).record("sh", "-c", f"{program} {file}; true")
        made = Both(run, traced(output))
        if made.whole() and made.line("reads")["waits"] >= READS // 2:
            return made
    pytest.fail(f"in {ATTEMPTS} recordings bpftrace missed a switch, or half of the reads waited for no disk")


def traced(output: Path) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = defaultdict(dict)
    for name, tid, number in re.findall(
        r"^@(count|sum|max|in|out|late)\[(\d+)\]: (\d+)$", output.read_text(), re.M
    ):
        found[int(tid)][name] = int(number)
    return found


@pytest.mark.parametrize("what", ["sleeps", "reads"])
def test_count_sum_and_worst_are_those_of_bpftrace(both: Both, what: str) -> None:
    seen, truth = both.seen(what), both.traced[both.line(what)["tid"]]
    print(seen, truth)
    more = truth["count"] - seen["count"]
    assert abs(more) <= 1, "a birth is no stay"
    assert seen["sum_ns"] == pytest.approx(truth["sum"], rel=0.01, abs=MS + abs(more) * truth["max"])
    assert seen["worst_ns"] == pytest.approx(truth["max"], rel=0.01, abs=MS)
    assert seen["average_ns"] == seen["sum_ns"] // seen["count"]


def test_the_worst_stay_is_the_longest_sleep_that_the_program_measured(both: Both) -> None:
    seen, line = both.seen("sleeps"), both.line("sleeps")
    assert 0.98 * line["worst"] <= seen["worst_ns"]
    assert seen["count"] >= line["count"]
    assert seen["disk_count"] <= seen["count"] // 4, "who sleeps does not wait for the disk"


def test_what_was_waited_for_at_the_disk_is_reported_by_file(both: Both) -> None:
    line, seen = both.line("reads"), both.seen("reads")
    (process,) = [row for row in both.run.stats["processes"] if row["pid"] == line["pid"]]
    (row,) = [row for row in process["disk_waits"] if row["call"] == "pread64"]
    print(row, line)
    assert Path(row["file"]).name == "pages"
    assert abs(row["count"] - line["waits"]) <= 1, "a read that the disk answered at once is none"
    assert row["worst_ns"] <= row["sum_ns"] <= line["ns"]
    others = [one for one in process["disk_waits"] if one is not row]  # its start, from a cold disk
    assert row["count"] <= seen["disk_count"] <= row["count"] + sum(one["count"] for one in others)


def test_reads_past_the_cache_are_waits_for_the_disk(both: Both) -> None:
    seen, line = both.seen("reads"), both.line("reads")
    print(seen, line)
    assert line["waits"] - 1 <= seen["disk_count"] <= line["waits"] + 8, "and what its start read"
    assert seen["disk_ns"] <= line["ns"]
    # whatever else the CPU has to do: who only reads is blocked for nothing else
    blocked = both.run.thread(line["pid"], line["tid"])["blocked_ns"]
    assert 0.9 * blocked <= seen["disk_ns"] <= blocked

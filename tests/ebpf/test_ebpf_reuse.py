"""A process gets the number of one that has ended: what is reported of one is not reported of the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.playback.player import frame_at
from probes.source import NOTE, PROCESS
from replay.reader import SessionReader
from tests.ebpf.recording import Workshop, compile_program

pytestmark = pytest.mark.ebpf

FIRST, SECOND = 1000, 3000


@pytest.mark.parametrize("wait_ms", [0, 1500])
@pytest.mark.mainly("1500")
def test_two_processes_of_one_number_are_distinguished_and_that_their_counts_are_not(
    wait_ms: int, tmp_path: Path
) -> None:
    program = compile_program("reuse.c", tmp_path)
    run = Workshop(tmp_path).record(str(program), str(FIRST), str(SECOND), str(wait_ms))
    pid = run.said[-1]["pid"]  # before it may come pairs of which others got the number
    ends = {line["where"]: line["end_ns"] for line in run.said}
    assert run.nesting(pid, "cudaStreamQuery") == {False: FIRST + SECOND}
    reader = SessionReader(run.path)
    told = [sample.data for sample in reader.samples(PROCESS) if sample.data["pid"] == pid]
    exits = [row["exited_ns"] for row in told if row.get("exit_code") in (3 << 8, 4 << 8)]
    assert len(exits) == 2
    assert ends["first"] <= exits[0] < ends["second"] <= exits[1]
    for row in told:
        if "seen_ns" in row:
            assert row["start_ns"] <= row["seen_ns"]
            foreign = "second" if row["seen_ns"] < exits[0] else "first"
            assert f" {foreign} " not in row.get("command", "")
    last = frame_at(reader, len(reader.marks) - 1)
    (shown,) = [row for row in last.processes if row.pid == pid]
    assert shown.start_ns >= exits[0] - 10_000_000
    assert shown.exited_ns == exits[1]
    said = f"process number {pid} went to a new process: totals by number hold the calls of both"
    # the screen shows the newest notes, and others of this machine may have given reasons for some
    assert said in [sample.data["text"] for sample in reader.samples(NOTE)]
    reader.close()


def test_a_number_that_only_helpers_had_is_no_news(tmp_path: Path) -> None:
    program = compile_program("reuse.c", tmp_path)
    run = Workshop(tmp_path).record(str(program), "0", str(SECOND), "0")
    reader = SessionReader(run.path)
    assert not [note for note in frame_at(reader, len(reader.marks) - 1).notes if "new process" in note]
    reader.close()

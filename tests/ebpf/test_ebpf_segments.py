"""A recording in segments misses no call: those in the segments add up to what the program made."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from gputop.api.functions import stats
from tests.ebpf.recording import Workshop, compile_program, traced

pytestmark = pytest.mark.ebpf
CHEAP = {"SIMGPU_LAUNCH_NS": "0", "SIMGPU_LATENCY_NS": "0", "SIMGPU_KERNEL_NS": "1"}
PACE_NS = 1_000_000  # a tenth of a million calls, over several seconds


def test_calls_in_segments_add_up_to_those_that_were_made(tmp_path: Path) -> None:
    program = str(compile_program("counts.c", tmp_path))
    workshop = Workshop(tmp_path)
    arguments = ("libcudart.so.12", "4", "2", "5000", str(PACE_NS))
    run = workshop.record(program, *arguments, flags=("--simgpu", "--max-time", "1"), env=CHEAP)
    segments = sorted(workshop.file.iterdir())
    assert len(segments) >= 4
    counted: Counter[tuple[int, str]] = Counter()
    for path in segments:
        found = stats(path)
        assert found.lost.events == 0
        for process in found.processes:
            for call in process.calls:
                counted[process.pid, call.api] += call.count
    assert len(run.said) == 2
    for line in run.said:
        made = traced(workshop.simgpu_counts(line["pid"]))
        assert Counter({api: count for (pid, api), count in counted.items() if pid == line["pid"]}) == made
        assert run.counts(line["pid"]) == made, "of the folder as of one file"
        for api, count in line["made"].items():
            assert made[api] == count

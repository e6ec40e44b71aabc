"""A recording that keeps sums counts what the program made, to the call."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gputop.api.session import open_session
from probes.source import SUMS, Sample
from tests.ebpf.recording import Workshop, compile_program, traced

pytestmark = pytest.mark.ebpf
CHEAP = {"SIMGPU_LAUNCH_NS": "0", "SIMGPU_LATENCY_NS": "0", "SIMGPU_KERNEL_NS": "1"}
PACE_NS = 1_500_000  # it goes on for 7.5 seconds
# gputop that keeps two seconds whole at first, one at the end, 1.5 around a finding, and none for a slow call
HASTY = """
import sys
from gputop.commands import cli
from gputop.recording import adaptive
adaptive.FIRST_NS, adaptive.BEFORE_NS, adaptive.AFTER_NS, adaptive.CREDIT_NS = 2 * 10**9, 10**9, 5 * 10**8, 0
sys.exit(cli.run(sys.argv[1:]))
"""


@pytest.mark.parametrize("detail", ["summary", "adaptive"])
@pytest.mark.mainly("adaptive")
def test_sums_are_of_the_calls_that_were_made(detail: str, tmp_path: Path) -> None:
    program = str(compile_program("counts.c", tmp_path))
    workshop = Workshop(tmp_path, gputop=(sys.executable, "-c", HASTY))
    arguments = ("libcudart.so.12", "4", "2", "5000", str(PACE_NS))
    run = workshop.record(program, *arguments, flags=("--simgpu", "--detail", detail), env=CHEAP)
    with open_session(workshop.file) as session:
        assert session.header["detail"] == detail
        assert any(isinstance(item, Sample) and item.kind == SUMS for item in session.items())
    assert run.lost == 0
    assert len(run.said) == 2
    for line in run.said:
        made = traced(workshop.simgpu_counts(line["pid"]))
        assert run.counts(line["pid"]) == made
        for api, count in line["made"].items():
            assert made[api] == count

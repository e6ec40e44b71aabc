"""Ranks of an unmodified CUDA build of PyTorch under ``gputop record --simgpu``: who is late is named.

Needs what ``make torch-cuda`` installs beside the repository; skipped where it is not there, in CI too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.fleet.ingest import ingest
from gputop.fleet.lake.lake import open_lake
from gputop.fleet.ranks.stragglers import TABLES, stragglers
from tests.conftest import needed
from tests.ebpf.recording import Workshop
from tests.torch_programs.wheel import HERE as PROGRAMS
from tests.torch_programs.wheel import torch_cuda_python

pytestmark = [pytest.mark.ebpf, pytest.mark.long, pytest.mark.timeout(400)]
PATIENT_S = 300  # importing torch takes 3 s of a CPU in each process
STEPS, MS, LATE = 60, 80, 1


def test_the_late_rank_of_distributed_data_parallel_is_named_with_what_it_is_late(tmp_path: Path) -> None:
    """The program's own clock is the truth."""
    needed("duckdb")
    needed("pyarrow")
    workshop = Workshop(tmp_path)
    env = {"SIMGPU_DEVICES": "2", "MEETING": f"file://{tmp_path / 'meeting'}"}
    program = str(PROGRAMS / "late_rank.py")
    run = workshop.record(torch_cuda_python(), program, str(STEPS), str(MS), env=env, seconds=PATIENT_S)
    slept = {line["rank"]: line["ms"] for line in run.said}
    assert ingest([str(run.path)], str(tmp_path / "lake"), 1).explained == 1
    database = open_lake(str(tmp_path / "lake"), TABLES)
    found = stragglers(database, 60, rest=True, limit=10)
    database.close()
    (row,) = (dict(zip(found.answer.columns, told, strict=True)) for told in found.answer.rows)
    assert (row["late_rank"], row["seen"], row["ranks"], row["why"]) == (LATE, 2, 2, None)
    assert row["cause"] == "C32"
    assert row["late_ms"] == pytest.approx(slept[LATE] - slept[1 - LATE], rel=0.1)

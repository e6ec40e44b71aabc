"""Traces of the ranks of a job as one recording: whose GPU is which, clocks, collectives, stragglers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gputop
from gputop.api.recording_evidence import evidence_of
from tests.conftest import needed
from tests.import_rows import COMMS, event
from tests.typed import typed

STEPS, STEP_US = 60, 20_000
BASE = 1_700_000_000_000_000_000


def rank(path: Path, number: int, *, device: int, late_us: float = 0, off_ns: int = 0) -> Path:
    """A rank that computes and all-reduces; an all-reduce ends for both ranks when the last one has come.

    Args:
        path: Of its trace.
        number: Of the rank.
        device: Its GPU.
        late_us: How much longer than the other one it takes to come.
        off_ns: How far its clock is ahead.
    """
    events: list[Any] = []
    for step in range(STEPS):
        at = 1000.0 + STEP_US * step
        own, slowest = at + 5000 + late_us, at + 5000 + 4000
        key = 10 * step
        pid = 500 + number
        events += [
            event("cuda_runtime", "cudaLaunchKernel", at, 10, pid, pid, correlation=key + 1),
            event("kernel", "gemm", at + 20, 4000, device, 7, correlation=key + 1, stream=7, device=device),
            event("cpu_op", "record_param_comms", own, 40, pid, pid, **COMMS),
            event("cuda_runtime", "cudaLaunchKernelExC", own + 10, 10, pid, pid, correlation=key + 2),
            event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", own + 60,
                  slowest + 500 - own, device, 20, correlation=key + 2, stream=20, device=device),
            event("cuda_runtime", "cudaStreamSynchronize", own + 100, slowest + 600 - own, pid, pid,
                  correlation=key + 3),
        ]  # fmt: skip
    document = {
        "baseTimeNanoseconds": BASE + off_ns,
        "distributedInfo": {"backend": "nccl", "rank": number, "world_size": 2},
        "deviceProperties": [{"id": one, "name": "NVIDIA H100"} for one in range(8)],
        "traceEvents": events,
    }
    path.write_text(json.dumps(document))
    return path


@pytest.mark.slow
def test_ranks_of_one_machine_are_one_import_and_keep_the_numbers_of_their_gpus(tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    for number in (0, 1):
        rank(
            folder / f"rank{number}.json", number, device=number, late_us=4000 * number, off_ns=1000 * number
        )
    (folder / "README.md").write_text("no trace")
    assert typed("import", str(folder), "-o", str(tmp_path / "job.msgpack")) == 0
    report = gputop.explain(tmp_path / "job.msgpack")
    assert [gpu.label for gpu in report.gpus] == ["GPU 0", "GPU 1"]
    with gputop.open_session(tmp_path / "job.msgpack") as session:
        evidence = evidence_of(session)
        told = [(gpu["index"], gpu["name"]) for gpu in evidence.gpus[-1].data["gpus"]]
        assert told == [(0, "NVIDIA H100"), (1, "NVIDIA H100")]
        assert set(evidence.facts.processes) == {500, 501}
        kernels = evidence.activities.of("kernel")
        ends = {
            device: kernels["end"][(kernels["device"] == device) & (kernels["stream"] == 20)]
            for device in (0, 1)
        }
        assert abs(ends[0] + 1000 - ends[1]).max() <= 2  # the same moments but for the clock that is ahead
        assert len(evidence.lost[0]) == 0


@pytest.mark.slow
def test_ranks_of_two_machines_are_aligned_by_their_collectives(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Both have a GPU 0; one clock is 3 ms ahead."""
    paths = []
    for number in (0, 1):
        trace = rank(
            tmp_path / f"{number}.json", number, device=0, late_us=2000 * number, off_ns=3_000_000 * number
        )
        paths.append(str(tmp_path / f"{number}.msgpack"))
        assert typed("import", str(trace), "-o", paths[-1]) == 0
    assert typed("merge", *paths, "-o", str(tmp_path / "job.msgpack")) == 0
    assert f"by {STEPS} collectives that both saw" in capfd.readouterr().err
    with gputop.open_session(tmp_path / "job.msgpack") as session:
        evidence = evidence_of(session)
        kernels = evidence.activities.of("kernel")
        ends = [kernels["end"][(kernels["device"] == one) & (kernels["stream"] == 20)] for one in (0, 100)]
        assert abs(ends[0] - ends[1]).max() < 1_000_000


def test_fleet_finds_the_rank_that_comes_late(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    needed("duckdb")
    needed("pyarrow")
    (tmp_path / "recordings").mkdir()
    for number in (0, 1):
        trace = rank(tmp_path / f"{number}.json", number, device=number, late_us=4000 * number)
        assert typed("import", str(trace), "-o", str(tmp_path / "recordings" / f"{number}.msgpack")) == 0
    lake = str(tmp_path / "lake")
    assert typed("fleet", "ingest", str(tmp_path / "recordings"), "--into", lake) == 0
    capfd.readouterr()
    assert typed("fleet", "stragglers", lake, "--json") == 0
    told = json.loads(capfd.readouterr().out)
    (row,) = [dict(zip(told["columns"], one, strict=True)) for one in told["rows"]]
    assert (row["seen"], row["ranks"], row["late_rank"], row["collectives"]) == (2, 2, 1, STEPS)
    assert 3.9 < row["late_ms"] < 4.1

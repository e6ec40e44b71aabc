"""``--inside`` on programs that were not made for it: as the simulator's trace has them, whatever they do."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import gputop
from gputop.simgpu.trace import read_trace
from tests.ebpf.inside_evidence import FLAGS, evidence_of
from tests.ebpf.recording import Recorded, Workshop
from tests.stories import installed

pytestmark = [pytest.mark.ebpf, pytest.mark.timeout(300)]
PROGRAMS = Path(__file__).resolve().parent / "programs"
PROGRAM, COMPILED = str(PROGRAMS / "unforeseen.py"), PROGRAMS / "compiled.py"
WORK = {"kernel", "h2d", "d2h", "d2d", "memset", "comm", "comm_wait"}
KINDS = {"kernel": "kernel", "h2d": "copy", "d2h": "copy", "d2d": "copy", "memset": "fill"}
WHOLE = (
    "pipelined_streams",
    "graphs_beside_kernels",
    "pool_of_threads",
    "memsets",
    "managed_memory",
    "timed_by_events",
    "two_gpus",
    "resets_the_device",
    "driver_contexts",
    "bursts_and_pauses",
    "allocates_in_streams",
    "starts_others_by_a_shell",
    "collectives",
)
TORN = {
    "forks_before_and_after": 0,
    "executes_without_work_left": 0,
    "is_killed_with_work_queued": 128 + signal.SIGKILL,
    "crashes_in_a_thread": 128 + signal.SIGSEGV,
}


def recorded(folder: Path, what: str, status: int = 0, lines: str = "off") -> tuple[Recorded, Path]:
    trace = folder / "trace"
    env = {"SIMGPU_TRACE": str(trace), "SIMGPU_DEVICES": "2", "SIMGPU_CUPTI_DRIFT_PPM": "20"}
    workshop = Workshop(folder, lines=lines)
    return workshop.record(sys.executable, PROGRAM, what, flags=FLAGS, env=env, status=status), trace


@pytest.mark.parametrize("what", WHOLE)
@pytest.mark.mainly("starts_others_by_a_shell")
def test_idle_time_is_exact_and_each_row_has_its_call(tmp_path: Path, what: str) -> None:
    run, trace = recorded(tmp_path, what)
    evidence, problems = evidence_of(run.path)
    assert problems == []
    assert run.lost == 0
    assert not len(evidence.lost[0])
    report, truth = gputop.explain(run.path), read_trace(trace)
    assert report.exact is not None
    assert report.exact.error_ns is not None
    real = truth.of(kinds=WORK)
    rows, texts = evidence.activities.of("kernel", "copy", "fill", "graph"), evidence.activities.texts
    assert (rows["call_tid"] >= 0).all(), "a call is known of each"
    if "graphs" not in what and what != "collectives":
        kinds = Counter(KINDS[one] for one in real["kind"].tolist())
        assert Counter(texts[one] for one in rows["what"]) == kinds
    for device in np.unique(real["device"]).tolist():
        mine = real[real["device"] == device]
        span = int(mine["start"].min()), int(mine["end"].max())
        gaps = truth.idle_intervals(None, device, *span, work_from="start", kinds=WORK)
        (gpu,) = (one for one in report.gpus if one.label == f"GPU {device}")
        off = 500 + 4 * report.exact.error_ns * len(gaps)
        assert gpu.idle.lower == gpu.idle.upper == pytest.approx((gaps[:, 1] - gaps[:, 0]).sum(), abs=off)
        assert gpu.account.unknown_ns == 0


@pytest.mark.parametrize("what", TORN)
@pytest.mark.mainly("forks_before_and_after")
def test_where_a_program_ends_oddly_the_bounds_hold_and_what_is_missing_is_unknown(
    tmp_path: Path, what: str
) -> None:
    run, trace = recorded(tmp_path, what, TORN[what])
    evidence, problems = evidence_of(run.path)
    assert problems == []
    report, truth = gputop.explain(run.path), read_trace(trace)
    (gpu,) = report.gpus
    rows = evidence.activities.of("kernel", "copy", "fill")
    span = int(rows["begin"].min()), int(rows["end"].max())
    gaps = truth.idle_intervals(None, 0, *span, work_from="start", kinds=WORK)
    idle = int((gaps[:, 1] - gaps[:, 0]).sum())
    off = 500 + 200 * len(gaps)
    assert gpu.idle.lower - off <= idle <= gpu.idle.upper + off
    real = truth.of(kinds=WORK)
    missing = len(real) - len(rows)
    assert missing >= 0
    lost = sum(
        int(((real["end"] >= begin) & (real["start"] <= end)).sum())
        for begin, end in zip(*(column.tolist() for column in evidence.lost), strict=True)
    )
    assert missing <= lost, "what is missing lies in time that is called unknown"


@pytest.mark.long
def test_kernels_by_line_are_those_of_the_trace(tmp_path: Path) -> None:
    run, trace = recorded(tmp_path, "two_lines", lines="all")
    (said,) = run.said
    real = np.sort(read_trace(trace).of(kinds={"kernel"}), order="enqueue")
    took: Counter[str] = Counter()
    for name, row in zip(said["order"], real, strict=True):
        took[name] += int(row["end"] - row["start"])
    exact = gputop.explain(run.path).exact
    assert exact is not None
    (kernel,) = exact.kernels
    assert kernel.ns == pytest.approx(sum(took.values()), rel=1e-4)
    found = {line.function.rpartition(".")[2]: ns for line, ns in kernel.lines.items()}
    assert found == pytest.approx(dict(took), rel=1e-3)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_of_a_model_that_torch_compiles_idle_time_and_rows_are_the_traces(
    tmp_path: Path, backend: str
) -> None:
    """Inductor needs Triton, which compiles for no simulated GPU."""
    torch = installed.wheel()
    if torch is None:
        pytest.skip("no PyTorch with CUDA: make torch-cuda")
    trace, python = tmp_path / "trace", str(torch / "bin" / "python")
    run = Workshop(tmp_path, lines="off").record(
        python, str(COMPILED), backend, "40", flags=FLAGS, env={"SIMGPU_TRACE": str(trace)}
    )
    evidence, problems = evidence_of(run.path)
    assert problems == []
    truth, rows = read_trace(trace), evidence.activities.of("kernel", "copy", "fill")
    real = truth.of(kinds=WORK)
    assert len(rows) == len(real) > 400
    assert (rows["call_tid"] >= 0).all()
    gaps = truth.idle_intervals(
        None, 0, int(real["start"].min()), int(real["end"].max()), work_from="start", kinds=WORK
    )
    (gpu,) = gputop.explain(run.path).gpus
    idle = (gaps[:, 1] - gaps[:, 0]).sum()
    assert gpu.idle.lower == gpu.idle.upper == pytest.approx(idle, abs=500 + 200 * len(gaps))

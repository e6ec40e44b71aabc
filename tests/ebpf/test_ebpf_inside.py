"""``--inside``: what CUPTI reports is what the simulated GPU did, joined with the calls that gave it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.proofs.gaps import held_kernels
from gputop.inside.injected import VARIABLES, environment
from gputop.simgpu.trace import read_trace
from probes.activities import Table
from tests import inside
from tests.ebpf.inside_evidence import FLAGS, evidence_of
from tests.ebpf.recording import Recorded, Workshop
from tests.waiting import wait_until

pytestmark = [pytest.mark.ebpf, pytest.mark.timeout(300)]
PROGRAM = str(Path(__file__).resolve().parent / "programs" / "insides.py")
ERROR_NS = 5_000  # of both clocks, on a machine whose clock_gettime may be interrupted
long = pytest.mark.long


def record(folder: Path, what: str, status: int = 0, **env: str) -> tuple[Recorded, Path]:
    trace = folder / "trace"
    env = {"SIMGPU_TRACE": str(trace), "SIMGPU_CUPTI_DRIFT_PPM": "20"} | env
    run = Workshop(folder).record(sys.executable, PROGRAM, what, flags=FLAGS, env=env, status=status)
    return run, trace


def ran(evidence: Evidence) -> Table:
    """What the GPU did by CUPTI, in order."""
    rows = evidence.activities.of("kernel", "copy", "fill", "graph")
    ordered: Table = rows[np.lexsort((rows["end"], rows["begin"]))]
    return ordered


def assert_as_traced(evidence: Evidence, trace: Path, until_ns: int | None = None) -> None:
    """Each row is one of the trace and each of the trace is there; its call was recorded."""
    rows = ran(evidence)
    real = np.sort(
        read_trace(trace).of(kinds={"kernel", "h2d", "d2h", "d2d", "memset"}), order=["start", "end"]
    )
    if until_ns is not None:
        real, rows = real[real["end"] < until_ns], rows[rows["end"] < until_ns]
    assert len(rows) == len(real) > 0
    assert np.abs(rows["begin"] - real["start"]).max() <= ERROR_NS
    assert np.abs(rows["end"] - real["end"]).max() <= ERROR_NS
    assert (rows["pid"] == real["pid"]).all()
    assert (rows["device"] == real["device"]).all()
    calls = evidence.calls
    known = set(zip(calls["tid"].tolist(), calls["begin"].tolist(), strict=True))
    given = list(zip(rows["call_tid"].tolist(), rows["call_begin"].tolist(), strict=True))
    assert set(given) <= known
    # what a call gave was queued after the call began
    assert (real["enqueue"] - rows["call_begin"] >= 0).all()


@pytest.mark.parametrize(
    "what",
    [
        "work",
        "graphs",
        *(pytest.param(one, marks=long) for one in ("threads", "forks", "starts")),
    ],
)
def test_what_cupti_reports_is_what_the_gpu_did(tmp_path: Path, what: str) -> None:
    run, trace = record(tmp_path, what)
    evidence, problems = evidence_of(run.path)
    assert problems == []
    assert run.lost == 0
    assert_as_traced(evidence, trace)
    assert not len(evidence.lost[0])


@pytest.mark.parametrize(
    "version", ["11.8", pytest.param("12.1", marks=long), pytest.param("12.8", marks=long)]
)
def test_records_of_older_versions_are_read_as_well(tmp_path: Path, version: str) -> None:
    run, trace = record(tmp_path, "work", SIMGPU_CUPTI=version, SIMGPU_CUPTI_LATE_MS="120")
    assert_as_traced(evidence_of(run.path)[0], trace)


@long
def test_on_two_gpus_rows_have_the_numbers_of_the_machine(tmp_path: Path) -> None:
    run, trace = record(tmp_path, "work", SIMGPU_DEVICES="2", CUDA_VISIBLE_DEVICES="1")
    evidence, _ = evidence_of(run.path)
    assert set(ran(evidence)["device"].tolist()) == {1}
    assert_as_traced(evidence, trace)


def test_what_cupti_has_no_room_for_is_reported_as_lost(tmp_path: Path) -> None:
    run, trace = record(tmp_path, "work", SIMGPU_CUPTI_MOST="1024", SIMGPU_CUPTI_LATE_MS="600", STEPS="400")
    evidence, _ = evidence_of(run.path)
    real = read_trace(trace).of(kinds={"kernel", "h2d", "d2h", "d2d", "memset"})
    missing = len(real) - len(ran(evidence))
    assert missing == 0 or len(evidence.lost[0])


def test_what_a_program_had_not_handed_over_before_exec_is_not_known(tmp_path: Path) -> None:
    run, trace = record(tmp_path, "executes", STEPS="400")
    evidence, _ = evidence_of(run.path)
    begin, end = evidence.lost[0][0], evidence.lost[1][-1]
    real = read_trace(trace).of(kinds={"kernel", "h2d", "d2h", "d2d", "memset"})
    known = ran(evidence)
    inside = ((real["end"] >= begin) & (real["start"] <= end)).sum()
    assert 0 < len(real) - len(known) <= inside
    assert (known["end"] > end).any()


@pytest.mark.parametrize("what", ["killed", pytest.param("crashes", marks=long)])
def test_of_a_program_that_is_killed_the_end_is_not_known(tmp_path: Path, what: str) -> None:
    status = 128 + (signal.SIGKILL if what == "killed" else signal.SIGSEGV)
    run, trace = record(tmp_path, what, status, STEPS="400")
    evidence, _ = evidence_of(run.path)
    (begin,), (end,) = evidence.lost
    real = read_trace(trace).of(kinds={"kernel", "h2d", "d2h", "d2d", "memset"})
    assert begin < real["end"].max() <= end
    assert_as_traced(evidence, trace, int(begin))


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("subscribe:39", "another CUPTI client has it"),
        ("enable:33", "the GPU is virtual"),
        ("enable:41", "the GPU is in confidential mode"),
        pytest.param("enable:35", "NVreg_RestrictProfilingToAdminUsers", marks=long),
        pytest.param("enable:999", "cuptiActivityEnable failed with error 999", marks=long),
        pytest.param("version:12", "has version 12: CUDA 11.8 or later has 18", marks=long),
    ],
)
def test_a_refusal_is_one_sentence_and_the_program_runs_on(tmp_path: Path, fault: str, sentence: str) -> None:
    run, trace = record(tmp_path, "work", SIMGPU_CUPTI_FAULT=fault)
    evidence, problems = evidence_of(run.path)
    (problem,) = problems
    assert sentence in problem
    assert "starts without --inside's exact kernels" in problem
    assert not len(ran(evidence))
    assert len(read_trace(trace).rows) > 100


@pytest.mark.parametrize("steps", ["3", "60"])
def test_under_mps_exact_kernels_are_given_up_in_a_sentence(tmp_path: Path, steps: str) -> None:
    run, trace = record(tmp_path, "work", SIMGPU_MPS="1", STEPS=steps)
    evidence, problems = evidence_of(run.path)
    (problem,) = problems
    assert "goes on without --inside's exact kernels: its GPU is shared by MPS" in problem
    assert not held_kernels(evidence)
    assert len(read_trace(trace).of(kinds={"kernel"})) == 4 * int(steps), "the program runs on"


def test_a_profiler_that_comes_later_gets_cupti(tmp_path: Path) -> None:
    run, _trace = record(tmp_path, "profiled")
    evidence, problems = evidence_of(run.path)
    assert run.said == [{"subscribe": 0}]
    (problem,) = problems
    assert "goes on without --inside's exact kernels: another CUPTI client, such as torch.profiler" in problem
    assert len(ran(evidence))


def test_when_gputop_is_killed_the_library_goes_quiet(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    log = tmp_path / "kernels"
    recorder = workshop.start(
        ["--", sys.executable, PROGRAM, "long_lived"], FLAGS, {"SIMGPU_KERNELS": str(log)}
    )
    wait_until(lambda: log.exists() and log.stat().st_size > 0, "the program works")
    pid = int(log.read_text().split()[0])
    try:
        wait_until(lambda: "gputop-inside" in names_of_threads(pid), "its thread works")
        os.kill(recorder.pid, signal.SIGKILL)
        recorder.wait()
        wait_until(lambda: "gputop-inside" not in names_of_threads(pid), "its thread ends")
        size = log.stat().st_size
        wait_until(lambda: log.stat().st_size > size, "the program works on")
    finally:
        os.kill(pid, signal.SIGKILL)


def names_of_threads(pid: int) -> set[str]:
    return {(task / "comm").read_text().strip() for task in Path(f"/proc/{pid}/task").iterdir()}


def test_without_a_probe_the_library_does_nothing(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    made, library = environment(workshop.environment())
    # a gputop that runs beside traces the library itself, and whoever has loaded it
    own = str(shutil.copy(library, tmp_path))
    made |= dict.fromkeys(VARIABLES, own)
    body = "from cuda import Cuda; import os; Cuda().Free(None)\nfor one in os.listdir('/proc/self/task'):\n"
    body += "    print(open(f'/proc/self/task/{one}/comm').read())\nprint(open('/proc/self/maps').read())\n"
    done = subprocess.run([sys.executable, "-c", body], env=made, capture_output=True, text=True, check=True)
    assert own in done.stdout, "it is loaded"
    assert "gputop-inside\n" not in done.stdout


def test_the_explanation_proves_all_idle_time(tmp_path: Path) -> None:
    run, trace = record(tmp_path, "work", STEPS="100")
    report = json.loads(inside.run("explain", str(run.path), "--json").stdout)
    real = read_trace(trace)
    first, last = int(real.rows["start"].min()), int(real.rows["end"].max())
    gaps = real.idle_intervals(None, 0, first, last, work_from="start")
    idle = report["gpu_idle_ns"]
    assert (
        idle["lower"]
        == idle["upper"]
        == pytest.approx((gaps[:, 1] - gaps[:, 0]).sum(), abs=ERROR_NS * len(gaps))
    )
    assert report["coverage"]
    levels = {finding["level"] for finding in report["findings"] if finding["kind"] == "idle"}
    assert levels == {"proved"}


@long
def test_each_named_kernels_time_is_that_of_the_trace(tmp_path: Path) -> None:
    kernels, trace = tmp_path / "kernels", tmp_path / "trace"
    program = Path(PROGRAM).with_name("mixtures.py")
    env = {"SIMGPU_KERNELS": str(kernels), "SIMGPU_TRACE": str(trace)}
    run = Workshop(tmp_path, lines="slow").record(
        sys.executable, str(program), "5", "60", "same", flags=FLAGS, env=env
    )
    names = [line.split(" ")[1] for line in kernels.read_text().splitlines()]
    rows = read_trace(trace).of(kinds={"kernel"}).tolist()
    took: Counter[str] = Counter()
    for name, (_pid, _device, _stream, start, end, *_rest) in zip(names, rows, strict=True):
        took[name] += end - start
    told_rows = json.loads(inside.run("explain", str(run.path), "--json").stdout)["kernels"]
    times = {row["name"]: row["gpu_ns"]["estimate"] for row in told_rows}
    assert times == pytest.approx(dict(took), rel=1e-3)


def test_beside_a_process_that_refuses_nothing_is_reported_of_kernels(tmp_path: Path) -> None:
    """What the one gave is missing: idle time is proved by calls, as without ``--inside``."""
    work = f"{sys.executable} {PROGRAM} work"
    half = f"SIMGPU_CUPTI_FAULT=subscribe:39 {work} & {work}; wait"
    trace = tmp_path / "trace"
    run = Workshop(tmp_path).record("sh", "-c", half, flags=FLAGS, env={"SIMGPU_TRACE": str(trace)})
    evidence, problems = evidence_of(run.path)
    assert len(problems) == 1
    assert len(ran(evidence))
    assert not held_kernels(evidence)


def test_gaps_between_launches_are_those_of_the_launches_not_of_the_read_at_the_end(tmp_path: Path) -> None:
    run, _trace = record(tmp_path, "eager")
    report = json.loads(inside.run("explain", str(run.path), "--json").stdout)
    causes = {one["cause"]: one["loss_ns"]["lower"] for one in report["findings"]}
    assert "C03" not in causes
    assert sum(causes.get(cause, 0) for cause in ("C06", "C28", "C13")) > 0.5 * sum(causes.values()) > 0

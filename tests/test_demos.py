"""The demos run, and make the CUDA calls that PyTorch makes for the lines of Python that they stand for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from gputop.analysis.answer.report import Report
from gputop.api.functions import explain
from gputop.demo import loaders
from gputop.demo.stories import STORIES
from gputop.engine.calls.stack_table import Line
from gputop.engine.session_totals import collect
from gputop.simgpu import library_build, read_log
from replay.reader import SessionReader
from tests.waiting import HANGS_S

COPY, WAIT, RECORD = "cudaMemcpyAsync", "cudaStreamSynchronize", "cudaEventRecord"
# calls a step: copies, waits for a stream, events recorded, waits for an event
CALLS = {
    "numpy-sync": (10, 9, 1, 1),  # 8 rows .cpu(), the mask .to('cuda'), the loss a step later
    "numpy-sync-fixed": (1, 0, 1, 1),
    "dataloader": (2, 2, 0, 0),  # .to('cuda') and .item()
    "dataloader-direct": (2, 2, 0, 0),
    "dataloader-workers": (2, 2, 0, 0),
    "dataloader-fixed": (2, 1, 1, 0),  # .to('cuda', non_blocking=True) from pinned memory and .item()
    "redundant-to-device": (161, 160, 1, 1),
    "redundant-to-device-fixed": (1, 0, 1, 1),
}


def run_demo(name: str, tmp_path: Path) -> tuple[int, Counter[str]]:
    """(steps, calls of the process that uses the GPU)."""
    library_build.ensure_built()
    log = tmp_path / "log.json"
    own = {"SIMGPU_LOG": str(log), "SIMGPU_STATE": str(tmp_path / "state")}
    done = subprocess.run(
        [sys.executable, "-m", "gputop.demo", name, "0.2"],
        env=library_build.environment(os.environ) | own,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=True,
    )
    steps = re.search(r"(\d+) steps in", done.stdout)
    assert steps is not None
    (process,) = (process for process in read_log(log) if process.calls.get("cudaLaunchKernel"))
    return int(steps[1]), Counter(process.calls)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.mainly("dataloader-workers")
def test_a_demo_makes_the_calls_of_its_python(name: str, tmp_path: Path) -> None:
    steps, calls = run_demo(name, tmp_path)
    assert steps >= 1
    copies, waits, records, events = CALLS[name]
    assert (calls[COPY], calls[WAIT], calls[RECORD]) == (copies * steps, waits * steps, records * steps)
    assert calls["cudaEventSynchronize"] == (events * (steps - 1) if events else 0)
    assert calls["cudaDeviceSynchronize"] == 1


@pytest.mark.parametrize("name", sorted(set(STORIES) - set(CALLS)))
def test_the_other_demos_run(name: str, tmp_path: Path) -> None:
    steps, _calls = run_demo(name, tmp_path)
    assert steps >= 1


def test_the_list_has_a_line_for_each() -> None:
    listing = subprocess.run(
        [sys.executable, "-m", "gputop", "demo"], capture_output=True, text=True, check=True
    ).stdout
    assert [line.split()[0] for line in listing.splitlines()] == list(STORIES)
    assert all(story.title.endswith(".") and "\n" not in story.title for story in STORIES.values())


def recorded(name: str, seconds: float, tmp_path: Path) -> Report:
    """What is reported of a demo that is recorded now."""
    file = tmp_path / "now.gputop"
    file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "gputop"]
    subprocess.run(
        [
            *command,
            "record",
            "-o",
            str(file),
            "--simgpu",
            "--",
            *command,
            "demo",
            name,
            "--alone",
            "--duration",
            str(seconds),
        ],
        env=os.environ | {"SIMGPU_STATE": str(tmp_path / "state")},
        capture_output=True,
        timeout=HANGS_S,
        check=True,
    )
    return explain(file)


@pytest.mark.ebpf
@pytest.mark.timed
def test_a_demo_that_is_recorded_now_is_explained(tmp_path: Path) -> None:
    for seconds in (1, 3, 6):  # a busy machine may take the CPU from the loop as well, and leave it few steps
        report = recorded("numpy-sync", seconds, tmp_path)
        if "C02" in {finding.cause for finding in report.findings[:2]}:
            break
    assert "C02" in {finding.cause for finding in report.findings[:2]}
    assert report.steps is not None


@pytest.mark.ebpf
@pytest.mark.timed
@pytest.mark.long
def test_who_waits_for_the_loader_is_at_the_next_batch_and_a_worker_in_its_samples(tmp_path: Path) -> None:
    text = Path(loaders.__file__).read_text().splitlines()
    asks = next(number for number, line in enumerate(text, 1) if "next(batches)" in line)
    report = recorded("dataloader-workers", 2.5, tmp_path)
    told = [one for one in (*report.findings, *report.events) if one.cause in ("C08", "C09")]
    for one in told:
        assert one.chain[2].line == Line(loaders.__file__, asks, "_train")
        hot = one.chain[-1].line
        # who gets no CPU is at no line, and a short time has few looks
        if one.cause == "C08" and one in report.findings and one.loss.lower > 1_000_000_000:
            assert hot is not None
        if hot is not None:
            assert hot.file == loaders.__file__
            assert hot.line != asks
    # a busy machine may be reported as the cause instead; the wait is there all the same
    reader = SessionReader(tmp_path / "now.gputop")
    stats = collect(reader.header, reader.items())
    reader.close()
    (trainer,) = (row for row in stats.processes if any(call.api == COPY for call in row.calls))
    waits = {row.line.line: row.sum_ns for row in trainer.waits if row.line.function == "_train"}
    assert max(waits, key=lambda line: waits[line]) == asks
    assert waits[asks] > 100_000_000

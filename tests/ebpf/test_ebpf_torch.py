"""PyTorch's real DataLoader: nearly all of the idle time is explained, by its true cause and true line.

Needs a CPU build of torch, which ``make torch`` installs beside the repository: it is no dependency, so these
tests are skipped where it is not there, in CI too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import inside
from tests.ebpf.recording import PROGRAMS, Recorded, Workshop
from tests.waiting import wait_until

pytestmark = [pytest.mark.ebpf, pytest.mark.xdist_group("faults")]
ROOT = Path(__file__).resolve().parents[2]
long = partial(pytest.param, marks=pytest.mark.long)
UNEXPLAINED = 0.02
PROGRAM = PROGRAMS / "torch_loader.py"
NEXT = next(
    row for row, text in enumerate(PROGRAM.read_text().splitlines(), 1) if "for step, batch in" in text
)
WAITS = {"C08", "C09", "C10", "C11", "C16"}  # for others: the loop waits for the next batch
CLEAR = 2  # by this factor the one has to be larger than the other, so that only it can come first


@pytest.fixture(scope="module")
def torch_python() -> str:
    """The interpreter that has torch."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("GPUTOP_TORCH") or cache / "gputop-tests" / "torch-2.13.0")
    if not (folder / "complete").exists():
        pytest.skip(f"no CPU build of torch in {folder}: make torch")
    return str(folder / "bin" / "python")


@contextmanager
def hogs(count: int) -> Iterator[None]:
    """Processes that compute all the time, of nobody's family."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for hog in started:
            hog.kill()
            hog.wait()


def record(python: str, folder: Path, workers: int, memory: str, busy: int) -> tuple[Recorded, Any]:
    """(the recording, what ``gputop explain`` says of it)."""
    workshop = Workshop(folder, lines="slow")
    workshop.env["PYTHONPATH"] += os.pathsep + str(ROOT)
    recorder = workshop.start(["--", python, str(PROGRAM), str(workers), memory])
    wait_until(workshop.said, "the loader's first batch")
    with hogs(busy):
        run = workshop.finish(recorder)
    assert run.lost == 0
    told = inside.run("explain", str(run.path), "--json")
    assert told.returncode == 3, told.stderr
    return run, json.loads(told.stdout)


def true_causes(run: Recorded, workers: int, idle_ns: int) -> set[str]:
    """What may come first, by the kernel's own account of who ran and who waited for a CPU."""
    _, said = run.said
    (trained, preempted), (computed, starved) = said["trainer"], said["workers"]
    # of several workers the trainer waits for one at a time: their sums tell nothing of its own preemptions
    # who has no CPU does not come back from its wait in time either
    no_cpu, work = {"C13", "C15"} | ({"C09"} if workers else set()), {"C08"} if workers else {"C12"}
    if workers > 1:  # one waits for the CPU behind the others, too: that is their own computing
        no_cpu = no_cpu | {"C08"}
    if 2 * CLEAR * trained > idle_ns:  # collating and pinning keep the trainer itself busy as well
        work = work | {"C12"}
    busy, waited = (computed, starved) if workers else (trained, preempted)
    print(f"{busy / 1e6:.0f} ms on a CPU, {waited / 1e6:.0f} ms waiting for one")
    if busy > CLEAR * waited:
        return work
    return no_cpu if waited > CLEAR * busy else work | no_cpu


@pytest.mark.parametrize(
    ("workers", "memory", "busy"),
    [
        (2, "pageable", 0),
        long(0, "pageable", 0),
        long(4, "pinned", 0),
        long(0, "pageable", 3),
        long(2, "pinned", 3),
        long(4, "pageable", 3),
    ],
)
@pytest.mark.long
def test_the_idle_time_is_explained_by_its_true_cause(
    torch_python: str, tmp_path: Path, workers: int, memory: str, busy: int
) -> None:
    run, report = record(torch_python, tmp_path, workers, memory, busy)
    idle = report["gpu_idle_ns"]["lower"]
    unexplained = report["unexplained_ns"] / idle
    causes = [finding["cause"] for finding in report["findings"] if finding["kind"] == "idle"]
    print(f"{idle / 1e6:.0f} ms idle, {unexplained:.2%} unexplained; {causes}")
    assert idle > 100e6
    assert unexplained <= UNEXPLAINED
    assert causes[0] in true_causes(run, workers, idle)
    waits = [finding for finding in report["findings"] if finding["cause"] in WAITS]
    for finding in waits:
        assert (finding["line"]["file"], finding["line"]["line"]) == (str(PROGRAM), NEXT)
        assert finding["line"] in [link["line"] for link in finding["chain"] if link["pid"] == finding["pid"]]
    # the workers' code is PyTorch's own here; the line of the program that they come from is what there is
    computing = [finding["chain"][-1]["line"] for finding in waits if finding["cause"] == "C08"]
    assert all(line is None or line["file"] == str(PROGRAM) for line in computing)

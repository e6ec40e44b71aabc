"""Whom ``--pid`` probes: the chosen process alone, until it starts another; each call counts, and once."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import pytest

from probes.samples import text_of
from tests.ebpf.bpf_objects import others_probe
from tests.ebpf.growing import marks, samples
from tests.ebpf.jobs import running
from tests.ebpf.recording import PROGRAMS, Recorded, Workshop, compile_program
from tests.waiting import HANGS_S, until_good, wait_until

pytestmark = pytest.mark.ebpf

LONG_NS = 200_000_000
BREAKPOINT = "cc"  # in hexadecimal


class Bystander:
    """A program that nobody watches, with the same libraries open."""

    def __init__(self, workshop: Workshop) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAMS / "looks.py")],
            env=workshop.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def code(self) -> str:
        """How its ``cudaLaunchKernel`` begins."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def close(self) -> None:
        self._process.communicate(timeout=HANGS_S)


@contextmanager
def beside(workshop: Workshop) -> Iterator[Bystander]:
    bystander = Bystander(workshop)
    try:
        yield bystander
    finally:
        bystander.close()


def told(file: Path, kind: str) -> list[str]:
    return [text_of(one) for one in samples(file) if one.kind == kind]


def waits_of(run: Recorded, pid: int) -> dict[int, list[int]]:
    """Thread -> how long each of its waits was, in ns."""
    names, records = run.calls()
    records = records[(records["op"] == names.index("cudaStreamSynchronize")) & (records["pid"] == pid)]
    return {tid: records[records["tid"] == tid]["duration"].tolist() for tid in set(records["tid"].tolist())}


@pytest.mark.timed  # beside it no other test's gputop runs, which might probe the bystander, too
def test_a_bystander_meets_no_breakpoint_until_another_program_is_started(tmp_path: Path) -> None:
    """Each call is reported in its thread; a slow machine makes a wait too long or, begun late, too short."""

    def astray() -> int:
        """How many waits are not as long as those of their thread are."""
        return waits_astray(Workshop(Path(tempfile.mkdtemp(dir=tmp_path)), "multi", own_libraries=True))

    assert until_good(astray, lambda count: count == 0) == 0


def waits_astray(workshop: Workshop) -> int:
    """Asserts all of it but the lengths of the waits, and counts those that are not what they should be."""
    folder, file = workshop.directory, workshop.file
    program = compile_program("begets.c", folder)
    with beside(workshop) as bystander, running(workshop, program, folder) as job:
        before = bystander.code()
        if before.startswith(BREAKPOINT):
            pytest.skip("somebody else's gputop probes every program")
        recorder = workshop.start(["--pid", str(job.pid)])
        wait_until(lambda: marks(file) > 1, "the recording")
        assert any("only process" in text for text in told(file, "note"))
        (folder / "begin").touch()
        seen = marks(file)
        wait_until(lambda: marks(file) > seen + 2, "calls")
        if (code := bystander.code()) != before and others_probe(recorder.pid):
            pytest.skip("somebody else's gputop probes the bystander")
        assert code == before, "it pays nothing"
        (folder / "beget").touch()
        wait_until(lambda: any("every program's" in text for text in told(file, "note")), "the others")
        assert bystander.code() != before, "now it does"
        wait_until(lambda: any("may be missing" in text for text in told(file, "problem")), "the gap")
        (folder / "go").touch()
        wait_until(lambda: len(workshop.said()) == 3, "the other program's calls")
        seen = marks(file)
        wait_until(lambda: marks(file) > seen + 2, "links that are no longer heard to go")
        (folder / "stop").touch()
    run = workshop.finish(recorder)
    child, own = workshop.said()[2:]
    assert run.lost == 0
    calls = own["short"] + own["long"]
    assert calls > 100
    counts = run.counts(job.pid)
    assert counts["cudaLaunchKernel"] == counts["cudaStreamSynchronize"] == calls
    assert counts["cuLaunchKernel"] == calls
    assert run.counts(child["pid"])["cudaLaunchKernel"] == child["made"]
    waits = waits_of(run, job.pid)
    short, long = sorted(waits.values(), key=median)
    assert (len(short), len(long)) == (own["short"], own["long"]), "also the one under way"
    return sum(ns > 0.9 * LONG_NS for ns in short) + sum(ns <= 0.9 * LONG_NS for ns in long)

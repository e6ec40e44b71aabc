"""SIGSTOP and a debugger on a watched program: its calls stay counted, and the time is not blamed on it."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from probes.schema import STOPPED_STATES, Kind
from tests import inside
from tests.ebpf.growing import marks
from tests.ebpf.recording import Workshop
from tests.observed_demo import SLEEPS
from tests.waiting import wait_until

pytestmark = pytest.mark.ebpf

ATTACH, DETACH = 16, 17  # requests of ptrace(2)
STOPPED_S = 1.0


def state(pid: int) -> str:
    """Of proc(5)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def by_signal(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: state(pid) == "T", "the program to stop: it may have to wait for a processor")
    time.sleep(STOPPED_S)
    os.kill(pid, signal.SIGCONT)


def by_debugger(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.ptrace(ATTACH, pid, None, None) == 0, os.strerror(ctypes.get_errno())
    os.waitpid(pid, 0)
    time.sleep(STOPPED_S)
    assert libc.ptrace(DETACH, pid, None, None) == 0, os.strerror(ctypes.get_errno())


def test_a_program_that_is_stopped_by_a_signal_or_by_a_debugger_is_reported_to_be(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    recorder = workshop.start(["--", sys.executable, "-m", "gputop.demo", "healthy"], env=SLEEPS)
    wait_until(lambda: workshop.file.exists() and marks(workshop.file) >= 4, "the program to run")
    program = ["pgrep", "-P", str(recorder.pid), "-f", f"^{sys.executable} -m gputop.demo"]

    def found() -> str:
        return subprocess.run(program, capture_output=True, text=True, check=False).stdout

    wait_until(found, "the program to start")
    pid = int(found())
    for stop in (by_signal, by_debugger):
        stop(pid)
        seen = marks(workshop.file)
        wait_until(lambda: marks(workshop.file) > seen + 1, "the program to run again")  # noqa: B023
    os.kill(pid, signal.SIGINT)
    run = workshop.finish(recorder, status=130)
    assert run.lost == 0
    assert run.counts(pid)["cuLaunchKernel"] == workshop.simgpu_counts(pid)["cuLaunchKernel"] > 1000
    away = run.records(Kind.OFFCPU)
    stays = away[(away["tid"] == pid) & (away["duration"] > 0.9 * STOPPED_S * 1e9)]
    # others may keep it away as long
    assert np.count_nonzero(stays["ret"] & STOPPED_STATES) == 2
    done = inside.run("explain", str(run.path), "--json")
    report = json.loads(done.stdout)
    assert not [finding for finding in report["findings"] if finding["cause"] == "C17"]
    assert "memory page" not in done.stdout

"""A program whose library lies on a file system that answers no more keeps gputop from nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.simgpu import environment
from probes.source import FRAMES, PROBLEM
from tests import hanging_files
from tests.ebpf.growing import has, samples
from tests.ebpf.recording import Workshop, library
from tests.waiting import wait_until

pytestmark = pytest.mark.ebpf

RUNTIME = "libcudart.so.12"
HOLDS = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
"""
CALLS = """
import ctypes, os, sys, time
print("ready", flush=True)
cuda = ctypes.CDLL(sys.argv[1])
def call():
    cuda.cudaDeviceSynchronize()
while os.getppid() == int(sys.argv[2]):
    call()
    time.sleep(0.001)
"""


def started(script: str, *words: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", script, *words],
        env=environment(os.environ) | {"SIMGPU_INIT_MS": "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.long
def test_the_calls_of_others_are_seen_and_what_is_left_out_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "mounted"
    folder.mkdir()
    workshop = Workshop(tmp_path, lines="slow")
    programs = []
    with hanging_files.mounted(folder, Path(library(RUNTIME)).read_bytes()) as place:
        path = place / hanging_files.ANSWERS
        try:
            programs.append(started(HOLDS, str(path)))
            hanging_files.stalled.set()
            programs.append(started(CALLS, library(RUNTIME), str(os.getpid())))
            recorder = workshop.start(["--pid", ",".join(str(one.pid) for one in programs)])
            try:
                told = (str(path), "could not be read within 2 s")
                wait_until(lambda: has(workshop.file, PROBLEM, *told), "what is left out")
                wait_until(lambda: has(workshop.file, FRAMES, "'call'"), "a line of the other program")
                problems = [one for one in samples(workshop.file) if one.kind == PROBLEM]
            finally:
                os.kill(recorder.pid, signal.SIGINT)
                run = workshop.finish(recorder)  # it ends while the file system still does not answer
        finally:
            for program in programs:
                program.kill()
                program.communicate()
    assert run.counts(programs[1].pid)["cudaDeviceSynchronize"] > 0
    assert sum(str(path) in str(one.data) for one in problems) == 1, "it is told once"

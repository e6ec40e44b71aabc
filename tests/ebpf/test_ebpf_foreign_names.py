"""Programs that are not watched have a name when they wake a watched one, also where they are gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gputop.engine.facts import Facts
from probes.schema import ALIASED, Kind
from replay.reader import SessionReader
from tests.ebpf.recording import Workshop

pytestmark = pytest.mark.ebpf
NAME = "feeder"
WRITER = (
    "import sys, time\n"
    f"open('/proc/self/comm', 'w').write({NAME!r})\n"
    "while True:\n"
    "    sys.stdout.write('x\\n'); sys.stdout.flush(); time.sleep(0.01)\n"
)
READER = "import sys\nfor line in sys.stdin: pass\n"


def test_who_wakes_a_watched_thread_has_a_name(tmp_path: Path) -> None:
    """It runs 10 times a tick for microseconds, and preempts nobody."""
    far = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER],
        stdout=subprocess.PIPE,
        preexec_fn=lambda: os.sched_setaffinity(0, far[:1]),
    )
    reader = subprocess.Popen(
        [sys.executable, "-c", READER],
        stdin=writer.stdout,
        preexec_fn=lambda: os.sched_setaffinity(0, far[1:]),
    )
    workshop = Workshop(tmp_path)
    try:
        run = workshop.finish(workshop.start(["--pid", str(reader.pid), "--duration", "2"]))
    finally:
        for one in (writer, reader):
            one.kill()
            one.wait()
    slices = run.records(Kind.OFFCPU).view(ALIASED)
    assert np.count_nonzero(slices["waker_pid"] == writer.pid) > 50
    facts = Facts()
    for item in SessionReader(workshop.file).items():
        if not isinstance(item, np.ndarray):
            facts.take(item)
    assert facts.process_title(writer.pid) == f"{NAME} ({writer.pid})"
    assert facts.thread_title(writer.pid, writer.pid) == f"{NAME} ({writer.pid})"

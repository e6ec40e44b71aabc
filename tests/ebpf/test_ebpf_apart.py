"""A test that looks at the whole machine sees its own worker's programs, and those of nobody else's tests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from gputop.simgpu import ensure_built
from tests import apart
from tests.ebpf.growing import marks
from tests.ebpf.recording import Workshop, compile_program
from tests.gputop_command import GPUTOP_APART
from tests.waiting import wait_until

pytestmark = pytest.mark.ebpf


@pytest.mark.parametrize("of_another_worker", [True, False])
@pytest.mark.long
def test_programs_of_another_worker_are_not_seen(tmp_path: Path, *, of_another_worker: bool) -> None:
    """The same program in a mount namespace that is no worker's is."""
    workshop = Workshop(tmp_path, gputop=GPUTOP_APART)
    program = str(compile_program("steady.c", tmp_path))
    copies, namespaces = tmp_path / "copies", tmp_path / "namespaces"
    shutil.copytree(ensure_built(), copies)
    namespaces.mkdir()
    stop = tmp_path / "stop"
    theirs = workshop.env | {"LD_LIBRARY_PATH": str(copies)}
    with (
        subprocess.Popen([program, str(stop)], env=workshop.environment()) as own,
        subprocess.Popen(["unshare", "--mount", program, str(stop)], env=theirs) as other,
    ):
        try:
            wait_until(lambda: len(workshop.said()) >= 2, "the programs")
            if of_another_worker:
                (namespaces / str(other.pid)).touch()
            recorder = workshop.start([], env={apart.NAMESPACES: str(namespaces)})
            wait_until(lambda: marks(workshop.file) > 2, "calls")
            os.kill(recorder.pid, signal.SIGINT)
            run = workshop.finish(recorder)
        finally:
            stop.touch()
    called = {process["pid"] for process in run.stats["processes"] if process["calls"]}
    assert own.pid in called
    assert (other.pid in called) is not of_another_worker

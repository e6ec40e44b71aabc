"""gputop starts no threads for mathematics that it does not do; what it starts has its user's environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli_support import run

RECORDING = Path(__file__).resolve().parents[1] / "recordings" / "healthy.msgpack"
ASKED = f"""
import os, sys
from gputop.__main__ import main
sys.argv = ["gputop", "inspect", {str(RECORDING)!r}]
main()
print(len(os.listdir("/proc/self/task")), os.environ.get("OPENBLAS_NUM_THREADS"), file=sys.stderr)
"""


def threads(**given: str) -> str:
    """How many threads there are after a recording was looked at, and how many its environment asks for."""
    environment = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"} | given
    done = subprocess.run(
        [sys.executable, "-I", "-c", ASKED], env=environment, capture_output=True, text=True, check=True
    )
    return done.stderr.strip()


def test_looking_at_a_recording_takes_one_thread_however_many_processors_there_are() -> None:
    assert threads() == "1 None"


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one processor has one thread anyway")
def test_who_asks_for_more_threads_has_them() -> None:
    assert threads(OPENBLAS_NUM_THREADS="2") == "2 2"


def test_a_command_has_the_environment_that_gputop_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)  # dask's workers leave it in ours
    seen = tmp_path / "seen"
    script = f"env > {seen}"
    done = run("record", "--lines", "off", "-o", str(tmp_path / "run.msgpack"), "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert "OPENBLAS_NUM_THREADS" not in seen.read_text()

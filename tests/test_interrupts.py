"""An interrupt of gputop ends the command that it started as well, by whichever way it was started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.waiting import HANGS_S

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 120


def wait_for(file: Path, text: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not (file.exists() and file.read_text() == text):
        assert time.monotonic() < deadline, f"the command never said {text}"
        time.sleep(0.02)


@pytest.mark.ebpf
@pytest.mark.parametrize(
    "words", [("explain",), ("--once", "--duration", "30"), ("stream", "--jsonl"), ("record", "-o", "x")]
)
@pytest.mark.mainly("words1")
def test_an_interrupt_of_ours_is_one_of_the_command_s(tmp_path: Path, words: tuple[str, ...]) -> None:
    """It is in no process group of ours, so nobody else tells it."""
    said = tmp_path / "said"
    waits = f"""
import time
try:
    open({str(said)!r}, "w").write("ready")
    time.sleep(60)
except KeyboardInterrupt:
    open({str(said)!r}, "w").write("interrupted")
"""
    process = subprocess.Popen(
        [sys.executable, "-m", "gputop", *words, "--lines", "off", "--", sys.executable, "-c", waits],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
    )
    try:
        wait_for(said, "ready")
        process.send_signal(signal.SIGINT)
        wait_for(said, "interrupted")
        process.wait(HANGS_S)
    finally:
        process.kill()
        process.wait()

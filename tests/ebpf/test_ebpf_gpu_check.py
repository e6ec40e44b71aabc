"""The check for real GPUs, over the simulated one: from the machine to the page, with PyTorch's loop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stories import installed
from tests.stories.shim import build

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.dear
@pytest.mark.slow
def test_the_check_runs_whole_over_the_simulated_gpu(tmp_path: Path):
    torch = installed.cpu_build()
    if torch is None:
        pytest.skip("no PyTorch: make torch")
    words = [
        "--simulated",
        "--python",
        str(torch / "bin" / "python"),
        "--seconds",
        "1.5",
        "-o",
        str(tmp_path),
    ]
    parts = ["machine", "check", "counts", "server", "constants"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu_check", *words, *parts],
        cwd=ROOT,
        env={**os.environ, **build.settings(torch)},
        capture_output=True,
        text=True,
        check=False,
        timeout=450,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["counts"]["right"]
    assert results["counts"]["lost"] == 0
    right = results["server"]["right"]
    # a machine that is busy tells of starved CPUs; how idle the GPU was does not depend on it
    assert right["proved"], results["server"]
    assert right["idle"], results["server"]
    assert right["direction"] is not False
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"results.json", "results.md", "server-before.msgpack"}

"""gputop attaches to programs that chose their GPUs long ago: each counts for the GPU that it works on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import inside
from tests.ebpf.recording import Workshop
from tests.waiting import wait_until

pytestmark = [pytest.mark.ebpf, pytest.mark.timed]
STEP_MS = 20
WORKING = (
    "import sys, time\nfrom cuda import Cuda\n"
    "device, busy_ms = map(int, sys.argv[1:])\n"
    "c = Cuda(); c.SetDevice(device); c.SetDeviceFlags(4); c.launch(1); c.DeviceSynchronize()\n"
    "open(sys.argv[0] + str(device), 'w').close()\n"
    "due = time.monotonic()\n"
    "while True:\n"
    f"    c.launch(busy_ms * 1_000_000); c.DeviceSynchronize(); due += {STEP_MS / 1000}\n"
    "    time.sleep(max(0, due - time.monotonic()))\n"
)
BUSY_MS = {0: 4, 2: 10, 3: 15}


def test_each_program_counts_for_the_gpu_that_it_chose_before_gputop_came(tmp_path: Path) -> None:
    """The GPU of each, and how busy it keeps that one, is its own choice."""
    workshop = Workshop(tmp_path)
    workshop.env |= {"SIMGPU_DEVICES": "4"}
    (program := tmp_path / "working.py").write_text(WORKING)
    running = [
        subprocess.Popen(
            [sys.executable, str(program), str(device), str(busy_ms)], env=workshop.environment()
        )
        for device, busy_ms in BUSY_MS.items()
    ]
    try:
        for device in BUSY_MS:
            wait_until(Path(f"{program}{device}").exists, f"the first kernel on GPU {device}")
        pids = ",".join(str(one.pid) for one in running)
        workshop.finish(workshop.start(["--pid", pids, "--duration", "3"]))
    finally:
        for one in running:
            one.kill()
            one.wait()
    report = json.loads(inside.run("explain", str(workshop.file), "--json").stdout)
    idle = {gpu["label"]: gpu["idle_ns"]["estimate"] / gpu["span_ns"] for gpu in report["gpus"]}
    assert idle == {
        f"GPU {device}": pytest.approx(1 - busy_ms / STEP_MS, abs=0.1) for device, busy_ms in BUSY_MS.items()
    }
    assert not [finding for finding in report["findings"] if finding["cause"] == "C25"], "nothing is shared"

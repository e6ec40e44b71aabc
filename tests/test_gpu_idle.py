"""Who holds a GPU's memory and gives it no work is told with for how long, by NVML alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gputop.engine.facts import Facts
from gputop.engine.frame import GpuRow
from gputop.engine.frame_json import frame_to_json
from gputop.engine.gpus.nvml_rows import gpu_rows
from gputop.simgpu import environment
from gputop.ui.model.gpus.gpu_page import processes
from gputop.ui.model.gpus.gpu_text import IDLE_NS, idle_holders
from gputop.ui.model.look import ASCII, plain
from probes.nvml.nvml_gpu import IdleSince
from probes.source import CLIENT, GPUS, Sample
from tests import fake_frames as fake
from tests.gpu_rows_support import ask
from tests.observed_demo import SLEEPS

S, GIB = 1_000_000_000, 1 << 30
BUSY = {"sm_percent": 40, "memory_percent": 0, "encoder_percent": 0, "decoder_percent": 0}
NOTHING = dict.fromkeys(BUSY, 0)
PROGRAM = """
import sys, time
from cuda import Cuda
cuda = Cuda()
held = cuda.malloc(2 << 30)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    cuda.launch(2_000_000)
    cuda.DeviceSynchronize()
print(time.monotonic_ns(), flush=True)
sys.stdin.read()
"""


def test_a_process_is_idle_from_the_first_look_that_finds_it_so() -> None:
    since = IdleSince()
    assert since.consume([7, 8], {7: BUSY}, 1 * S) == {8: 1 * S}
    assert since.consume([7, 8], {}, 2 * S) == {7: 2 * S, 8: 1 * S}
    assert since.consume([7, 8], {8: NOTHING}, 3 * S) == {7: 2 * S, 8: 1 * S}
    assert since.consume([7, 8], {8: BUSY}, 4 * S) == {7: 2 * S}
    assert since.consume([7, 8], {}, 5 * S) == {7: 2 * S, 8: 5 * S}


def test_who_has_left_the_gpu_begins_anew_and_what_is_not_reported_is_not_idle() -> None:
    since = IdleSince()
    since.consume([7], {}, 1 * S)
    since.consume([], {}, 2 * S)
    assert since.consume([7], {}, 3 * S) == {7: 3 * S}
    assert since.consume([7], {7: {**NOTHING, "sm_percent": None}}, 4 * S) == {}
    assert since.consume([7], None, 5 * S) == {}


def gpu(**client: Any) -> GpuRow:
    """One GPU at 200 s, with a notebook of bob's on it."""
    facts = Facts()
    facts.consume(Sample(CLIENT, 0, {"pid": 20, "name": "notebook", "user": "bob", "command": "notebook"}))
    row = {"pid": 20, "type": "C", "gpu_instance": None, **client}
    data = {
        "index": 0,
        "name": "H100",
        "unavailable": {},
        "clients": [row],
        "process_utilization": {"pid": []},
    }
    return gpu_rows(Sample(GPUS, 200 * S, {"gpus": [data]}), {}, 200 * S, facts)[0]


def test_who_holds_much_and_does_nothing_for_long_is_named_on_the_page_of_the_gpu() -> None:
    found = gpu(memory_bytes=40 * GIB, idle_since_ns=20 * S)
    (said,) = idle_holders(found, ASCII)
    assert said == "bob's notebook (20) holds 40.0G and has submitted no work to it for at least 180s"
    assert said in "\n".join(plain(line) for line in processes(found, ASCII))


@pytest.mark.parametrize(
    "client",
    [
        {"memory_bytes": 40 * GIB, "idle_since_ns": 200 * S - IDLE_NS + 1},
        {"memory_bytes": GIB // 2, "idle_since_ns": 20 * S},
        {"memory_bytes": 40 * GIB, "idle_since_ns": None},
        {"memory_bytes": 40 * GIB},
        {"memory_bytes": None, "idle_since_ns": 20 * S},
    ],
)
def test_who_works_holds_little_or_is_not_known_is_not_named(client: dict[str, Any]) -> None:
    assert idle_holders(gpu(**client), ASCII) == []


def test_json_has_the_key_only_where_it_is_known() -> None:
    frame = fake.frame(processes=1)
    assert all("idle_ns" not in row for one in frame_to_json(frame)["gpus"] for row in one["processes"] or ())
    found = gpu(memory_bytes=GIB, idle_since_ns=20 * S)
    assert found.processes is not None
    assert found.processes[0].idle_ns == 180 * S


def test_on_the_simulated_gpu_it_is_since_the_programs_last_kernel(tmp_path: Path) -> None:
    env = environment(os.environ) | SLEEPS
    env |= {"SIMGPU_STATE": str(tmp_path / "state"), "SIMGPU_INIT_MS": "0"}
    env["PYTHONPATH"] = str(Path(__file__).parent / "simgpu_programs")
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, seconds],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seconds in ("0.5", "60")
    ]
    idle, busy = started
    try:
        assert idle.stdout is not None
        ended_ns = int(idle.stdout.readline())
        body = f"""
seen = []
def told():
    seen[:] = [rows(), time.monotonic_ns()]
    since = {{one["pid"]: one["idle_since_ns"] for one in seen[0][0]["clients"]}}
    # one that is kept from its CPU is idle as well, so long
    return since.get({busy.pid}, 0) is None and (since.get({idle.pid}) or seen[1]) < seen[1] - {S}
until(told)
print(json.dumps(seen))
"""
        (row,), now_ns = ask(tmp_path, body)
        since = {one["pid"]: one["idle_since_ns"] for one in row["clients"]}
        assert set(since) == {idle.pid, busy.pid}
        assert since[busy.pid] is None
        assert ended_ns < since[idle.pid] < now_ns - S, json.dumps(row["clients"])
    finally:
        for program in started:
            program.kill()
            program.wait()

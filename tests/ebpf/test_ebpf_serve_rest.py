"""What the daemon costs while nothing happens that it looks for."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from gputop.serve.hub import listen
from gputop.serve.service import Service, Settings
from gputop.simgpu import build
from probes.live import LiveSource
from probes.plan import LivePlan
from tests.waiting import until_good

pytestmark = [pytest.mark.ebpf, pytest.mark.timed, pytest.mark.long]
MEASURED_S = 30.0
MOST = 0.01  # of a core; 0.004 is usual
# looks at what all programs of the machine map, which tests beside this one do all the time
_OTHERS = "gputop-libraries"


def _spent_ns() -> dict[int, int]:
    spent = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            spent[int(task.name)] = int((task / "schedstat").read_text().split()[0])
        except OSError:
            continue
    return spent


def test_a_daemon_at_rest_takes_less_than_a_hundredth_of_a_core(tmp_path: Path) -> None:
    build.ensure_built()
    sleeper = subprocess.Popen(["sleep", "300"])  # the only process that is watched
    plan = LivePlan(
        pids=(sleeper.pid,),
        rate_hz=1.0,
        poll_s=0.2,
        nvml_library=build.nvml_path(),
        environment=build.environment(os.environ),
    )
    source = LiveSource(plan)
    source.start()
    service = Service(source.header, listen(str(tmp_path / "s")), Settings("t"), lambda why: None)
    service.start()

    def run() -> None:
        for item in source.items():
            service.take(item)

    observing = threading.Thread(target=run)
    observing.start()
    try:
        time.sleep(16)  # explanations end when a window holds nothing any more
        left_out = {thread.native_id for thread in threading.enumerate() if thread.name == _OTHERS}
        left_out.add(threading.get_native_id())

        def part_of_a_core() -> float:
            """Of half a minute, in which everything that it does now and then comes."""
            before, began = _spent_ns(), time.monotonic()
            time.sleep(MEASURED_S)
            after, seconds = _spent_ns(), time.monotonic() - began
            spent = sum(ns - before.get(tid, 0) for tid, ns in after.items() if tid not in left_out)
            return spent / 1e9 / seconds

        assert until_good(part_of_a_core, lambda part: part < MOST) < MOST
    finally:
        source.close()
        observing.join()
        service.close("over")
        sleeper.kill()
        sleeper.wait()

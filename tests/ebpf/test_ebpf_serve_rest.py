"""What the daemon costs while nothing happens that it looks for."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from gputop.serve.clients.listening import listen
from gputop.serve.service import Service, Settings
from gputop.simgpu import library_build
from probes.observe.live_source import LiveSource
from probes.observe.plan import LivePlan
from tests.waiting import until_good

pytestmark = [pytest.mark.ebpf, pytest.mark.timed, pytest.mark.long]
MEASURED_S = 30.0
WAKE_S = 0.2  # as often as the daemon looks
MOST = 6.0  # 2.5 to 2.9 are usual, 7 with five marks a second instead of one
# looks at what all programs of the machine map, which tests beside this one do all the time
_OTHERS = "gputop-libraries"


def wake_up(stop: threading.Event) -> None:
    """What waking up costs: a file of the kernel's, a little JSON.

    Behind a pause the caches belong to others: on a busy machine that is ten times what it costs in a loop.
    """
    while not stop.wait(WAKE_S):
        json.loads(json.dumps(Path("/proc/self/stat").read_text().split()))


def _spent_ns() -> dict[int, int]:
    spent = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            spent[int(task.name)] = int((task / "schedstat").read_text().split()[0])
        except OSError:
            continue
    return spent


def test_a_daemon_at_rest_takes_little_more_than_waking_up(tmp_path: Path) -> None:
    library_build.ensure_built()
    sleeper = subprocess.Popen(["sleep", "300"])  # the only process that is watched
    plan = LivePlan(
        pids=(sleeper.pid,),
        rate_hz=1.0,
        poll_s=WAKE_S,
        nvml_library=library_build.nvml_path(),
        environment=library_build.environment(os.environ),
    )
    source = LiveSource(plan)
    source.start()
    service = Service(source.header, listen(str(tmp_path / "s")).socket, Settings("t"), lambda why: None)
    service.start()

    def run() -> None:
        for item in source.items():
            service.consume(item)

    observing = threading.Thread(target=run)
    observing.start()
    stop = threading.Event()
    waking = threading.Thread(target=wake_up, args=(stop,))
    waking.start()
    try:
        time.sleep(16)  # explanations end when a window holds nothing any more
        left_out = {thread.native_id for thread in threading.enumerate() if thread.name == _OTHERS}
        left_out |= {threading.get_native_id(), waking.native_id}

        def to_waking_up() -> float:
            """Of half a minute, in which everything that it does now and then comes."""
            before = _spent_ns()
            time.sleep(MEASURED_S)
            spent = {tid: ns - before.get(tid, 0) for tid, ns in _spent_ns().items()}
            assert waking.native_id is not None
            daemons = sum(ns for tid, ns in spent.items() if tid not in left_out)
            return daemons / spent[waking.native_id]

        assert until_good(to_waking_up, lambda ratio: ratio < MOST) < MOST
    finally:
        stop.set()
        waking.join()
        source.close()
        observing.join()
        service.close("over")
        sleeper.kill()
        sleeper.wait()

"""gputop on its demo: how much it slows the demo down, and what a recording of it costs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path
from statistics import median

from gputop.simgpu import library_build
from probes.observe.live_source import LiveSource
from probes.observe.plan import LivePlan
from probes.source import Item, Sample
from replay.writer import SessionWriter
from tests.bench.rows import Row

COST_BOUND, BYTES_BOUND = 4.0, 10.0  # times the compression of the records as they are; bytes an event
SECONDS = 3.0
PAIRS = 3
REPEATS = 5
_PATIENCE_S = 60.0  # until the probes are attached, on a machine that is busy

_GPUTOP = (sys.executable, "-m", "gputop")
_DEMO = (*_GPUTOP, "demo", "healthy", "--alone", "--duration", str(SECONDS))


def _steps_per_second(command: tuple[str, ...]) -> float:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    match = re.search(r"(\d+) steps in ([\d.]+) s", done.stdout)
    if match is None:
        raise RuntimeError(f"the demo did not say what it did: {done.stdout}{done.stderr}")
    return int(match[1]) / float(match[2])


def slowdown(folder: Path) -> list[Row]:
    """Alone and under ``gputop record``, in turn."""
    recording = (*_GPUTOP, "record", "--force", "-o", str(folder / "demo.gputop"), "--simgpu", "--", *_DEMO)
    pairs = [(_steps_per_second(_DEMO), _steps_per_second(recording)) for _ in range(PAIRS)]
    ratios = [alone / watched for alone, watched in pairs]
    detail = "steps/s " + ", ".join(f"{alone:.1f} alone {watched:.1f} watched" for alone, watched in pairs)
    return [Row("demo alone / demo under gputop", median(ratios), "", None, detail)]


def observe(story: str, seconds: float) -> tuple[LiveSource, list[Item]]:
    """The items of a run of a demo."""
    demo = subprocess.Popen(
        [*_GPUTOP, "demo", story, "--alone", "--duration", str(seconds + _PATIENCE_S)],
        stdout=subprocess.DEVNULL,
    )
    environment = library_build.environment(os.environ)
    source = LiveSource(
        LivePlan((demo.pid,), environment=environment, nvml_library=library_build.nvml_path())
    )
    source.start()
    timer = threading.Timer(seconds - 0.5, source.close)
    timer.start()
    try:
        found = list(source.items())
    finally:
        source.abandon()
        timer.join()
        demo.terminate()
        demo.wait()
    return source, found


def recorder(folder: Path) -> list[Row]:
    """The same items written again and again; the cheapest run counts."""
    source, items = observe("healthy", SECONDS)
    events = sum(len(item) for item in items if not isinstance(item, Sample))
    path = folder / "session.gputop"
    costs, plain = [], []
    for _ in range(REPEATS):
        began = time.process_time_ns()
        for item in items:
            if not isinstance(item, Sample):
                zlib.compress(item.tobytes(), 1)
        plain.append((time.process_time_ns() - began) / events)
        began = time.process_time_ns()
        writer = SessionWriter(path, source.header)
        for item in items:
            writer.write(item)
        writer.close()
        costs.append((time.process_time_ns() - began) / events)
    size = path.stat().st_size
    detail = (
        f"{events} events of {SECONDS - 0.5:g} s; ns an event: {', '.join(f'{cost:.0f}' for cost in costs)}; "
        f"compressed as they are {', '.join(f'{cost:.0f}' for cost in plain)}"
    )
    return [
        Row("recorder, an event / compression as it is", min(costs) / min(plain), "", COST_BOUND, detail),
        Row("recorder, file an event", size / events, "bytes", BYTES_BOUND, f"{size} bytes"),
    ]

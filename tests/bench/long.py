"""What an hour at 50,000 records a second takes: to open, to seek in, to add up, and to explain."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from gputop.api.stretches import MEMORY
from tests.bench import explain
from tests.bench.rows import Row

CYCLES = 1_818_200  # 180 million records
SEEKS = 40
MEMORY_MB = 300.0

_OPENED = f"""
import json, random, re, sys, time
from statistics import median
from gputop.api.session import open_session, reader_of
from gputop.playback.player import frame_at
began = time.perf_counter()
with open_session(sys.argv[1]) as session:
    opened, reader, took = time.perf_counter() - began, reader_of(session), []
    for _ in range({SEEKS}):
        index = random.randrange(len(reader.marks))
        began = time.perf_counter()
        frame_at(reader, index)
        took.append(time.perf_counter() - began)
    began = time.perf_counter()
    events = session.totals().events
    totals = time.perf_counter() - began
peak = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1e3
found = dict(opened=opened, seek=median(took), worst=max(took), totals=totals, events=events, peak=peak)
print(json.dumps(found))
"""


def rows(folder: Path) -> list[Row]:
    """Wall times are only reported, since a machine may be ten times as slow as itself; memory has bounds."""
    path = folder / "long.msgpack"
    events = explain.write(path, CYCLES, sums=True)
    size = path.stat().st_size
    done = subprocess.run(
        [sys.executable, "-c", _OPENED, str(path)], stdout=subprocess.PIPE, text=True, check=True
    )
    seen = json.loads(done.stdout)
    events += explain.PROCESSES * explain.THREADS  # each thread begins with a record
    if seen["events"] != events:
        raise RuntimeError(f"{seen['events']} records are told, of {events}")
    began = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-m", "gputop", "explain", str(path), "--json"], stdout=subprocess.DEVNULL
    )
    _pid, _status, used = os.wait4(child.pid, 0)
    child.returncode = 0
    seconds = time.monotonic() - began
    held = f"{events / 1e6:.0f} M records, {size / 1e6:.0f} MB, {size / events:.1f} bytes each"
    worst = seen["worst"] * 1e3
    most = used.ru_maxrss * 1024 * len(os.sched_getaffinity(0)) / 1e9
    return [
        Row("an hour opened", seen["opened"] * 1e3, "ms", None, held),
        Row("seek in it", seen["seek"] * 1e3, "ms", None, f"median of {SEEKS}; longest {worst:.0f} ms"),
        Row("its totals", seen["totals"] * 1e3, "ms", None, "with the sums that its recorder wrote"),
        Row("memory of these", seen["peak"], "MB", MEMORY_MB, "the largest that it was"),
        Row("explain 100 M records of it", seconds * 1e8 / events, "s", None, f"{seconds:.0f} s in all"),
        Row("memory of explain", most, "GB", MEMORY / 1e9, "the largest process's, times the processors"),
    ]

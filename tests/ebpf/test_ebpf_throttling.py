"""A thread whose group has used up its CPU quota is told as throttled, for as long as the kernel says."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from probes.ebpf.build import btf
from probes.schema import ALIASED, Kind, OffFlag
from probes.source import OPEN, Sample
from replay.reader import SessionReader
from tests.conftest import skip_or_fail
from tests.ebpf.control_group import control_group
from tests.ebpf.recording import Recorded, Workshop, compile_program

pytestmark = pytest.mark.ebpf
PERIOD_US, QUOTA_US = 100_000, 30_000
ATTEMPTS = 8  # who left its CPU is not known where no BPF program could see it
MS = 1_000_000


def group() -> AbstractContextManager[Path]:
    """A control group with a quota; skips where this machine lets nobody make one."""
    if "task_struct.throttled" not in btf.read_layout().offsets:
        skip_or_fail("this kernel throttles groups, not threads: Linux 6.18 does")
    period, quota = str(PERIOD_US), str(QUOTA_US)
    # before all other groups of this machine: else it gets too little to be throttled at all
    first = {"cpu.shares": "262144", "cpu.cfs_period_us": period, "cpu.cfs_quota_us": quota}
    return control_group("cpu", first, {"cpu.weight": "10000", "cpu.max": f"{quota} {period}"})


@contextmanager
def hog(wanted: bool) -> Iterator[None]:
    """Takes the same CPU, from another group."""
    if not wanted:
        yield
        return
    busy = subprocess.Popen(["taskset", "-c", "0", "sh", "-c", "while :; do :; done"])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def opened(run: Recorded, tid: int) -> list[dict[str, Any]]:
    """The thread at each mark."""
    reader = SessionReader(run.path)
    data = [item.data for item in reader.items() if isinstance(item, Sample) and item.kind == OPEN]
    reader.close()
    keys = ("off_since", "queued_since", "flags")
    return [{key: row[key][row["tid"].index(tid)] for key in keys} for row in data if tid in row["tid"]]


@pytest.mark.parametrize(
    "crowded",
    [
        pytest.param(False, id="alone"),
        pytest.param(True, id="with a hog of another group", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize(
    "idle_us",
    [pytest.param(0, id="busy"), pytest.param(300, id="sleeps in between", marks=pytest.mark.long)],
)
def test_throttled_time_is_what_the_kernel_counted_and_no_wait_for_a_cpu(
    tmp_path: Path, crowded: bool, idle_us: int
) -> None:
    program = str(compile_program("throttled.c", tmp_path))
    for attempt in range(ATTEMPTS):
        with group() as place, hog(crowded):
            (folder := tmp_path / str(attempt)).mkdir()
            # marks at other times than the group's periods
            flags = ("--simgpu", "--rate", "7")
            run = Workshop(folder).record(program, str(place), "2", "2000", str(idle_us), flags=flags)
        (line,) = run.said
        slices = run.records(Kind.OFFCPU).view(ALIASED)
        mine = slices[slices["tid"] == line["tid"]]
        left = mine["t_end"] - mine["duration"]
        own = mine[(left >= line["begin"]) & (left <= line["read_at"])]
        preempted = own["flags"] & OffFlag.INVOLUNTARY != 0
        counted = ((~preempted).sum(), preempted.sum()) == (line["voluntary"], line["involuntary"])
        rows = mine[mine["flags"] & OffFlag.THROTTLED != 0]
        # one that waits for its CPU does not use up what its group may have
        if counted and not (own["flags"] & OffFlag.WAKE_MISSED).any() and len(rows) >= 8:
            break
    else:
        pytest.fail(
            f"in {ATTEMPTS} recordings some of its switches or wakeups were hidden from BPF programs, "
            f"or it was hardly throttled: {len(rows)} slices"
        )
    truth = line["throttled"]  # its group may be throttled once more behind that
    parts = (rows["duration"] - rows["runnable"]).astype(np.int64)
    later = int(parts[rows["t_end"] > line["read_at"]].sum())
    print(f"{len(rows)} slices, throttled {parts.sum() / MS:.1f} ms, by the kernel {truth / MS:.1f} ms")
    rest = mine[mine["flags"] & OffFlag.THROTTLED == 0]
    print("other slices:", np.sort(rest[["duration", "runnable", "flags"]])[::-1][:3])
    assert (rows["flags"] & OffFlag.QUEUED != 0).all()
    assert parts.sum() - later == pytest.approx(truth, rel=0.02 if crowded else 0.01)
    seen = run.thread(line["pid"], line["tid"])
    told = seen["off_cpu"]
    assert told["throttled_ns"] - later == pytest.approx(truth, rel=0.02 if crowded else 0.01)
    assert len(rows) <= told["throttled_count"] <= len(rows) + 1, "one may be under way at the end"
    off = mine[(left >= line["begin"]) & (left <= line["end"])]
    after = int(np.maximum(off["t_end"].astype(np.int64) - line["end"], 0).sum())
    on_cpu = line["end"] - line["begin"] - int(off["duration"].sum()) + after
    assert abs(on_cpu - line["cpu"]) <= max(line["cpu"] // 50, 2 * MS)
    # it was loaded before it began to count, on a busy machine in more than ten milliseconds
    assert on_cpu <= seen["on_cpu_ns"] <= on_cpu + line["cpu_before"] + 5 * MS
    marks = [row for row in opened(run, line["tid"]) if row["flags"] & OffFlag.THROTTLED]
    assert marks
    assert not any(row["queued_since"] for row in marks), "throttled is not waiting for a CPU"

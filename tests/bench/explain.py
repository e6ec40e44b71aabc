"""What ``gputop explain`` takes for a long recording: ten million events of 64 threads.

``python -m tests.bench.explain OUT CYCLES`` writes such a recording of another length, 99 events a cycle.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from gputop.engine.tally import FileSums
from probes.api import OP_OF
from probes.schema import ALIASED, COPY_SHIFT, RECORD, Kind, OffFlag, Records
from probes.source import Sample
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests import items
from tests.bench.rows import Row
from tests.items import HEADER, START

CYCLES = 100_000  # each is one gap: 90 calls, 9 stays off the CPU
PROCESSES, THREADS = 8, 8
LENGTH_NS = 10_000_000  # of a cycle; a quarter of it the GPU is idle
BATCH = 200  # cycles between two marks
_FUTEX = 202
COST_BOUND = 8.0  # times the CPU time of reading and counting it


def _template() -> Records:
    """One cycle of one process: its main thread and seven that launch beside it."""
    launch, copy, sync = (
        OP_OF[name] for name in ("cudaLaunchKernel", "cudaMemcpyAsync", "cudaDeviceSynchronize")
    )
    rows: list[dict[str, int]] = []
    for number in range(60):
        end = 2_600_000 + 20_000 * number
        rows.append({"t_end": end, "duration": 8_000, "op": launch, "aux": 0x1000 + number % 12})
    for number in range(28):
        end = 2_700_000 + 30_000 * number
        thread = 1 + number % 7
        rows.append(
            {"t_end": end, "duration": 7_000, "op": launch, "tid": thread, "stream": 0x100 + thread, "aux": 5}
        )
    rows.append({"t_end": 3_900_000, "duration": 20_000, "op": copy, "bytes": 4, "flags": 2 << COPY_SHIFT})
    rows.append({"t_end": LENGTH_NS, "duration": 6_050_000, "op": sync})
    for row in rows:
        row.update(kind=Kind.CALL)
    asleep = {"kind": Kind.OFFCPU, "op": _FUTEX}
    rows.append({**asleep, "t_end": LENGTH_NS - 10_000, "duration": 5_900_000, "flags": OffFlag.WAKER_IRQ})
    rows.append({**asleep, "t_end": 2_000_000, "duration": 1_500_000, "runnable": 50_000, "waker_tid": 1})
    for thread in range(1, 8):
        end = 300_000 + 10_000 * thread
        rows.append(
            {**asleep, "t_end": end, "duration": 250_000, "runnable": 9_000, "tid": thread, "waker_tid": 0}
        )
    table = np.zeros(len(rows), RECORD)
    view = table.view(ALIASED)
    for place, row in enumerate(rows):
        for name, value in row.items():
            view[name][place] = value
    return table


def _batch(template: Records, first: int, cycles: int, numbers: list[int]) -> Records:
    """So many cycles of each process, in the order of time; ``numbers`` are the CPUs' last record numbers."""
    size = len(template)
    records = np.tile(template, cycles * PROCESSES)
    cycle = np.repeat(np.arange(cycles * PROCESSES), size)
    process = cycle % PROCESSES
    thread = records["tid"].copy()
    pid = 1000 * (1 + process)
    records["pid"], records["tid"] = pid, pid + thread
    view = records.view(ALIASED)
    slices = records["kind"] == Kind.OFFCPU
    view["waker_tid"][slices] = pid[slices] + view["waker_tid"][slices]
    view["waker_pid"][slices] = pid[slices]
    records["cpu"] = (process * THREADS + thread) % 16
    records["t_end"] += (START + (first + cycle // PROCESSES) * LENGTH_NS + process * 1_000).astype(np.uint64)
    records = records[np.argsort(records["t_end"], kind="stable")]
    for cpu in range(16):
        mine = np.flatnonzero(records["cpu"] == cpu)
        records["seq"][mine] = numbers[cpu] + 1 + np.arange(len(mine))
        numbers[cpu] += len(mine)
    return records


def write(path: Path, cycles: int = CYCLES, *, sums: bool = False) -> int:
    """Writes a recording of so many cycles; returns how many events it holds.

    Args:
        path: The new file.
        cycles: Of 99 events.
        sums: With sums at its end, as a recorder writes it.
    """
    writer = SessionWriter(path, HEADER, sums=FileSums() if sums else None)
    template, numbers, events = _template(), [0] * 16, 0
    writer.write(items.apis())
    for process in range(PROCESSES):
        pid = 1000 * (1 + process)
        writer.write(items.process(pid))
        for thread in range(THREADS):
            writer.write(
                items.event(Kind.EXEC if thread == 0 else Kind.JOIN, START, pid=pid, tid=pid + thread)
            )
    per_process = cycles // PROCESSES
    for number, first in enumerate(range(0, per_process, BATCH), 1):
        records = _batch(template, first, min(BATCH, per_process - first), numbers)
        events += len(records)
        end = int(records["t_end"].max())
        writer.write(records)
        writer.write(items.still_open(end, []))
        writer.write(items.mark(number, end))
    writer.close()
    return events


def rows(folder: Path) -> list[Row]:
    """Seconds and memory of the command."""
    path = folder / "long.msgpack"
    events = write(path)
    begin = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-m", "gputop", "explain", str(path), "--json"], stdout=subprocess.DEVNULL
    )
    _pid, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - begin
    if child.returncode != 3:
        raise RuntimeError(f"explain ended with {child.returncode}")
    cpu = used.ru_utime + used.ru_stime
    began = time.process_time()
    with contextlib.closing(SessionReader(path)) as reader:
        for item in reader.items():
            if not isinstance(item, Sample):
                np.bincount(item["op"])
    plain = time.process_time() - began
    detail = (
        f"{events / 1e6:.1f} M events, {path.stat().st_size / 1e6:.0f} MB, {cpu:.1f} s CPU; "
        f"read and counted in {plain:.1f} s"
    )
    return [
        Row("explain 10 M events / reading them", cpu / plain, "", COST_BOUND, f"{seconds:.1f} s; {detail}"),
        Row("explain memory", used.ru_maxrss * 1024 / 1e9, "GB", 2, detail),
    ]


if __name__ == "__main__":
    sys.stdout.write(f"{write(Path(sys.argv[1]), int(sys.argv[2]))} events\n")

"""Tables by the number of a process take memory for the numbers that were written, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from gputop.engine.calls.calltable import Callers, CallTable
from probes import arrays
from probes.arrays import PIDS, table
from probes.proc.used_devices import DeviceCalls

PAGE_KB = 4


def resident_kb(array: npt.NDArray[Any]) -> int:
    """What the kernel reports of the mapping in which an array lies, with others that it has joined to it."""
    address, inside = array.ctypes.data, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if span := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(span[1], 16) <= address < int(span[2], 16)
        elif inside and line.startswith("Rss:"):
            return int(line.split()[1])
    raise AssertionError("no such mapping")


def test_a_number_that_is_written_takes_one_page() -> None:
    numbers = table(np.int32)
    assert len(numbers) == PIDS
    before = resident_kb(numbers)
    for count, number in enumerate((1, 30_000, 1 << 21, PIDS - 1), 1):
        numbers[number] = number
        assert resident_kb(numbers) - before == PAGE_KB * count
    assert numbers[[30_000, 30_001, PIDS - 1]].tolist() == [30_000, 0, PIDS - 1]


def test_where_there_is_no_memory_it_is_reported_as_numpy_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays.mmap, "mmap", lambda *_, **__: (_ for _ in ()).throw(OSError(12, "no memory")))
    with pytest.raises(MemoryError):
        table(np.bool_)


def test_what_a_recorder_keeps_by_process_and_thread_is_such_a_table() -> None:
    for kept in (CallTable().process_of, Callers().known, DeviceCalls(lambda _pid: True).used):
        before = resident_kb(kept)
        kept[1_000_000] = 1
        assert resident_kb(kept) - before == PAGE_KB

"""Programs with thousands of threads: a frame lists those that do something, and counts the others."""

from __future__ import annotations

import os
import threading
from dataclasses import replace

import pytest

from gputop.commands.screen import stream
from gputop.commands.screen.stream import LineWriter, line_of
from gputop.engine.frame_json import MOST_THREADS, frame_to_json
from tests import fake_frames
from tests.waiting import wait_until


def test_a_frame_lists_the_threads_that_do_something_and_counts_the_others() -> None:
    """10,000 threads were 72 to 767 MB of a stream that is read slowly."""
    whole = fake_frames.frame(processes=2, threads=3)
    idle = replace(whole.processes[0].threads[0], cuda=False, on_cpu_ns=0, runnable_ns=0)
    threads = tuple(replace(idle, tid=tid) for tid in range(10_000))
    busy = (
        replace(idle, tid=10_000, on_cpu_ns=5),
        replace(idle, tid=10_001, runnable_ns=7),
        replace(idle, tid=10_002, cuda=True),
    )
    many = replace(whole.processes[0], threads=(*threads, *busy))
    told = frame_to_json(replace(whole, processes=(many, whole.processes[1])))["processes"]
    listed = [thread["tid"] for thread in told[0]["threads"]]
    assert len(listed) == MOST_THREADS
    assert listed == sorted(listed)
    assert {10_000, 10_001, 10_002, 0, 1} <= set(listed)
    assert told[0]["unlisted_threads"] == 10_003 - MOST_THREADS
    assert len(told[1]["threads"]) == 3
    assert "unlisted_threads" not in told[1]


def test_many_processes_with_many_threads_share_the_room_and_each_keeps_some() -> None:
    whole = fake_frames.frame(processes=1, threads=1)
    threads = whole.processes[0].threads * 600
    rows = tuple(replace(whole.processes[0], threads=threads) for _ in range(100))
    told = frame_to_json(replace(whole, processes=rows))["processes"]
    assert 8 * 100 <= sum(len(row["threads"]) for row in told) <= 4096
    assert all(len(row["threads"]) + row["unlisted_threads"] == 600 for row in told)
    assert len(line_of(replace(whole, processes=rows))) < 4 << 20


def test_lines_that_wait_for_a_slow_reader_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MOST_BYTES", 1 << 20)
    end, start = os.pipe()
    writer = LineWriter(start)
    line = b"x" * (300 << 10) + b"\n"
    taken = 0
    while not writer.behind:
        writer.put(line)
        taken += 1
    assert taken == 4
    threading.Thread(target=_read_all, args=(end,), daemon=True).start()
    wait_until(lambda: not writer.behind, "the reader")
    writer.close()
    os.close(start)


def _read_all(descriptor: int) -> None:
    while os.read(descriptor, 1 << 16):
        pass

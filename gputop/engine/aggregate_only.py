"""Processes of which only sums are told: those of other users, where a daemon shows each user their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gputop.engine.frame import ProcessRow
from gputop.engine.threads.switches import ThreadTick

Others = dict[int, tuple[int, ThreadTick]]  # process -> calls, what all its threads did together
_NUMBERS = ("lived_ns", "runnable_ns", "blocked_ns", "voluntary", "involuntary")


def add_others(sums: Others, data: Mapping[str, Any]) -> None:
    """Adds what an ``others`` sample says; columns of different lengths are cut to the shortest."""
    columns = [data.get(name, ()) for name in ("pid", "calls", *_NUMBERS)]
    for row in zip(*columns, strict=False):
        pid, calls, *numbers = map(int, row)
        before, thread = sums.get(pid, (0, ThreadTick(pid)))
        thread.add(ThreadTick(pid, *numbers))
        sums[pid] = before + calls, thread


def with_sums(row: ProcessRow, ticks: Iterable[Others], window_ns: int) -> ProcessRow:
    """The row of such a process: rates, and nothing of its threads and functions."""
    calls, whole = 0, ThreadTick(row.pid)
    for sums in ticks:
        if row.pid in sums:
            calls += sums[row.pid][0]
            whole.add(sums[row.pid][1])
    seconds = window_ns / 1e9
    return replace(
        row,
        calls_per_second=calls / seconds,
        voluntary_per_second=whole.voluntary / seconds,
        involuntary_per_second=whole.involuntary / seconds,
        runnable_percent=100 * whole.runnable / window_ns,
        blocked_percent=100 * whole.blocked / whole.lived if whole.lived else 0.0,
        on_cpu_percent=100 * whole.on_cpu / window_ns,
    )

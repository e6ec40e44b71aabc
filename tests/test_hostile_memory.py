"""Programs that come and go without end: what is kept of them is let go of, or bounded."""

from __future__ import annotations

import gc
import os
import time
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gputop.engine.calls.calltable import TOTALS
from gputop.engine.tally import FileSums, Tally
from gputop.recording import outliers
from gputop.recording.outliers import Outliers
from probes.files.mmap_events import Mapped
from probes.observe import scanner, scope
from probes.observe.scanner import Scanner
from probes.schema import Kind, Records, empty
from probes.source import PROCESS, Sample
from probes.stacks import handles, symbol_lookup
from probes.stacks.handles import NamingProbes
from probes.stacks.kernel_resolver import Kernels
from probes.stacks.native_frames import Samples
from probes.stacks.symbol_lookup import Lookups, NotYet
from replay import private
from replay.private import Disguise
from replay.state_snapshot import FactBook
from tests import items

MB = 1 << 20
FRAMES = (("/app", 0, "step"),)


def calls_of(pid: int, count: int = 3) -> Records:
    """A process that calls ``count`` functions."""
    made = empty(count)
    made["kind"], made["pid"], made["tid"] = Kind.CALL, pid, pid
    made["op"], made["duration"] = np.arange(count), 1000 + pid
    return made


@pytest.mark.slow
def test_sums_of_short_programs_take_little_and_are_those_of_all_calls() -> None:
    sums, whole = FileSums(), Tally()
    programs = [calls_of(pid) for pid in range(1000, 2500)]
    programs += [calls_of(1000)]  # a number that comes again
    gc.collect()
    tracemalloc.start()
    try:
        for made in programs:
            sums.consume(made)
        assert tracemalloc.get_traced_memory()[1] < 24 * MB  # 46 as rows of a table
    finally:
        tracemalloc.stop()
    for made in programs:
        whole.consume(made)
    told, again = sums.payload(), Tally()
    assert told is not None
    again.merge(told)
    assert by_key(again) == by_key(whole)


def by_key(tally: Tally) -> dict[object, object]:
    """Sums and histogram of each row that counts something."""
    tally.calls.totals.grow(tally.calls.table.rows)
    return {
        tally.calls.table.keys[row]: (
            [int(getattr(tally.calls.totals, name)[row]) for name in TOTALS],
            tally.calls.table.counts[row].tobytes(),
        )
        for row in np.flatnonzero(tally.calls.totals.count).tolist()
    }


def test_sums_of_more_calls_than_a_file_holds_are_given_up() -> None:
    sums = FileSums()
    made = empty(500)
    made["kind"], made["duration"] = Kind.CALL, np.geomspace(1000, 1e9, 500).astype(np.uint64)
    for pid in range(1000, 2000):
        made["pid"] = made["tid"] = pid
        sums.consume(made)
    assert sums.payload() is None


@pytest.mark.slow
def test_unusual_calls_are_sought_with_bounded_memory() -> None:
    found = Outliers()
    for pid in range(1000, 1000 + 2 * outliers.MOST_ROWS):
        found.among(calls_of(pid))
    assert found.table.rows <= 1.6 * outliers.MOST_ROWS


def mapped(path: Path, pid: int = 10) -> Mapped:
    facts = path.stat()
    return Mapped(pid, (0x1000, 0x2000), (facts.st_dev, facts.st_ino), str(path), 0)


def asked(known: Lookups, mapping: Mapped) -> None:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            known.lookup(mapping, (16, True))
            return
        except NotYet:
            time.sleep(0.01)
    raise AssertionError("no answer")


def test_files_that_nobody_asks_about_are_let_go_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbol_lookup, "IDLE_S", 0.2)
    monkeypatch.setattr(symbol_lookup.libraries, "file_of", lambda one: (Path(one.path), one.file))
    known = Lookups()
    content = Path("/proc/self/exe").read_bytes()[:4096]
    before = len(os.listdir("/proc/self/fd"))
    for number in range(20):
        (path := tmp_path / f"lib{number}.so").write_bytes(content)
        asked(known, mapped(path))
    until = time.monotonic() + 10
    while len(os.listdir("/proc/self/fd")) > before and time.monotonic() < until:
        time.sleep(0.05)
    assert len(os.listdir("/proc/self/fd")) <= before
    known.close()


def test_questions_that_nobody_comes_back_for_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbol_lookup, "MOST_PENDING", 64)
    monkeypatch.setattr(symbol_lookup, "AT_ONCE_S", 0.0)
    monkeypatch.setattr(symbol_lookup.libraries, "file_of", lambda _one: None)
    known = Lookups()
    for inode in range(2000):
        try:
            known.lookup(Mapped(10, (0, 1), (1, inode), "/gone", 0), (0, True))
        except NotYet:
            assert len(known.pending) <= 64
    assert len(known.slow) <= 64
    known.close()


def test_samples_of_ended_processes_make_room() -> None:
    samples = Samples()
    for pid in range(1, 3 * Samples.MOST):
        assert samples.is_new(pid, pid, FRAMES)
        assert not samples.is_new(pid + (1 << 32), pid, FRAMES), pid  # known again to the end
        samples.forget(pid)
    assert samples.processes == []


def launched(pid: int) -> Records:
    row = items.call(items.START, 5, "cuLaunchKernel")
    row["pid"], row["aux"] = pid, 0x5000
    return row


def test_kernels_of_ended_processes_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probes.stacks.kernel_resolver.MOST", 100)
    kernels = Kernels(lambda _pid, _address, _time: None)
    for pid in range(1, 1000):
        kernels.notice(launched(pid))
        assert pid in kernels.processes
        kernels.forget([pid])
    assert not kernels.processes


def test_a_driver_that_was_let_go_of_is_probed_when_it_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [((1, 2), "file", "/libcuda.so.1")]
    seen: list[Any] = []

    def none(_file: Any, names: list[str], _shown: str) -> dict[str, int]:
        seen.extend(names)
        return {}

    monkeypatch.setattr(handles.parsing, "functions_in", none)
    naming = NamingProbes(SimpleNamespace(held=lambda _layer: list(held)))  # type: ignore[arg-type]
    naming.attach({"on_named": 1, "on_naming": 2})
    naming.attach({"on_named": 1, "on_naming": 2})
    assert len(seen) == len(handles.FUNCTIONS)
    held.clear()
    naming.attach({"on_named": 1, "on_naming": 2})
    held.append(((1, 2), "file", "/libcuda.so.1"))  # another file may have the number
    naming.attach({"on_named": 1, "on_naming": 2})
    assert len(seen) == 2 * len(handles.FUNCTIONS)


def test_programs_of_ended_processes_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def executable(pid: int) -> None:
        looked.append(pid)

    monkeypatch.setattr(scanner.libraries, "executable", executable)
    monkeypatch.setattr(scanner.os, "readlink", lambda _path: "/usr/bin/program")
    one = Scanner(SimpleNamespace(), None, lambda _pid: True, lambda: (), lambda _sample: None, everyone=True)  # type: ignore[arg-type]
    for pid in range(3 * scanner.MOST_PROCESSES):
        one.executable_of(pid)
        one.executable_of(pid)
    assert len(looked) == 3 * scanner.MOST_PROCESSES
    assert len(one.executables) <= scanner.MOST_PROCESSES


@pytest.mark.slow
def test_strangers_of_a_private_recording_are_bounded_and_keep_their_names() -> None:
    disguise = Disguise()
    lasting = disguise.name(7)
    names = set()
    for pid in range(100, 100 + 2 * private.MOST_NAMES):
        names.add(disguise.name(pid))
        assert disguise.name(7) == lasting
    assert len(names) == 2 * private.MOST_NAMES  # none has another's
    assert len(disguise.names) <= private.MOST_NAMES


def test_children_of_a_process_with_cuda_are_bounded() -> None:
    attachments = SimpleNamespace(widen=list, part=lambda: None)
    found = scope.Scope(attachments, sessions=True)  # type: ignore[arg-type]
    found.with_cuda, found.seen_from_ns, found.waiting = {5}, float(1 << 60), True
    for child in range(100, 100 + 2 * scope.MOST_DOUBTFUL):
        birth = empty(1)
        birth["kind"], birth["pid"], birth["tid"], birth["t_end"] = Kind.FORK, child, child, 1
        birth.view(scope.ALIASED)["next_pid"] = 5
        assert not list(found.notice(birth))
    assert len(found.doubtful) <= scope.MOST_DOUBTFUL


def test_users_of_a_gpu_that_come_and_go_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probes.known.MOST_ROWS", 100)
    book = FactBook()
    for pid in range(1000):
        book.consume(Sample("client", pid, {"pid": pid}))
    assert len(book.samples(1)) <= 201


@pytest.mark.slow
def test_facts_of_ended_processes_with_stacks_take_little() -> None:
    book = FactBook()
    gc.collect()
    tracemalloc.start()
    try:
        for pid in range(1, 8_000):
            book.consume(
                Sample(PROCESS, pid, {"pid": pid, "watched": True, "seen_ns": pid, "exited_ns": None})
            )
            stacks = [[["/usr/lib/python3.11/program.py", line, f"step{pid}"]] for line in range(5)]
            numbers = [pid << 8 | place for place in range(5)]
            book.consume(Sample("frames", pid, {"pid": [pid] * 5, "stack": numbers, "frames": stacks}))
            book.consume(Sample(PROCESS, pid, {"pid": pid, "watched": True, "exited_ns": pid}))
        assert tracemalloc.get_traced_memory()[0] < 8 * MB  # of 26 that were reported
    finally:
        tracemalloc.stop()

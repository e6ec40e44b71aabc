"""Traces of other tools that were made to take time and memory: they take what their size allows."""

from __future__ import annotations

import json
import sqlite3
import sys
import time
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pytest

import gputop
from gputop.analysis.chains import chain
from gputop.commands import cli
from gputop.errors import SessionDamagedError
from gputop.imports.detect import read_trace
from gputop.imports.gathered import ImportFileError
from gputop.imports.joining import join
from gputop.imports.recorded import write_trace
from probes.activities import MOST_GPUS, activity_rows, unknown_rows
from tests.each_recording import RECORDINGS
from tests.waiting import until_good

OPERATORS, CALLS = 60_000, 2_000


def _seconds(path: Path, *, nested: bool) -> float:
    """CPU time of reading as many operators and calls, within each other or not."""
    kinds = [
        {"cat": "cpu_op", "ts": 0 if nested else one, "dur": 10**9 if nested else 1, "name": f"op {one}"}
        for one in range(OPERATORS)
    ]
    kinds += [
        {"cat": "cuda_runtime", "ts": 10 * one, "dur": 1, "name": "cudaLaunchKernel"} for one in range(CALLS)
    ]
    events = [{"ph": "X", "pid": 1, "tid": 1, **kind} for kind in kinds]
    path.write_text(json.dumps({"traceEvents": events}))
    begun = time.process_time()
    trace = read_trace(str(path))
    join(trace)
    spent = time.process_time() - begun
    assert max(len(frames) for frames in trace.stacks.values()) == (32 if nested else 1)
    return spent


@pytest.mark.slow
def test_operators_within_each_other_without_end_take_no_longer_than_side_by_side(tmp_path: Path) -> None:
    def times() -> float:
        flat = _seconds(tmp_path / "flat.json", nested=False)
        return _seconds(tmp_path / "nested.json", nested=True) / flat

    assert until_good(times, lambda found: found < 5) < 5


@pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python's sqlite3 has no limits")
def test_a_text_of_a_database_that_says_it_is_huge_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "huge.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("create table StringIds(id, value)")
        database.execute("create table CUPTI_ACTIVITY_KIND_RUNTIME(start, end, nameId)")
        database.execute("insert into StringIds values (1, zeroblob(50000000))")
    database.close()
    tracemalloc.start()
    try:
        with pytest.raises(ImportFileError, match="too big"):
            read_trace(str(path))
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("numbers", [range(MOST_GPUS + 1), [MOST_GPUS], [(1 << 20) - 1]])
def test_a_trace_that_names_more_gpus_than_exist_is_refused(tmp_path: Path, numbers: Iterable[int]) -> None:
    """Each GPU has its own proofs: a file of 20 MB named a hundred thousand."""
    (path := tmp_path / "gpus.json").write_text(json.dumps({"traceEvents": kernels(numbers)}))
    with pytest.raises(ImportFileError, match="names GPU"):
        write_trace(read_trace(str(path)), str(tmp_path / "gpus.msgpack"))


def test_a_trace_of_as_many_gpus_as_may_be_is_read(tmp_path: Path) -> None:
    (path := tmp_path / "gpus.json").write_text(json.dumps({"traceEvents": kernels(range(MOST_GPUS))}))
    assert write_trace(read_trace(str(path)), str(tmp_path / "gpus.msgpack"))[1] == MOST_GPUS


def test_a_session_whose_activities_name_no_gpu_is_damaged() -> None:
    rows = unknown_rows(1)
    rows["device"] = MOST_GPUS
    data = {name: rows[name].tolist() for name in rows.dtype.names or ()}
    with pytest.raises(ValueError, match="names GPU"):
        activity_rows({**data, "texts": ["kernel"], "name": [0], "detail": [0], "what": [0]})


@pytest.mark.slow
def test_calls_of_one_thread_for_very_many_gpus_are_refused(tmp_path: Path) -> None:
    """Each call cut the gap of every GPU: 55 KB took 4.6 GB."""
    (trace := tmp_path / "gpus.json").write_text(
        json.dumps({"traceEvents": kernels([*range(MOST_GPUS)] * 6)})
    )
    write_trace(read_trace(str(trace)), str(path := tmp_path / "gpus.msgpack"))
    with pytest.raises(SessionDamagedError, match="gaps of 1024 GPUs are cut"):
        gputop.explain(str(path))


def test_gaps_of_many_gpus_are_explained_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (trace := tmp_path / "gpus.json").write_text(json.dumps({"traceEvents": kernels([*range(40)] * 3)}))
    write_trace(read_trace(str(trace)), str(path := tmp_path / "gpus.msgpack"))
    paths = [str(path), str(RECORDINGS[0])]
    whole = [gputop.to_json(gputop.explain(one)) for one in paths]
    monkeypatch.setattr(chain, "BLOCK", 500)
    assert [gputop.to_json(gputop.explain(one)) for one in paths] == whole


def kernels(numbers: Iterable[int]) -> list[dict[str, object]]:
    """Events: a launch and its kernel on each of these GPUs."""
    rows: list[dict[str, object]] = []
    for row, number in enumerate(numbers):
        known = {"ph": "X", "tid": 1, "dur": 3, "args": {"correlation": row, "device": number, "stream": 7}}
        rows.append({**known, "pid": 1, "cat": "cuda_runtime", "ts": 10 * row, "name": "cudaLaunchKernel"})
        rows.append({**known, "pid": number, "cat": "kernel", "ts": 10 * row + 4, "name": "k"})
    return rows


@pytest.mark.parametrize("device", [0, -3])
def test_a_trace_of_kernels_that_no_call_gave_is_explained(device: int, tmp_path: Path) -> None:
    """Processes, threads and GPUs have numbers that none can have: the calls are left out."""
    kernel = {"device": device, "stream": -1, "correlation": 1}
    events = [
        {
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "ts": 1,
            "pid": -5,
            "tid": -7,
            "args": {"correlation": 1},
        },
        {"cat": "kernel", "name": "k", "ts": 3, "pid": 0, "tid": 7, "args": kernel},
    ]
    trace, out = tmp_path / "trace.json", tmp_path / "out"
    trace.write_text(
        json.dumps({"schemaVersion": 1, "traceEvents": [{"ph": "X", "dur": 1, **one} for one in events]})
    )
    assert cli.run(["import", str(trace), "-o", str(out)]) == 0
    assert cli.run(["explain", str(out)]) in (0, 3)  # 3: there is no call to explain

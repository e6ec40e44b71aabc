"""Ranges that a program names in what other tools read: SQL's column, Perfetto's tracks, frames of flames."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import gputop
from gputop.exchange.recorded_ranges import RecordedRanges
from gputop.exchange.stacks import stack_times
from gputop.query.database import Database
from gputop.report_page.flame_html import flame
from probes.activities import activity_samples, unknown_rows
from probes.source import FRAMES, Sample
from replay.reader import SessionReader
from replay.writer import SessionWriter
from tests import items
from tests.conftest import needed
from tests.items import MS, START
from tests.trace_processor import loaded
from tests.typed import typed

STEPS, PID = 20, 10
STACK = 9 << 32
SCRIPT = "/srv/train.py"
# name, begin and end within a step of 5 ms, in ms; of the thread, or of the process
OF_THREAD = (("step", 0.0, 4.5), ("forward", 0.0, 2.0), ("attention", 0.5, 1.0), ("log", 3.0, 4.5))
OF_PROCESS = (("copy in", 0.0, 1.5), ("copy out", 1.0, 2.5))


def at(step: int, ms: float) -> int:
    return START + step * 5 * MS + int(ms * MS)


def rows_of(step: int) -> list[tuple[str, str, int, int, int]]:
    named = [("range", name, at(step, begin), at(step, end), PID) for name, begin, end in OF_THREAD]
    named[1] = (named[1][0], "forward, op_id = 7", *named[1][2:])  # as PyTorch's emit_nvtx makes it
    named += [("span", name, at(step, begin), at(step, end), -1) for name, begin, end in OF_PROCESS]
    return [(what, f"{name} {step}" if name == "step" else name, *rest) for what, name, *rest in named]  # type: ignore[misc]


def activities(step: int) -> list[Sample]:
    """Its ranges, as they end, and the kernel that the call in ``attention`` gave the GPU."""
    named = sorted(rows_of(step), key=lambda row: row[3])
    table = unknown_rows(len(named) + 1)
    texts = ["", "range", "span", "kernel", *dict.fromkeys(["gemm", *(row[1] for row in named)])]
    for place, (what, name, begin, end, tid) in enumerate(named):
        table["what"][place], table["name"][place] = texts.index(what), texts.index(name)
        table["begin"][place], table["end"][place] = begin, end
        table["pid"][place], table["tid"][place] = PID, tid
    table["what"][-1], table["name"][-1] = texts.index("kernel"), texts.index("gemm")
    table["begin"][-1], table["end"][-1] = at(step, 2.2), at(step, 2.9)
    table["pid"][-1], table["device"][-1], table["stream"][-1] = PID, 0, 7
    table["call_tid"][-1], table["call_begin"][-1] = PID, at(step, 0.6)
    return list(activity_samples(table, texts, at(step, 4.9)))


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A launch within ``attention``, a wait within ``log``, a call behind the step, in each of the steps."""
    path = tmp_path_factory.mktemp("ranges") / "ranges.msgpack"
    writer = SessionWriter(path, {**items.HEADER, "inside": True})
    writer.write(items.apis())
    writer.write(items.process(PID, name="python"))
    writer.write(items.names(START, {PID: "python"}))
    frames = [[[SCRIPT, 42, "step"], [SCRIPT, 9, "main"]]]
    writer.write(Sample(FRAMES, START, {"pid": [PID], "stack": [STACK], "frames": frames}))
    for step in range(STEPS):
        writer.write(items.call(at(step, 0.61), 10_000, pid=PID, tid=PID, stack=STACK))
        writer.write(
            items.call(at(step, 3.5), 400_000, "cudaDeviceSynchronize", pid=PID, tid=PID, stack=STACK)
        )
        writer.write(items.call(at(step, 4.8), 100_000, "cudaMemcpyAsync", pid=PID, tid=PID, stack=STACK))
        writer.write(items.off(at(step, 4.4), 300_000, 0, pid=PID, tid=PID))
        for sample in activities(step):
            writer.write(sample)
        writer.write(items.mark(step + 1, at(step, 5)))
    writer.close()
    return path


def test_sql_has_the_path_of_ranges_of_calls_waits_kernels_and_ranges(recording: Path) -> None:
    needed("duckdb")
    with gputop.open_session(recording) as session:
        database = Database(session)
    try:
        found = database.query("select api, range, count(*) from calls group by all order by all", 999, 30)
        calls = Counter({(api, path): count for api, path, count in found.rows})
        assert len(calls) == 2 * STEPS + 1
        for step in range(STEPS):
            assert calls["cudaLaunchKernel", f"copy in/step {step}/forward/attention"] == 1
            assert calls["cudaDeviceSynchronize", f"step {step}/log"] == 1
        assert calls["cudaMemcpyAsync", None] == STEPS
        found = database.query("select distinct range from slices", 99, 30)
        assert sorted(str(path) for (path,) in found.rows) == sorted(f"step {n}/log" for n in range(STEPS))
        found = database.query("select range from activities where what = 'kernel' order by start_ns", 99, 30)
        assert [path for (path,) in found.rows] == [
            f"copy in/step {step}/forward/attention" for step in range(STEPS)
        ]
        found = database.query("select distinct range from activities where name = 'log'", 99, 30)
        assert ("step 3/log",) in found.rows
        found = database.query("select count(*), count(range) from gaps", 9, 30)
        assert found.rows[0][0] > 0
    finally:
        database.close()


def test_perfetto_has_a_track_of_ranges_below_each_thread_and_process(
    recording: Path, tmp_path: Path
) -> None:
    needed("perfetto")
    path = tmp_path / "ranges.perfetto"
    assert typed("export", str(recording), "--to", "perfetto", "-o", str(path)) == 0
    with loaded(path, tmp_path) as query:
        assert query("select name, value from stats where severity != 'info' and value > 0") == []
        rows = query(
            "select t.name track, p.name parent, s.name, s.ts, s.dur, s.depth from slice s"
            " join track t on s.track_id = t.id left join track p on t.parent_id = p.id"
            " where t.name = 'ranges' or t.name like 'spans%'"
        )
        own = {(row["name"], row["ts"], row["ts"] + row["dur"]) for row in rows}
        assert own == {
            (name.partition(",")[0], begin, end)
            for n in range(STEPS)
            for _w, name, begin, end, _t in rows_of(n)
        }
        depths = {row["name"].split()[0]: row["depth"] for row in rows if row["track"] == "ranges"}
        assert depths == {"step": 0, "forward": 1, "attention": 2, "log": 1}, "also of equal begin"
        spans = Counter((row["track"], row["name"]) for row in rows if row["track"] != "ranges")
        assert spans == {("spans", "copy in"): STEPS, ("spans 2", "copy out"): STEPS}, "they overlap"
        said = query(
            "select s.name, a.string_value path from slice s join args a using (arg_set_id)"
            " where a.flat_key = 'debug.range'"
        )
        assert {(row["name"], row["path"]) for row in said} == {
            (api, path)
            for step in range(STEPS)
            for api, path in (
                ("cudaLaunchKernel", f"copy in/step {step}/forward/attention"),
                ("cudaDeviceSynchronize", f"step {step}/log"),
            )
        }


def test_flames_have_the_range_above_the_lines_and_the_kernel_as_leaf(
    recording: Path, tmp_path: Path
) -> None:
    with gputop.open_session(recording) as session:
        stacks = stack_times(session)
    assert {(row.what, row.ranges, row.count, row.ns) for row in stacks.calls} == {
        ("cudaLaunchKernel", "copy in/step #/forward/attention", STEPS, 10_000 * STEPS),
        ("cudaDeviceSynchronize", "step #/log", STEPS, 400_000 * STEPS),
        ("cudaMemcpyAsync", "", STEPS, 100_000 * STEPS),
    }
    (kernel,) = stacks.kernels
    assert (kernel.what, kernel.ranges) == ("gemm", "copy in/step #/forward/attention")
    assert (kernel.count, kernel.ns) == (STEPS, 700_000 * STEPS)
    page = flame(stacks.kernels, {PID: "python"}, "on the GPU")
    places = [
        page.index(f">{name}</text>")
        for name in (
            "python (10)",
            "range copy in/step #/forward/attention",
            "train.py:42 in step()",
            "gemm",
        )
    ]
    assert places == sorted(places), "outer to inner"
    path = tmp_path / "ranges.speedscope"
    assert typed("export", str(recording), "--to", "speedscope", "-o", str(path)) == 0
    document = json.loads(path.read_text())
    names = [frame["name"] for frame in document["shared"]["frames"]]
    (profile,) = (one for one in document["profiles"] if "on the GPU" in one["name"])
    assert [[names[frame] for frame in sample] for sample in profile["samples"]] == [
        ["range copy in/step #/forward/attention", "main", "step", "gemm"]
    ]
    assert profile["weights"] == [700_000 * STEPS]


def test_in_ranges_of_many_threads_each_moment_has_the_path_of_its_own(recording: Path) -> None:
    reader = SessionReader(recording)
    ranges = RecordedRanges(reader)
    reader.close()
    pids, tids = np.array([PID, PID, 11, PID]), np.array([PID, 77, 77, PID])
    moments = np.array([at(2, 0.7), at(2, 0.7), at(2, 0.7), at(2, 4.7)])
    assert ranges.paths(pids, tids, moments) == ["copy in/step 2/forward/attention", "copy in", None, None]
    found = {path: rows.tolist() for path, rows in ranges.groups(pids, tids, moments)}
    assert found == {"copy in/step #/forward/attention": [0], "copy in": [1], "": [2, 3]}

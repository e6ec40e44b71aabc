"""The trace is the truth about when a device was idle: complete after a kill, and read without guessing."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from gputop.simgpu import read_trace
from gputop.simgpu.trace import Trace
from tests.simgpu_programs.harness import Bench
from tests.waiting import wait_until


def written(path: Path, *lines: str) -> Trace:
    path.write_text("".join(lines))
    return read_trace(path)


def test_idle_is_what_no_stream_covers(tmp_path: Path) -> None:
    trace = written(
        tmp_path / "t",
        "1 0 1 100 200 kernel 90\n",
        "1 0 2 150 250 h2d 140\n",
        "1 0 1 300 400 kernel 280\n",
        "2 0 1 240 310 kernel 230\n",
        "1 1 3 0 1000 kernel 0\n",
    )
    idle = trace.idle_intervals(1, 0, 0, 500)
    assert idle.tolist() == [[0, 90], [250, 280], [400, 500]]
    assert trace.idle_intervals(1, 0, 0, 500, work_from="start").tolist() == [
        [0, 100],
        [250, 300],
        [400, 500],
    ]
    assert trace.idle_intervals(None, 0, 95, 450).tolist() == [[400, 450]]
    assert trace.idle_intervals(1, 0, 0, 500, kinds={"h2d"}).tolist() == [[0, 140], [250, 500]]
    assert trace.idle_intervals(3, 0, 7, 9).tolist() == [[7, 9]]
    assert trace.idle_intervals(None, None, 10, 900).tolist() == []


def test_idle_and_busy_add_up_for_random_work(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    start = random.integers(0, 100_000, 300)
    end = start + random.integers(0, 900, 300)
    lines = [f"1 0 {i % 3} {a} {b} kernel {a}\n" for i, (a, b) in enumerate(zip(start, end, strict=True))]
    trace = written(tmp_path / "t", *lines)
    covered = np.zeros(90_000, bool)
    for a, b in zip(start, end, strict=True):
        covered[max(a - 5_000, 0) : max(b - 5_000, 0)] = True
    idle = trace.idle_intervals(1, 0, 5_000, 95_000)
    assert int((idle[:, 1] - idle[:, 0]).sum()) == int((~covered).sum())
    assert all(not covered[a - 5_000 : b - 5_000].any() for a, b in idle)


def test_a_line_that_was_never_finished_is_left_out(tmp_path: Path) -> None:
    whole = "1 0 1 100 200 kernel 90\n"
    for torn in ("1 0 1 300 40", "# 0 1 300 400 kernel 280\n", "#####", "1 0 1 300 400 kernel 280 9\n", ""):
        assert len(written(tmp_path / "t", whole, torn).rows) == 1
    assert len(written(tmp_path / "t").rows) == 0


def test_a_killed_process_leaves_every_operation(bench: Bench, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    body = "c = Cuda(); s = c.stream()\nfor i in range(3000): c.launch(1000, s)\nprint('done', flush=True); "
    processes = [
        bench.start(body + "time.sleep(60)", SIMGPU_TRACE=str(trace), SIMGPU_LAUNCH_NS="0") for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        process.kill()
        process.wait()
    rows = read_trace(trace).rows
    assert [int((rows["pid"] == process.pid).sum()) for process in processes] == [3000, 3000]
    assert set(rows["end"] - rows["start"]) <= {1000, 2000}, "alone, or in turns with the one just killed"
    assert (rows["enqueue"] < rows["start"]).all()


def test_a_kill_at_any_moment_leaves_whole_lines(bench: Bench, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    for i in range(5):
        process = bench.start(
            "c = Cuda()\nwhile True: c.launch(1000)", SIMGPU_TRACE=str(trace), SIMGPU_LAUNCH_NS="0"
        )
        # a piece of the file is taken before a line is written
        line = b"\n%d " % process.pid
        wait_until(lambda line=line: trace.exists() and line in trace.read_bytes(), "it to write its trace")
        time.sleep(0.0137 * i)  # any moment is as good as another
        process.kill()
        process.wait()
    rows = read_trace(trace).rows
    assert len(set(rows["pid"])) == 5
    assert (rows["end"] - rows["start"] == 1000).all()


def test_the_enqueue_is_when_the_call_began_and_not_when_the_work_did(bench: Bench, tmp_path: Path) -> None:
    before, after = bench.run(
        "c = Cuda(); s = c.stream(); n = 1 << 20; d = c.malloc(n); host = bytes(n)\n"
        "c.launch(100_000_000, s); a = time.monotonic_ns(); c.copy_async(d, host, n, H2D, s)\n"
        "b = time.monotonic_ns(); c.StreamSynchronize(s); print(json.dumps([a, b]))",
        SIMGPU_TRACE=str(tmp_path / "trace"),
    )
    kernel, copy = read_trace(tmp_path / "trace").rows
    assert before < copy["enqueue"] < kernel["end"]
    assert kernel["end"] < copy["start"], "it waits for its stream, then stages"
    assert copy["enqueue"] < copy["start"] < after + 5_000_000


def test_host_functions_and_what_follows_them_are_there(bench: Bench, tmp_path: Path) -> None:
    bench.run(
        "import ctypes\nc = Cuda(); s = c.stream()\n"
        "@ctypes.CFUNCTYPE(None, ctypes.c_void_p)\n"
        "def call(_): time.sleep(0.03)\n"
        "c.launch(1000, s); c.LaunchHostFunc(s, call, None); c.launch(2000, s); c.StreamSynchronize(s)\n",
        SIMGPU_TRACE=str(tmp_path / "trace"),
    )
    rows = read_trace(tmp_path / "trace").rows
    assert rows["kind"].tolist() == ["kernel", "host", "kernel"]
    first, host, second = rows
    assert host["end"] - host["start"] > 30_000_000
    assert first["end"] <= host["start"]
    assert host["end"] <= second["start"]
    assert second["enqueue"] < host["end"], "queued while the function ran"
    trace = read_trace(tmp_path / "trace")
    span = (int(first["start"]), int(second["end"]))
    idle = trace.idle_intervals(None, 0, *span, work_from="start", kinds={"kernel"})
    assert int((idle[:, 1] - idle[:, 0]).sum()) > 30_000_000

"""What nsys and wprof tell beside calls and kernels; what a public copy of an import says of whose it is."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import gputop
from gputop.api.session import reader_of
from gputop.documents.fields import document
from gputop.engine.tally import Tally
from probes.schema import OffFlag
from tests import made_traces
from tests.import_rows import event, evidence, imported, kineto, texts
from tests.typed import typed

MS = 1_000_000


def nsys(path: Path) -> Path:
    """A file of nsys with the tables that it writes on demand."""
    made_traces.nsys(path)
    thread, process = made_traces.PID << 24 | made_traces.TID, made_traces.PID << 24
    with sqlite3.connect(path) as database:
        database.executescript(
            f"""
            create table CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start, end, deviceId, streamId, correlationId,
                globalPid, graphId, graphExecId);
            insert into CUPTI_ACTIVITY_KIND_GRAPH_TRACE values (500, 900, 0, 7, 90001, {process}, 3, 4);
            create table OSRT_API (start, end, globalTid, nameId);
            insert into StringIds values (9001, 'poll'), (9002, 'main.py'), (9003, 'work'), (9004, 'libx.so');
            insert into OSRT_API values (100, 300, {thread}, 9001);
            create table COMPOSITE_EVENTS (id, start, globalTid);
            insert into COMPOSITE_EVENTS values (1, 150, {thread}), (2, 160, {thread});
            create table SAMPLING_CALLCHAINS (id, symbol, module, stackDepth);
            insert into SAMPLING_CALLCHAINS values (1, 9003, 9004, 0), (1, 9001, 9004, 1), (2, 9003, 9004, 0),
                (2, 9001, 9004, 1);
            create table PROFILER_OVERHEAD (start, end, globalTid, nameId);
            insert into PROFILER_OVERHEAD values (10, 20, {thread}, 9001);
            create table CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start, end, deviceId, streamId, correlationId,
                globalPid, syncType, eventId);
            insert into CUPTI_ACTIVITY_KIND_SYNCHRONIZATION values
                (700, 800, 0, 7, 90002, {process}, 3, 4294967295);
            insert into NVTX_EVENTS values (1, 5, 60, 'epoch', {thread}, null);
            insert into NVTX_EVENTS values (2, 4, 59, 'aten::mm, op_id = 12', {thread}, null);
            alter table CUPTI_ACTIVITY_KIND_MEMCPY add column srcKind;
            update CUPTI_ACTIVITY_KIND_MEMCPY set srcKind = 1;
            create table TARGET_INFO_CUDA_DEVICE (gpuId, cudaId, pid);
            insert into TARGET_INFO_CUDA_DEVICE values (5, 0, {made_traces.PID});
            """
        )
    database.close()
    return path


def test_what_nsys_writes_on_demand_is_there(tmp_path: Path) -> None:
    path = imported(nsys(tmp_path / "all.sqlite"), tmp_path)
    found = evidence(path)
    rows = found.activities
    (graph,) = rows.of("graph")
    assert (graph["end"] - graph["begin"], graph["graph"], graph["device"]) == (400, 3, 5)
    assert {gpu.label for gpu in gputop.explain(path).gpus} == {"GPU 5"}  # by its process's number of it
    assert texts(found, rows.of("os call"), "name") == ["poll"]
    assert texts(found, rows.of("span"), "name") == ["epoch"]
    assert "aten::mm" in texts(found, rows.of("range"), "name")
    assert texts(found, rows.of("wait"), "name") == ["Stream Sync"]
    assert len(rows.of("overhead")) == 1
    assert set(rows.of("copy")["memory"].tolist()) == {1}
    assert len(found.places) == 2
    assert len(set(found.places["stack"].tolist())) == 1
    frames = found.facts.stacks.frames(int(found.places["stack"][0]))
    assert [(frame.file, frame.function) for frame in frames] == [("libx.so", "work"), ("libx.so", "poll")]


def wprof(path: Path) -> tuple[Path, list[dict[str, Any]]]:
    """A loop that waits for a worker between launches, as wprof writes it."""
    main = {"tid": 100, "pid": 100, "comm": "train"}
    worker = {"tid": 200, "pid": 200, "comm": "loader"}
    idle = {"pid": 0, "comm": "swapper/3"}
    header = {"version": "3.1", "dur": 1.0, "timer_freq_hz": 997, "capture_cuda": True, "stacks": ["offcpu"],
              "stack_cnt": 1, "pmus": []}  # fmt: skip
    frames = ["[Py] main", "[U] read+0x1", "[K] __x64_sys_futex", "[K] schedule"]
    stack = {"id": 4, "frames": frames, "srcs": ["train.py:8", "", "", ""]}
    rows: list[dict[str, Any]] = []

    def add(at: float, kind: str, **more: Any) -> None:
        rows.append({"ts": at, "t": kind, "cpu": 3, **more})

    for step in range(20):
        at = 0.01 + 0.02 * step
        add(at + 0.0001, "cuda_api", task=main, dur=0.00005, name="cudaLaunchKernel_v7000", corr_id=step + 1)
        add(
            at + 0.0002,
            "switch",
            prev=main,
            next=idle,
            prev_state="interruptible_sleep",
            prev_prio=1,
            next_prio=1,
        )
        add(at + 0.0041, "cuda_kernel", task=main, dur=0.004, name="gemm", device_id=1, stream_id=7,
            grid=[4, 1, 1], block=[64, 1, 1], corr_id=step + 1)  # fmt: skip
        add(at + 0.018, "waking", waker=worker, wakee=main)
        add(at + 0.0185, "switch", prev=idle, next=main, prev_state="idle", prev_prio=1, next_prio=1,
            waking_ts=at + 0.018, waker=worker, waking_reason="woken", offcpu_dur=0.0183,
            next_state="interruptible_sleep", offcpu_stack_id=4)  # fmt: skip
        add(at + 0.0186, "pytorch_entry", task=main, name="aten::mm")
        add(at + 0.0189, "pytorch_exit", task=main, name="aten::mm")
    sshd = {"tid": 9, "pid": 9, "comm": "sshd"}
    add(0.5, "switch", prev=idle, next=sshd, offcpu_dur=0.1, next_state="interruptible_sleep")
    lines = [header, stack, *sorted(rows, key=lambda row: row["ts"])]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path, rows


def test_wprof_reports_who_woke_whom_and_what_the_gpu_did(tmp_path: Path) -> None:
    path = imported(wprof(tmp_path / "run.ndjson")[0], tmp_path)
    found = evidence(path)
    slices = found.slices
    assert set(slices["pid"].tolist()) == {100}  # sshd is nobody's helper
    assert (slices["end"] - slices["begin"]).tolist() == pytest.approx([18.3 * MS] * 20, abs=2)
    assert (slices["end"] - slices["queued"]).tolist() == pytest.approx([0.5 * MS] * 20, abs=2)
    assert set(slices["waker_tid"].tolist()) == {200}
    assert not (slices["flags"] & OffFlag.WAKE_MISSED).any()
    frames = found.facts.stacks.frames(int(slices["stack"][0]))
    assert [frame.function for frame in frames] == ["schedule", "__x64_sys_futex", "read+0x1", "main"]
    assert found.apis.name(int(found.calls["op"][0])) == "cudaLaunchKernel"
    kernels = found.activities.of("kernel")
    assert kernels["call_begin"].tolist() == found.calls["begin"].tolist()
    assert texts(found, found.activities.of("operator"), "name") == ["aten::mm"] * 20
    report = gputop.explain(path)
    (gpu,) = report.gpus
    assert gpu.label == "GPU 1"
    assert gpu.account.busy_ns == pytest.approx(20 * 4 * MS, abs=40)
    first = report.findings[0]
    assert "loader (200)" in first.title
    assert any("waited for a lock" in link.text for link in first.chain)


def test_a_wait_of_wprof_without_a_stack_is_blamed_on_no_system_call(tmp_path: Path) -> None:
    trace, _ = wprof(tmp_path / "run.ndjson")
    trace.write_text(trace.read_text().replace('"offcpu_stack_id": 4', '"x": 4'))
    report = gputop.explain(imported(trace, tmp_path))
    assert not any(word in str(report) for word in ("page fault", "waited for a lock", "file read"))


@pytest.mark.slow
def test_damaged_captures_of_wprof_are_a_sentence_or_what_is_intact(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trace, _ = wprof(tmp_path / "run.ndjson")
    text, chance = trace.read_text(), random.Random(5)
    odd = ["null", "-1", "1e99", '"x"', "[]", "{}", "true", "123456789012345678901"]
    for number in range(80):
        lines = text.splitlines()
        for _ in range(4):
            place = chance.randrange(1, len(lines))
            row = json.loads(lines[place])
            key = chance.choice(list(row))
            lines[place] = lines[place].replace(json.dumps(row[key]), chance.choice(odd), 1)
        if number % 4 == 0:
            lines[-1] = lines[-1][: chance.randrange(1, 40)]
        trace.write_text("\n".join(lines))
        path = tmp_path / f"{number}.msgpack"
        status = typed("import", str(trace), "-o", str(path))
        assert "should not have happened" not in capfd.readouterr().err
        if status == 0:
            assert typed("explain", str(path)) in (0, 1, 3)
            assert "should not have happened" not in capfd.readouterr().err


def test_odd_values_in_columns_of_kineto_are_taken_or_left_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    odd: list[Any] = [None, -1, 1e300, "x", [], {}, True, 1 << 80, [1, "a"], float("nan"), "7" * 400]
    keys = ["correlation", "device", "stream", "bytes", "grid", "block", "shared memory", "graph id",
            "Input Dims", "wait_on_stream", "wait_on_cuda_event_record_corr_id", "Collective name",
            "Group size", "Process Group Ranks", "In msg nelems", "dtype", "Global rank start",
            "Global rank stride"]  # fmt: skip
    kinds = ["kernel", "gpu_memcpy", "cuda_sync", "cpu_op", "cuda_runtime", "user_annotation", "overhead"]
    chance, events = random.Random(3), []
    for number in range(800):
        name = chance.choice(
            ["record_param_comms", "nccl:all_reduce", "ncclKernel_AllReduce", "Memcpy HtoD", "hipX"]
        )
        one = event(chance.choice(kinds), name, 10 * number, 5, correlation=number // 2, **{"Group size": 2})
        one["args"][chance.choice(keys)] = chance.choice(odd)
        one[chance.choice(["pid", "tid", "ts", "dur", "args", "name"])] = chance.choice(odd)
        events.append(one)
    job = {"rank": "x", "world_size": -5, "backend": []}
    path = tmp_path / "odd.json"
    kineto(path, events, distributedInfo=job, deviceProperties=[{"id": "x", "numSms": "y"}, 7])
    out = imported(path, tmp_path)
    assert typed("explain", str(out)) in (0, 1, 3)
    assert typed("stats", str(out)) == 0
    assert "should not have happened" not in capfd.readouterr().err


def test_a_public_copy_names_no_folder_of_a_user_and_keeps_the_library_s(tmp_path: Path) -> None:
    events = [
        event("python_function", "projects/secret_thing/train.py(7): step", 0, 100),
        event("python_function", "/home/eve/thesis/data.py(9): load", 1, 90),
        event("python_function", "torch/nn/modules/linear.py(114): forward", 2, 80),
        event("python_function", "threading.py(87): run", 3, 70),
        event("cuda_runtime", "cudaLaunchKernel", 20, 5, correlation=9),
        event("kernel", "gemm", 30, 40, 0, 7, correlation=9, stream=7, device=0),
    ]
    path = imported(kineto(tmp_path / "own.json", events), tmp_path)
    public = tmp_path / "public.msgpack"
    assert typed("redact", str(path), "-o", str(public)) == 0
    found = evidence(public)
    names = texts(found, found.activities.of("python"), "name")
    assert names[2:] == [
        "/site-packages/torch/nn/modules/linear.py(114): forward",
        "/lib/python3/threading.py(87): run",
    ]
    frames = [frame.file for frame in found.facts.stacks.frames(int(found.calls["stack"][0]))]
    told = " ".join([*names, *frames])
    for word in ("secret_thing", "projects", "eve", "thesis", "train.py", "data.py"):
        assert word not in told
    assert names[0].endswith("(7): step")
    assert frames[3] == names[0].partition("(")[0]


def test_stats_add_up_what_gpus_did_by_kernel_whatever_the_file_is_divided_into(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ops, _ = made_traces.loop()
    path = imported(made_traces.kineto(tmp_path / "loop.json"), tmp_path)
    capfd.readouterr()
    assert typed("stats", str(path), "--json") == 0
    told = json.loads(capfd.readouterr().out)["gpu_work"]
    for what, name in (("kernel", "void gemm<float, 4>(float*)"), ("copy", "Memcpy HtoD (Pinned -> Device)")):
        lengths = [op.kernel[1] - op.kernel[0] for op in ops if op.kernel is not None and op.what == what]
        row = {"gpu": 0, "what": what, "name": name, "count": len(lengths), "sum_ns": sum(lengths)}
        assert row | {"max_ns": max(lengths)} in told
    assert len(told) == 2
    sums = Tally()
    with gputop.open_session(path) as session:
        items = list(reader_of(session).items())
    for part in (items[: len(items) // 2], items[len(items) // 2 :]):
        one = Tally()
        for item in part:
            one.consume(item)
        sums.merge(one.payload())
    assert [document(row) for row in sums.gpu_work.rows()] == told
    assert typed("stats", str(path)) == 0
    text = capfd.readouterr().out
    assert "GPU 0" in text
    assert "Memcpy HtoD (Pinned -> Device)" in text
    assert "gemm" in text
    assert "process 0" not in text
    recording = Path(__file__).resolve().parents[1] / "recordings" / "storm.msgpack"
    assert typed("stats", str(recording), "--json") == 0
    assert "gpu_work" not in json.loads(capfd.readouterr().out)


def test_a_frame_says_in_one_line_that_a_trace_has_no_figures_of_nvml(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = imported(made_traces.kineto(tmp_path / "loop.json"), tmp_path)
    capfd.readouterr()
    assert typed("replay", "--once", str(path)) == 0
    lines = [line for line in capfd.readouterr().out.splitlines() if "n/a:" in line]
    assert lines == ["GPU 0 n/a: all figures: not in the trace that was imported"]


def test_a_cut_of_a_short_trace_is_as_long_as_was_asked(tmp_path: Path) -> None:
    """A trace of some milliseconds has marks often enough to be divided."""
    path = imported(made_traces.kineto(tmp_path / "loop.json"), tmp_path)
    part = tmp_path / "part.msgpack"
    assert typed("cut", str(path), "-o", str(part), "--from", "0.02", "--to", "0.04") == 0
    with gputop.open_session(part) as session:
        assert 20 * MS <= session.duration_ns <= 23 * MS

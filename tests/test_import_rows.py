"""Every row of a trace is in its recording, whichever generation of tool wrote it; truth by a loop."""

from __future__ import annotations

import gzip
import json
import sqlite3
import zipfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gputop
from gputop.imports import spool
from replay.scan import ScannedFile
from tests import made_traces
from tests.conftest import needed
from tests.import_rows import COMMS, event, evidence, imported, kineto, texts
from tests.typed import typed

PUBLIC = Path(__file__).resolve().parents[2] / "shared" / "data" / "traces"
TABLES = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")
ON_GPU = ("kernel", "copy", "fill", "graph")


def union(times: Iterable[tuple[int, int]]) -> int:
    """ns covered, by a loop."""
    covered, reach = 0, -(1 << 62)
    for begin, end in sorted(times):
        covered += max(end - max(begin, reach), 0)
        reach = max(reach, end)
    return covered


def rows_of(path: Path) -> dict[int, list[tuple[int, int]]]:
    """What each GPU ran, by the trace itself."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    if path.suffix == ".sqlite":
        database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
        there = {name for (name,) in database.execute("select name from sqlite_master")}
        for table in (f"CUPTI_ACTIVITY_KIND_{name}" for name in TABLES):
            for begin, end, device in (
                database.execute(f"select start, end, deviceId from {table}") if table in there else ()
            ):
                found[device].append((begin, end))
        return found
    data = path.read_bytes()
    document = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    for row in document["traceEvents"] if isinstance(document, dict) else document:
        if row.get("cat", "").lower() in ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"):
            begin = round(row["ts"] * 1000)
            found[row["args"].get("device", row["pid"])].append((begin, begin + round(row["dur"] * 1000)))
    return found


@pytest.mark.slow
def test_of_public_traces_every_gpu_is_accounted_by_its_rows(tmp_path: Path) -> None:
    traces = sorted(path for path in PUBLIC.glob("*") if path.suffix != ".md")
    if not traces:
        pytest.skip("there are no public traces beside the checkout")
    for trace in traces[:10]:
        truth = rows_of(trace)
        path = imported(trace, tmp_path)
        report = gputop.explain(path)
        told = {gpu.label: (gpu.span_ns, gpu.account.busy_ns) for gpu in report.gpus}
        assert told == {
            f"GPU {device}": (max(end for _, end in rows) - min(begin for begin, _ in rows), union(rows))
            for device, rows in truth.items()
        }
        found = evidence(path)
        assert len(found.activities.of(*ON_GPU)) == sum(map(len, truth.values()))
        assert set(found.facts.processes) == set(found.calls["pid"].tolist()) | {
            pid for pid in found.activities.rows["pid"].tolist() if pid >= 0
        }


def test_what_older_generations_of_kineto_write_means_the_same(tmp_path: Path) -> None:
    new = made_traces.kineto(tmp_path / "new.json")
    document = json.loads(new.read_text())
    names = {"cuda_runtime": "Runtime", "kernel": "Kernel", "gpu_memcpy": "Memcpy", "cpu_op": "Operator"}
    for row in document["traceEvents"]:
        if row["ph"] == "X":
            on_gpu = row["cat"] in ("kernel", "gpu_memcpy")
            row["cat"] = names[row["cat"]]
            row["tid"] = f"stream {row['tid']}" if on_gpu else str(row["tid"])
    old = tmp_path / "old.json"
    old.write_text(json.dumps(document["traceEvents"]))
    first, second = evidence(imported(new, tmp_path)), evidence(imported(old, tmp_path))
    for column in ("begin", "end", "pid", "tid", "bytes", "stream"):
        assert first.calls[column].tolist() == second.calls[column].tolist(), column
    for column in ("begin", "end", "device", "stream", "call_begin", "call_tid"):
        one, other = (each.activities.of(*ON_GPU)[column].tolist() for each in (first, second))
        assert one == other, column


def test_operators_ranges_functions_and_their_shapes_are_all_there_and_make_the_stacks(
    tmp_path: Path,
) -> None:
    events = [
        event("python_function", "train.py(7): step", 0, 100),
        event("python_function", "torch/nn/modules/linear.py(114): forward", 5, 80),
        event("user_annotation", "ProfilerStep#3", 1, 98),
        event("user_annotation", "my part, op_id = 71", 6, 70),
        event("cpu_op", "aten::linear", 10, 50, **{"Input Dims": [[32, 3], [3, 64]]}),
        event("cpu_op", "aten::addmm", 12, 40),
        event("cuda_runtime", "cudaLaunchKernel", 20, 5, correlation=9),
        event(
            "kernel",
            "gemm",
            30,
            40,
            0,
            7,
            correlation=9,
            stream=7,
            device=0,
            grid=[8, 1, 1],
            block=[256, 1, 1],
        ),
        event("overhead", "Activity Buffer Request", 80, 3, -1, 0),
        event("gpu_user_annotation", "my part", 30, 40, 0, 7),
    ]
    found = evidence(imported(kineto(tmp_path / "nested.json", events), tmp_path))
    rows = found.activities
    assert texts(found, rows.of("operator"), "name") == ["aten::linear", "aten::addmm"]
    assert texts(found, rows.of("operator"), "detail") == ["[[32, 3], [3, 64]]", ""]
    assert texts(found, rows.of("range"), "name") == ["ProfilerStep#3", "my part"]
    library = "/site-packages/torch/nn/modules/linear.py(114): forward"
    assert texts(found, rows.of("python"), "name") == ["train.py(7): step", library]
    assert texts(found, rows.of("overhead"), "name") == ["Activity Buffer Request"]
    assert rows.of("GPU range")["device"].tolist() == [0]
    stack = [(line.file, line.function) for line in found.facts.stacks.frames(int(found.calls["stack"][0]))]
    assert stack == [
        ("<torch>", "aten::addmm"),
        ("<torch>", "aten::linear"),
        ("<torch>", "my part"),
        ("/site-packages/torch/nn/modules/linear.py", "forward"),
        ("train.py", "step"),
    ]
    line = found.facts.stacks.line(int(found.calls["stack"][0]))
    assert (line.file, line.line) == ("train.py", 7)
    shape = found.facts.shapes.get(int(found.calls["shape"][0]))
    assert (shape.grid, shape.block) == ((8, 1, 1), (256, 1, 1))


def test_copies_show_which_memory_of_the_host_and_waits_what_they_wait_for(tmp_path: Path) -> None:
    events: list[Any] = []
    names = [
        "HtoD (Pageable -> Device)",
        "HtoD (Pinned -> Device)",
        "DtoH (Device -> Pageable)",
        "DtoD (Device -> Device)",
    ]
    for number, name in enumerate(names, 1):
        events.append(event("cuda_runtime", "cudaMemcpyAsync", 100 * number, 5, correlation=number))
        gpu = {"correlation": number, "stream": 7, "device": 0, "bytes": 4096}
        events.append(event("gpu_memcpy", f"Memcpy {name}", 100 * number + 10, 50, 0, 7, **gpu))
    events += [
        event("cuda_runtime", "cudaEventRecord", 600, 2, correlation=20),
        event("cuda_runtime", "cudaEventSynchronize", 610, 30, correlation=21),
        event("cuda_sync", "Event Sync", 611, 25, 0, -1, correlation=21, stream=4294967295, wait_on_stream=13,
              wait_on_cuda_event_record_corr_id=20),
        event("cuda_runtime", "cudaStreamSynchronize", 700, 30, correlation=22),
        event("cuda_sync", "Stream Sync", 701, 25, 0, 13, correlation=22, stream=13, device=0),
    ]  # fmt: skip
    found = evidence(imported(kineto(tmp_path / "copies.json", events), tmp_path))
    copies = found.activities.of("copy")
    assert copies["memory"].tolist() == [0, 1, 0, -1]
    assert copies["direction"].tolist() == found.calls["direction"][:4].tolist() == [1, 1, 2, 3]
    record, synchronise, stream = found.calls["aux"][4:7].tolist()
    assert (record, stream) == (synchronise, 0)
    assert record > 0
    assert found.calls["stream"][[4, 6]].tolist() == [13, 13]
    assert texts(found, found.activities.of("wait"), "name") == ["Event Sync", "Stream Sync"]


def test_calls_of_hip_have_the_names_that_cuda_has_for_them(tmp_path: Path) -> None:
    events = [
        event(
            "cuda_runtime", "hipMemcpyWithStream", 10, 40, correlation=1, size="2560", stream="0x0", kind="1"
        ),
        event("gpu_memcpy", "Memcpy HtoD (Host -> Device)", 20, 20, 2, 0, correlation=1, device=2, stream=0),
        event("hip_runtime", "hipExtModuleLaunchKernel", 60, 5, correlation=2, stream="0x77"),
        event("kernel", "Cijk_Ailk_Bljk", 70, 40, 2, 3, correlation=2, device=2, stream=3),
        event("cuda_runtime", "hipStreamSynchronize", 80, 40, correlation=3, stream="0x77"),
        event("cuda_runtime", "hipPopCallConfiguration", 130, 1, correlation=4),
    ]
    path = imported(kineto(tmp_path / "hip.json", events), tmp_path)
    found = evidence(path)
    names = [found.apis.name(op) for op in found.calls["op"].tolist()]
    assert names == ["cudaMemcpy", "cuLaunchKernel", "cudaStreamSynchronize", "hipPopCallConfiguration"]
    assert found.calls["bytes"].tolist()[0] == 2560
    assert found.calls["stream"].tolist()[1:3] == [3, 3]  # the handle is that of the launch
    assert {gpu.label for gpu in gputop.explain(path).gpus} == {"GPU 2"}
    assert "HIP's functions" in "".join(gputop.explain(path).notes)


def test_another_accelerator_is_a_sentence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trace = kineto(
        tmp_path / "mtia.json", [event("mtia_runtime", "launch", 1, 2), event("cpu_op", "aten::mm", 1, 9)]
    )
    assert "neither CUDA's nor ROCm's" in "".join(gputop.explain(imported(trace, tmp_path)).notes)
    capfd.readouterr()


@pytest.mark.parametrize("told", ["record_param_comms", "nccl:all_reduce", ""])
def test_collectives_are_calls_of_nccl_whatever_shows_them(told: str, tmp_path: Path) -> None:
    kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
    events = [
        event("cuda_driver", "cuLaunchKernelEx", 20, 5, correlation=9),
        event("kernel", kernel, 30, 400, 1, 20, correlation=9, stream=20, device=1),
        event("cuda_runtime", "cudaLaunchKernel", 40, 5, correlation=10),
        event("kernel", "gemm", 50, 100, 1, 7, correlation=10, stream=7, device=1),
    ]
    if told:
        args = COMMS if told == "record_param_comms" else {}
        events.append(event("cpu_op" if args else "user_annotation", told, 15, 15, **args))
    job = {"backend": "nccl", "rank": 1, "world_size": 2}
    path = imported(kineto(tmp_path / "rank1.json", events, distributedInfo=job), tmp_path)
    found = evidence(path)
    names = [found.apis.name(op) for op in found.calls["op"].tolist()]
    assert names == ["ncclAllReduce", "cudaLaunchKernel"]
    begin, end = (int(found.calls[name][0]) - int(found.calls["end"][1]) for name in ("begin", "end"))
    assert (begin, end) == ((-30_000, -15_000) if told else (-25_000, -20_000))
    assert found.calls["stream"].tolist() == [20, 7]
    assert found.calls["bytes"].tolist()[0] == (4000 if told == "record_param_comms" else 0)
    assert found.calls["aux"][0] > 0
    linked = found.activities.of("kernel")
    assert linked["call_begin"].tolist() == found.calls["begin"].tolist()


@pytest.mark.slow
def test_large_traces_are_read_in_parts_and_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is sorted at a time is bounded; here parts of some rows."""
    traces = [made_traces.kineto(tmp_path / "one.json"), made_traces.nsys(tmp_path / "two.sqlite")]
    if (PUBLIC / "04_nsys_two_gpus.sqlite").exists():
        traces.append(PUBLIC / "04_nsys_two_gpus.sqlite")
    whole = [evidence(imported(trace, tmp_path)) for trace in traces]
    monkeypatch.setattr(spool, "PART_ROWS", 60)
    monkeypatch.setattr(spool, "MOST_HELD", 7)
    monkeypatch.setattr(spool, "SAMPLED_ROWS", 3)
    (tmp_path / "parts").mkdir()
    for trace, expected in zip(traces, whole, strict=True):
        found = evidence(imported(trace, tmp_path / "parts"))
        for column in ("begin", "end", "pid", "tid", "op", "bytes", "stream", "direction", "shape"):
            assert found.calls[column].tolist() == expected.calls[column].tolist(), column
        one, other = (
            np.sort(each.activities.rows, order=["begin", "end", "tid", "stream", "device"])
            for each in (found, expected)
        )
        for column in ("begin", "end", "tid", "device", "call_begin", "call_tid", "memory"):
            assert one[column].tolist() == other[column].tolist(), column


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """A hundred megabytes take no more than ten, but for what a part takes."""
    sizes = [_peak_of_import(_large(tmp_path / f"{size}.json", size << 20), tmp_path) for size in (36, 72)]
    assert sizes[1] < sizes[0] + (40 << 20), sizes
    assert sizes[1] < 250 << 20


def _large(path: Path, size: int) -> Path:
    """A trace of so many bytes, as Kineto writes them."""
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "baseTimeNanoseconds": 0, "traceEvents": [\n')
        number = 0
        while file.tell() < size:
            number, at = number + 1, 30 * number
            one = [
                event("cpu_op", f"aten::op{number % 50}", at, 25, **{"Input Dims": [[number % 300, 64]]}),
                event("cuda_runtime", "cudaLaunchKernel", at + 5, 4.5, correlation=number),
                event("kernel", "void at::native::kernel" * 8, at + 12, 15.25, 0, 7, correlation=number,
                      stream=7, device=0, grid=[4, 1, 1], block=[128, 1, 1]),
            ]  # fmt: skip
            file.write("".join(json.dumps(row) + ",\n" for row in one))
        file.write('{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}]}')
    return path


def _peak_of_import(trace: Path, folder: Path) -> int:
    """The most memory that a process has which imports it, bytes."""
    import subprocess
    import sys

    program = (
        "import sys\nfrom gputop.imports.detect import read_trace\n"
        "from gputop.imports.recorded import write_trace\n"
        "write_trace(read_trace(sys.argv[1], sys.argv[2]), sys.argv[3])\n"
        "rows = dict(row.split(':') for row in open('/proc/self/status'))\n"
        "print(int(rows['VmHWM'].split()[0]) * 1024)"
    )
    words = [sys.executable, "-c", program, str(trace), str(folder), f"{trace}.msgpack"]
    done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=300)
    return int(done.stdout)


@pytest.mark.parametrize("kind", ["gz", "two gz", "zip", "zst", "sqlite.zip"])
def test_packed_traces_are_unpacked(kind: str, tmp_path: Path) -> None:
    plain = (
        made_traces.nsys(tmp_path / "a.sqlite")
        if "sqlite" in kind
        else made_traces.kineto(tmp_path / "a.json")
    )
    data, packed = plain.read_bytes(), tmp_path / f"packed.{kind}"
    if kind == "gz":
        packed.write_bytes(gzip.compress(data))
    elif kind == "two gz":  # as bgzip and others write them
        packed.write_bytes(gzip.compress(data[:5000]) + gzip.compress(data[5000:]))
    elif kind == "zst":
        packed.write_bytes(needed("zstandard").ZstdCompressor().compress(data))
    else:
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("__MACOSX/._a", b"x")
            archive.write(plain, "folder/a")
    one, other = evidence(imported(plain, tmp_path)), evidence(imported(packed, tmp_path))
    assert one.calls["begin"].tolist() == other.calls["begin"].tolist()


def test_json_that_kineto_breaks_is_read_and_what_is_torn_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = made_traces.kineto(tmp_path / "plain.json").read_text()
    broken = tmp_path / "broken.json"
    broken.write_text(
        text.replace('"aten::mm"', '"C:\\x\\qten\x07, {\\"a\\": [}, {"', 3).replace("\x07", "\x07")
    )
    one, other = evidence(imported(tmp_path / "plain.json", tmp_path)), evidence(imported(broken, tmp_path))
    assert one.calls["begin"].tolist() == other.calls["begin"].tolist()
    for place in (len(text) // 2, len(text) - 30):
        (tmp_path / "torn.json").write_text(text[:place])
        assert typed("import", str(tmp_path / "torn.json"), "-o", str(tmp_path / "torn")) == 1
        assert "was its writing interrupted?" in capfd.readouterr().err


def test_a_damaged_chunk_of_kernels_voids_what_it_would_have_proved(tmp_path: Path) -> None:
    path = imported(made_traces.kineto(tmp_path / "whole.json"), tmp_path)
    whole = gputop.explain(path)
    data = bytearray(path.read_bytes())
    with path.open("rb") as file:
        chunks = _chunks(ScannedFile(file.fileno()), "activity")
    offset, end = chunks[len(chunks) // 2]
    data[(offset + end) // 2] ^= 0xFF
    path.write_bytes(data)
    report = gputop.explain(path)
    assert report.lost_events > 0
    (gpu,) = report.gpus
    assert gpu.account.unknown_ns > 0
    assert report.idle.lower < whole.idle.lower
    # what is proved is no more than what is idle with all kernels
    assert report.idle.lower <= whole.idle.lower <= report.idle.upper


def _chunks(file: ScannedFile, kind: str) -> list[tuple[int, int]]:
    """(offset, end) of the chunks of a kind, one after the other."""
    found, place = [], 0
    data = file.read(0, file.size)
    while (place := data.find(b"\x98\xc4\x08gtop", place)) >= 0:
        chunk = file.chunk_at(place)
        if chunk is not None and chunk.kind == kind:
            found.append((chunk.offset, chunk.end))
        place += 1
    return found


@pytest.mark.slow
def test_no_stretch_of_a_written_session_is_more_than_a_reader_allows(tmp_path: Path) -> None:
    """Rows that are all alike shrink a thousandfold; the reader takes that of others for an attack."""
    events = [event("kernel", "same", 10 * row, 5, 0, 7, device=0, stream=7) for row in range(150_000)]
    path = imported(kineto(tmp_path / "alike.json", events), tmp_path)
    assert len(evidence(path).activities.rows) == 150_000

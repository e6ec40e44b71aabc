"""Traces of other tools: what they hold is kept to the nanosecond, what they do not hold stays unknown."""

from __future__ import annotations

import gzip
import json
import random
import re
import sqlite3
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import gputop
from gputop.api.recording_evidence import evidence_of
from tests import made_traces
from tests.conftest import needed, skip_or_fail
from tests.trace_processor import loaded
from tests.typed import imported, typed

ROOT = Path(__file__).resolve().parents[1]
INGERO = ROOT.parent / "shared" / "data" / "ingero"
MADE = {"kineto": "trace.json", "kineto.gz": "trace.json.gz", "nsys": "report.sqlite", "ingero": "ingero.db"}


def made(kind: str, folder: Path) -> Path:
    """A trace that was made by hand."""
    return {"kineto": made_traces.kineto, "nsys": made_traces.nsys, "ingero": made_traces.ingero}[
        kind.partition(".")[0]
    ](folder / MADE[kind])


def public(name: str) -> Path:
    """A public trace of a real GPU, which is beside the checkout on some machines."""
    if not (INGERO / name).exists():
        pytest.skip("there are no public traces beside the checkout")
    return INGERO / name


def notes(path: Path) -> str:
    """What is reported of a file beside its findings."""
    return "\n".join(gputop.explain(path).notes)


# -- kernels: torch.profiler and Nsight Systems ---------------------------------------------------------


@pytest.mark.parametrize("kind", ["kineto", "kineto.gz", "nsys"])
def test_a_gpu_is_busy_while_its_kernels_and_copies_run_and_only_then(kind: str, tmp_path: Path) -> None:
    ops, operators = made_traces.loop()
    busy, span = made_traces.busy_and_span(ops)
    path = imported(made(kind, tmp_path), tmp_path)
    report = gputop.explain(path)
    (gpu,) = report.gpus
    assert (gpu.span_ns, gpu.account.busy_ns) == (span, busy)
    assert (report.idle.lower, report.idle.upper) == (span - busy, span - busy)
    assert gpu.account.unknown_ns == gpu.account.estimated_ns == 0
    assert report.steps is not None
    assert report.steps.count in (made_traces.STEPS, made_traces.STEPS - 1)
    told = notes(path)
    kernels = made_traces.STEPS * made_traces.LAUNCHES
    assert report.exact is not None
    assert [one.runs for one in report.exact.kernels] == [kernels]
    # the oracle: the part of the idle time in which the loader was asked, by a loop
    inside = 0
    times = sorted(op.kernel for op in ops if op.kernel is not None)
    for (_, end), (begin, _) in pairwise(times):
        inside += sum(
            max(min(begin, last) - max(end, first), 0)
            for name, first, last in operators
            if "DataLoader" in name
        )
    assert f"_SingleProcessDataLoaderIter.__next__ {100 * inside / (span - busy):.0f} %" in told
    assert "whether a thread ran, waited for a CPU or slept is not known" in told


@pytest.mark.parametrize("kind", ["kineto", "nsys"])
def test_a_loader_in_the_process_itself_is_the_cause_where_the_profiler_has_recorded_it(
    kind: str, tmp_path: Path
) -> None:
    report = gputop.explain(imported(made(kind, tmp_path), tmp_path))
    (finding,) = report.findings
    assert (finding.cause, finding.level) == ("C12", "proved")
    assert finding.loss.lower > 0.9 * report.idle.lower
    assert finding.ruled_out == ()  # what threads waited for is not in the trace
    assert "whether it ran there is not recorded" in finding.chain[-1].text


def test_of_a_loader_with_workers_it_is_reported_that_they_are_late_and_not_why(tmp_path: Path) -> None:
    """What the workers did is in no trace of one process."""
    trace = made_traces.kineto(tmp_path / "workers.json", of=made_traces.loop(made_traces.WORKERS))
    report = gputop.explain(imported(trace, tmp_path))
    (finding,) = report.findings
    assert (finding.cause, finding.level) == ("C49", "strong")
    assert finding.loss.lower > 0.9 * report.idle.lower
    assert "_MultiProcessingDataLoaderIter.__next__" in finding.chain[-1].text


def test_kernels_that_end_long_before_the_next_launch_are_launched_too_slowly(tmp_path: Path) -> None:
    ops = made_traces.launching()
    report = gputop.explain(imported(made_traces.kineto(tmp_path / "small.json", of=(ops, [])), tmp_path))
    busy, span = made_traces.busy_and_span(ops)
    (finding,) = [one for one in report.findings if one.kind == "idle"]
    assert (finding.cause, finding.level) == ("C06", "strong")
    assert finding.loss.lower == pytest.approx(span - busy, rel=0.01)


@pytest.mark.parametrize("kind", ["kineto", "nsys"])
def test_calls_keep_their_times_threads_sizes_streams_and_what_they_gave(kind: str, tmp_path: Path) -> None:
    ops, _ = made_traces.loop()
    with gputop.open_session(imported(made(kind, tmp_path), tmp_path)) as session:
        assert session.header["source"] == kind
        assert not session.problems
        evidence = evidence_of(session)
        calls = evidence.calls
        start = int(calls["begin"][0]) - ops[0].begin
        rows = zip(
            (evidence.apis.name(op) for op in calls["op"].tolist()),
            (calls["begin"] - start).tolist(),
            (calls["end"] - start).tolist(),
            calls["bytes"].tolist(),
            strict=True,
        )
        assert list(rows) == [(op.name, op.begin, op.end, op.size) for op in ops]
        assert set(calls["tid"].tolist()) == {made_traces.TID}
        given = [op.kernel is not None for op in ops]
        assert [stream == 7 for stream in calls["stream"].tolist()] == given
        kernels = evidence.activities.of("kernel", "copy")
        told = sorted(
            zip((kernels["begin"] - start).tolist(), (kernels["end"] - start).tolist(), strict=True)
        )
        assert told == sorted(op.kernel for op in ops if op.kernel is not None)
        clock = session.header["clock"]
        epoch = int(calls["begin"][0]) + clock["realtime_ns"] - clock["monotonic_ns"]
        assert abs(epoch - made_traces.START - ops[0].begin) < 2


def test_switches_of_nsys_are_stays_off_the_cpu_and_what_they_lack_is_not_known(tmp_path: Path) -> None:
    other = made_traces.TID + 1
    switches = [
        (1_000, 1, made_traces.TID, 1),  # what was before is not known
        (500_000, 0, made_traces.TID, 4),
        (900_000, 1, made_traces.TID, 1),
        (2_000_000, 0, other, 4),
        (2_500_000, 0, other, 4),  # its end was not seen
        (2_600_000, 1, other, 1),
        (9_000_000, 0, made_traces.TID, 4),  # it does not come back
    ]
    path = imported(made_traces.nsys(tmp_path / "switches.sqlite", switches=switches[::-1]), tmp_path)
    plain = imported(made_traces.nsys(tmp_path / "plain.sqlite"), tmp_path)
    with gputop.open_session(path) as session:
        evidence = evidence_of(session)
        stays = evidence.activities.of("off the CPU")
        start = int(evidence.calls["begin"][0]) - made_traces.loop()[0][0].begin
        found = sorted(
            zip(
                (stays["begin"] - start).tolist(),
                (stays["end"] - start).tolist(),
                stays["tid"].tolist(),
                strict=True,
            )
        )
        assert found == [(500_000, 900_000, made_traces.TID), (2_500_000, 2_600_000, other)]
        assert {evidence.activities.texts[name] for name in stays["name"].tolist()} == {"Blocked"}
    notes = gputop.explain(path).notes
    assert any("nor the waker" in note for note in notes)
    assert any("holds no switches: whether" in note for note in gputop.explain(plain).notes)
    alone, both = gputop.explain(plain), gputop.explain(path)
    assert (both.idle, both.span_ns) == (alone.idle, alone.span_ns)


def test_absolute_times_of_a_trace_without_a_base_are_reported_to_be_coarse(tmp_path: Path) -> None:
    ops, _ = made_traces.loop()
    busy, span = made_traces.busy_and_span(ops)
    path = imported(made_traces.kineto(tmp_path / "old.json", relative=False), tmp_path)
    report = gputop.explain(path)
    assert abs(report.gpus[0].account.busy_ns - busy) < 500 * len(ops)
    assert abs(report.span_ns - span) < 1000
    assert "exact to 250 ns" in notes(path)


def test_lines_of_calls_are_the_operators_around_them(tmp_path: Path) -> None:
    totals = gputop.stats(imported(made("kineto", tmp_path), tmp_path))
    lines = {(row.api, row.line.function): row.count for process in totals.processes for row in process.lines}
    assert lines["cudaLaunchKernel", "aten::mm"] == made_traces.STEPS * made_traces.LAUNCHES


def test_perfetto_and_parquet_get_the_kernels(tmp_path: Path) -> None:
    duckdb = needed("duckdb")
    path = imported(made("kineto", tmp_path), tmp_path)
    busy, _ = made_traces.busy_and_span(made_traces.loop()[0])
    assert typed("export", str(path), "--to", "perfetto", "-o", str(tmp_path / "out.pftrace")) == 0
    with loaded(tmp_path / "out.pftrace", tmp_path) as query:
        assert query("select name, value from stats where severity != 'info' and value > 0") == []
        (row,) = query(
            "select count(*) n, sum(dur) ns from slice s join track t on s.track_id = t.id"
            " where t.name = 'GPU 0 stream 7'"
        )
        assert row == {"n": made_traces.STEPS * (made_traces.LAUNCHES + 1), "ns": busy}
    assert typed("export", str(path), "--to", "parquet", "-o", str(tmp_path / "out")) == 0
    found = duckdb.sql(
        f"select what, count(*) from '{tmp_path}/out/activities.parquet' group by 1"
    ).fetchall()
    assert dict(found)["kernel"] == made_traces.STEPS * made_traces.LAUNCHES


@pytest.mark.slow
@pytest.mark.parametrize("kind", MADE)
def test_an_imported_file_is_a_recording_to_every_command(kind: str, tmp_path: Path) -> None:
    path = str(imported(made(kind, tmp_path), tmp_path))
    for words in (
        ["verify", path],
        ["inspect", path],
        ["stats", "--json", path],
        ["replay", "--once", path],
        ["replay", "--once", "--json", path],
        ["report", path, "-o", str(tmp_path / "page.html")],
        ["export", path, "--to", "csv", "-o", str(tmp_path / "csv")],
        ["export", path, "--to", "speedscope", "-o", str(tmp_path / "scope.json")],
        ["diff", path, path],
    ):
        assert typed(*words) == 0, words
    assert typed("explain", path) in (0, 3)
    assert typed("cut", path, str(tmp_path / "part.msgpack"), "--from", "0.02", "--to", "0.04") == 0
    assert typed("explain", str(tmp_path / "part.msgpack")) in (0, 3)


@pytest.mark.long
def test_a_real_trace_of_torch_profiler_is_taken_and_says_that_it_holds_no_kernels(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", str(ROOT / "scripts" / "torch.sh")], capture_output=True, text=True, check=False
    )
    if done.returncode:
        skip_or_fail(f"PyTorch cannot be had: {done.stderr}")
    program = """
import sys, torch
from torch.profiler import profile, ProfilerActivity, record_function
a = torch.randn(64, 64)
with profile(activities=[ProfilerActivity.CPU], with_stack=True) as p:
    for _ in range(5):
        with record_function("my_step"):
            (a @ a).relu().sum().item()
p.export_chrome_trace(sys.argv[1])
"""
    packed, plain = tmp_path / "real.json.gz", tmp_path / "real.json"
    subprocess.run(
        [done.stdout.strip(), "-c", program, str(packed)], check=True, capture_output=True, timeout=300
    )
    plain.write_bytes(gzip.decompress(packed.read_bytes()))
    for trace in (packed, plain):
        path = imported(trace, tmp_path)
        report = gputop.explain(path)
        assert "the trace holds no kernels" in report.verdict
        assert not report.findings
        with gputop.open_session(path) as session:
            activities = evidence_of(session).activities
            operators = activities.of("operator", "range")
            names = [activities.texts[row] for row in operators["name"].tolist()]
        assert len(operators) > 0
        assert names.count("my_step") == 5


# -- Ingero ---------------------------------------------------------------------------------------------


def test_of_the_loader_s_trace_the_rows_speak_and_not_the_verdicts_stored_in_it(tmp_path: Path) -> None:
    source = public("pytorch-dataloader-starvation.db")
    path = imported(source, tmp_path)
    report, told = gputop.explain(path), notes(path)
    assert not report.findings
    assert "Idle time is not known from this file: Ingero records no streams" in report.verdict
    assert "the one 25.8ms cudaLaunchKernel is the first of its function: the 15 after it have" in told
    assert re.search(
        r"cudaMemcpyAsync: \d+ of 14 copies moved 1.0M to 400M .* their time grows with their size", told
    )
    assert "slow call of cudaLaunchKernel, 25.8ms in all, the thread was off the CPU for 0 (0 %)" in told
    assert re.search(r"switches of .*pt_data_worker .* exist only as totals", told)
    database = sqlite3.connect(f"file:{source}?mode=ro", uri=True)
    count, stored = database.execute(
        "select sum(count), sum(stored) from event_aggregates where source in (1, 4)"
    ).fetchone()
    assert f"{count - stored} of {count} calls were counted and not stored" in told
    assert report.lost_events == count - stored
    for summary, explanation in database.execute("select summary, explanation from causal_chains"):
        assert summary not in told
        assert explanation not in told
    assert "355" not in told  # the ratio of its 120 HIGH rows
    rows = database.execute("select count(*), sum(duration) from events where source = 1").fetchone()
    totals = gputop.stats(path)
    calls = [call for process in totals.processes for call in process.calls if call.api.startswith("cuda")]
    assert (sum(call.count for call in calls), sum(call.sum_ns for call in calls)) == rows
    nested = {call.api for process in totals.processes for call in process.calls if call.nested}
    assert "cuMemAlloc" in nested  # the runtime's rows contain the driver's


def test_of_the_node_s_trace_it_is_mostly_the_process_s_own_block_reads(tmp_path: Path) -> None:
    source = public("sample-gpu-node-01.db")
    told = notes(imported(source, tmp_path))
    database = sqlite3.connect(f"file:{source}?mode=ro", uri=True)
    stays, away = database.execute("select count(*), sum(duration) from events where source = 3").fetchone()
    (reads,) = database.execute("select count(*) from events where source = 5 and op = 1").fetchone()
    found = re.search(
        r"python3 \(1887\) was off the CPU for (\S+)ms in (\d+) stays; for (\d+) % of it its own", told
    )
    assert found is not None
    assert (float(found[1]), int(found[2])) == (pytest.approx(away / 1e6, abs=0.1), stays)
    assert int(found[3]) > 95
    assert f"({reads} reads" in told


def test_times_that_are_stamped_at_their_end_begin_where_they_began(tmp_path: Path) -> None:
    with gputop.open_session(imported(made("ingero", tmp_path), tmp_path)) as session:
        evidence = evidence_of(session)
    stays, calls = evidence.activities.of("off the CPU"), evidence.calls
    assert (stays["begin"] - calls["begin"]).tolist() == [8_500_000] * 20
    assert (stays["end"] - stays["begin"]).tolist() == [500_000] * 20


# -- what is damaged, foreign or made to do harm --------------------------------------------------------


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.slow
@pytest.mark.mainly("kineto", "kineto.gz", "nsys")
def test_a_damaged_trace_is_a_sentence_or_what_is_intact_of_it(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trace = made(kind, tmp_path)
    data, chance = trace.read_bytes(), random.Random(7)
    for number in range(60):
        broken = bytearray(data)
        if number % 3 == 0:
            del broken[chance.randrange(len(broken)) :]
        for _ in range(1 + number % 5):
            if broken:
                broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
        trace.write_bytes(broken)
        path = tmp_path / f"{number}.msgpack"
        status = typed("import", str(trace), "-o", str(path))
        said = capfd.readouterr().err
        assert "should not have happened" not in said, said
        assert path.exists() == (status == 0)
        if status == 0:
            assert typed("explain", str(path)) in (0, 1, 3)
            assert "should not have happened" not in capfd.readouterr().err


@pytest.mark.slow
def test_what_is_no_trace_says_what_can_be_imported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sqlite3.connect(tmp_path / "other.db").execute("create table t (a)")
    for name, content, word in (
        ("text", b"hello", "is a text file, no trace that gputop can import"),
        ("empty.json", b"{}", "has no list traceEvents"),
        ("none.json", b'{"traceEvents": []}', "nothing to import"),
        ("torn.json", b'{"traceEvents": [{"ph": "X"', "no valid JSON"),
        ("bomb.json.gz", __import__("gzip").compress(b"[" + bytes(300 << 20)), "larger than 16 MB"),
        ("other.db", None, "is an SQLite database with"),
        ("gone", ..., "there is no file"),
    ):
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        assert typed("import", str(path), "-o", str(tmp_path / "out")) == 1
        assert word in capfd.readouterr().err, name
    assert not (tmp_path / "out").exists()


def test_control_characters_and_numbers_of_any_kind_are_taken(tmp_path: Path) -> None:
    trace = made("kineto", tmp_path)
    document: Any = json.loads(trace.read_text())
    for event in document["traceEvents"][:60]:
        event["name"] = "a\x1b[2J\x01b"
        event.setdefault("args", {})["correlation"] = None
    odd = [1e300, -5, "x", None, True, [], {}, 1 << 80]
    for number, value in enumerate(odd):
        document["traceEvents"].append({"ph": "X", "cat": "kernel", "name": value, "ts": value, "dur": 1})
        document["traceEvents"].append(
            {"ph": "X", "cat": "kernel", "name": "k", "ts": number, "dur": value, "pid": value}
        )
    trace.write_text(json.dumps(document).replace("\\u001b", "\x1b"))
    path = imported(trace, tmp_path)
    assert "control characters" in "".join(gputop.stats(path).problems)
    assert typed("explain", str(path)) in (0, 3)


def test_a_file_with_kernels_says_nothing_of_recordings_without_them() -> None:
    """The negative control: gputop's own recordings have no such sentences."""
    assert "kernels ran" not in notes(ROOT / "recordings" / "storm.msgpack")

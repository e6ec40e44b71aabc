"""What ``gputop export`` writes, read by whom it is for: Perfetto's trace processor, DuckDB, csv."""

from __future__ import annotations

import csv
import gc
import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gputop
from gputop.exchange.formats import export
from gputop.exchange.packets import Ordered, Template
from gputop.exchange.session_tables import COLUMNS
from gputop.exchange.stacks import stack_times
from probes.schema import ALIASED, Kind, OffFlag, Records, join
from probes.source import GPUS, HOST, MARK, PROCESS, RESIDENT, Item, Sample
from replay.writer import SessionWriter
from tests import hostile_names
from tests.conftest import needed
from tests.trace_processor import loaded
from tests.typed import typed

S = 1_000_000_000
ROOT = Path(__file__).resolve().parents[1]
STORM, WORKERS, DIRECT = (
    ROOT / "recordings" / f"{name}.msgpack" for name in ("storm", "dataloader-workers", "dataloader-direct")
)


def exported(recording: Path, to: str, folder: Path) -> Path:
    """The recording in another form."""
    path = folder / f"{recording.stem}.{to}"
    assert typed("export", str(recording), "--to", to, "-o", str(path)) == 0
    return path


def records_of(recording: Path) -> Records:
    """All records of a recording."""
    with gputop.open_session(recording) as session:
        return join([item for item in session.items() if not isinstance(item, Sample)])


def call_sums(recording: Path) -> dict[tuple[int, str], tuple[int, int]]:
    """(process, function) -> (calls, their time), as ``gputop stats`` has it."""
    sums: dict[tuple[int, str], tuple[int, int]] = {}
    for process in gputop.stats(recording).processes:
        for call in process.calls:
            before = sums.get((process.pid, call.api), (0, 0))
            sums[process.pid, call.api] = before[0] + call.count, before[1] + call.sum_ns
    return sums


# -- Perfetto -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "recording",
    [STORM, WORKERS, pytest.param(DIRECT, marks=pytest.mark.long)],
    ids=lambda file: file.stem,
)
@pytest.mark.slow
@pytest.mark.mainly("dataloader-workers")
def test_perfetto_finds_every_call_state_wakeup_and_idle_piece(recording: Path, tmp_path: Path) -> None:
    records = records_of(recording)
    with gputop.open_session(recording) as session:
        report = gputop.explain(session)
    with loaded(exported(recording, "perfetto", tmp_path), tmp_path) as query:
        assert query("select name, value from stats where severity != 'info' and value > 0") == []
        rows = query(
            "select p.pid, s.name, count(*) n, sum(s.dur) ns from slice s"
            " join thread_track t on s.track_id = t.id join thread using (utid) join process p using (upid)"
            " where coalesce(t.name, '') not in ('off-CPU', 'wakeups') group by 1, 2"
        )
        assert {(row["pid"], row["name"]): (row["n"], row["ns"]) for row in rows} == call_sums(recording)
        slices = records[records["kind"] == Kind.OFFCPU].view(ALIASED)
        states = {
            (row["tid"], row["state"]): row["ns"]
            for row in query(
                "select tid, replace(state, 'D', 'S') state, sum(dur) ns from thread_state"
                " join thread using (utid) where dur >= 0 group by 1, 2"
            )
        }
        for tid in np.unique(slices["tid"]).tolist():
            own = slices[slices["tid"] == tid]
            assert states.get((tid, "R"), 0) == int(own["runnable"].sum())
            assert states.get((tid, "S"), 0) == int((own["duration"] - own["runnable"]).sum())
        woken = (slices["waker_tid"] > 0) & (slices["duration"] > slices["runnable"])
        woken &= (slices["flags"] & OffFlag.WAKE_MISSED) == 0
        flows = query(
            "select thread.tid waker, other.tid woken, count(*) n from flow"
            " join slice a on a.id = slice_out join slice b on b.id = slice_in"
            " join thread_track t on a.track_id = t.id join thread using (utid)"
            " join thread_track u on b.track_id = u.id join thread other on other.utid = u.utid group by 1, 2"
        )
        assert {(row["waker"], row["woken"]): row["n"] for row in flows} == Counter(
            zip(slices["waker_tid"][woken].tolist(), slices["tid"][woken].tolist(), strict=True)
        )
        idle = query(
            "select s.name, sum(dur) ns from slice s join track t on s.track_id = t.id"
            " where t.name like 'GPU%: idle' group by 1"
        )
        found = {row["name"][:3]: row["ns"] for row in idle}
        for finding in report.findings:
            if finding.kind == "idle" and finding.loss.upper == finding.loss.lower:
                assert found[finding.cause] >= finding.loss.lower
        moments = query(
            "select name, ts from slice where track_id in (select id from track where name like '%. C%')"
        )
        assert {(row["name"], row["ts"]) for row in moments} == {
            (one.title, report.start_ns + at) for one in report.findings for at in one.moments_ns
        }


@pytest.mark.long
def test_perfetto_gets_the_arguments_of_calls_and_what_nvml_counted(tmp_path: Path) -> None:
    records = records_of(WORKERS)
    totals = gputop.stats(WORKERS)
    with loaded(exported(WORKERS, "perfetto", tmp_path), tmp_path) as query:
        told = query(
            "select s.name, a.flat_key k, sum(a.int_value) total, count(*) n from slice s"
            " join args a using (arg_set_id) where a.flat_key in ('debug.bytes', 'debug.line') group by 1, 2"
        )
        moved = {row["name"]: row["total"] for row in told if row["k"] == "debug.bytes"}
        assert moved == {
            call.api: call.bytes for process in totals.processes for call in process.calls if call.bytes
        }
        lines = query(
            "select a.display_value line, s.name, count(*) n from slice s join args a using (arg_set_id)"
            " where a.flat_key = 'debug.line' and s.depth = 0 group by 1, 2"
        )
        assert {(row["line"], row["name"]): row["n"] for row in lines}.items() >= {
            (row.line.text(), row.api): row.count for process in totals.processes for row in process.lines
        }.items()
        counters = query(
            "select count(*) n from counter c join counter_track t on c.track_id = t.id"
            " where t.name = 'utilization_percent'"
        )
        with gputop.open_session(WORKERS) as session:
            samples = [item for item in session.items() if isinstance(item, Sample) and item.kind == "gpus"]
        assert counters == [{"n": len(samples)}]
        assert len(records)


@pytest.mark.parametrize("bits", [0, 7, 14, 15, 31, 47, 56, 63])
def test_a_packet_of_a_template_is_what_the_library_reads_as_its_numbers(bits: int) -> None:
    proto = needed("perfetto.protos.perfetto.trace.perfetto_trace_pb2")

    def fill(packet: Any, ask: Any) -> None:
        packet.timestamp = ask("time")
        packet.track_event.track_uuid = ask("track")
        packet.track_event.flow_ids.append(ask("flow"))

    numbers = {
        "time": np.array([0, 1 & (1 << bits) - 1, (1 << bits) - 1]),
        "track": np.array([1, 300, (1 << 31) - 1]),
        "flow": np.array([7, 1 << 60, 0]),
    }
    ordered = Ordered()
    template = Template(proto.TracePacket, fill, ("flow",))
    # of other numbers it has another shape
    template.packets({**{name: one[:1] for name, one in numbers.items()}, "time": np.array([1 << 40])})
    ordered.add(template.packets(numbers), np.array([2, 1, 0]), 0)
    trace = proto.Trace.FromString(ordered.bytes())
    assert [
        (packet.timestamp, packet.track_event.track_uuid, packet.track_event.flow_ids[0])
        for packet in trace.packet
    ] == list(zip(*(column[::-1].tolist() for column in numbers.values()), strict=True))


# -- tables ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_duckdb_adds_up_what_stats_and_explain_say(tmp_path: Path) -> None:
    duckdb = needed("duckdb")
    folder = exported(STORM, "parquet", tmp_path)
    document: Any = gputop.to_json(gputop.explain(STORM))
    totals = gputop.stats(STORM)

    def query(sql: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = duckdb.sql(
            re.sub(r"\{(\w+)\}", rf"'{folder}/\1.parquet'", sql)
        ).fetchall()
        return found

    rows = query("select pid, api, count(*), sum(duration_ns)::int64 from {calls} group by all")
    assert {(pid, api): (count, ns) for pid, api, count, ns in rows} == call_sums(STORM)
    threads = query("select tid, voluntary_switches, involuntary_switches, on_cpu_ns from {threads}")
    assert sorted(threads) == sorted(
        (one.tid, one.voluntary_switches, one.involuntary_switches, one.on_cpu_ns)
        for process in totals.processes
        for one in process.threads
    )
    assert query(
        "select cause, loss_lower_ns, loss_upper_ns, loss_estimate_ns, max_gain_ns from {findings}"
    ) == [
        (
            one["cause"],
            one["loss_ns"]["lower"],
            one["loss_ns"]["upper"],
            one["loss_ns"]["estimate"],
            one["max_gain_ns"],
        )
        for one in document["findings"]
    ]
    assert query("select verdict, duration_ns, lost_events from {sessions}") == [
        (document["verdict"], totals.duration_ns, 0)
    ]
    # every piece of idle time that findings, small gaps and what is unexplained are made of
    (idle,) = query("select sum(end_ns - start_ns)::int64 from {gaps} where cause = 'C13'")[0]
    assert idle == document["findings"][0]["loss_ns"]["estimate"]
    lines = query(
        "select s.function, sum(c.duration_ns)::int64 from {calls} c join {stacks} s using (stack_id)"
        " where s.file = 'stories.py' and s.line = 86 and not c.nested group by all"
    )
    assert lines == [("storm", next(row.sum_ns for row in totals.processes[0].lines if row.line.line == 86))]
    waits = query(
        "select sum(duration_ns - runnable_ns)::int64 from {slices} where syscall = 'clock_nanosleep'"
    )
    assert waits[0][0] > 14e9


@pytest.mark.slow
def test_tables_are_small_and_their_columns_are_those_of_the_page(tmp_path: Path) -> None:
    parquet = needed("pyarrow.parquet")
    folder = exported(STORM, "parquet", tmp_path)
    calls = call_sums(STORM)
    assert (folder / "calls.parquet").stat().st_size < 6 * sum(count for count, _ in calls.values())
    page = (ROOT / "docs" / "exchange.md").read_text(encoding="utf-8")
    for table, columns in COLUMNS.items():
        schema = parquet.read_schema(folder / f"{table}.parquet")
        assert {field.name: str(field.type) for field in schema} == columns
        (row,) = re.findall(rf"^\| `{table}` \|.*$", page, re.MULTILINE)
        assert set(re.findall(r"`(\w+)`", row)) - {table} >= set(columns), table


def test_tables_show_the_machine_of_users_of_gpus_and_of_whose_a_process_is(tmp_path: Path) -> None:
    source = tmp_path / "told.msgpack"
    about = {"pid": 42, "name": "train", "command": "train.py", "user": "eve", "watched": True}
    about |= {"job_kind": "slurm", "job_id": "7", "rank": 3, "world_size": 4, "start_ns": 5 * S}
    use = {key: [0] for key in ("encoder_percent", "decoder_percent")}
    use |= {"pid": [42], "sm_percent": [61], "memory_percent": [7]}
    clients = [{"pid": 42, "kind": "C", "memory_bytes": 64}]
    gpu = {"index": 1, "clients": clients, "process_utilization": use}
    writer = SessionWriter(str(source), {"start_ns": 9 * S, "clock": {"boottime_ns": 0, "monotonic_ns": 0}})
    for item in (
        Sample(PROCESS, 10 * S, about),
        Sample(RESIDENT, 10 * S, {"pid": [42], "rss_bytes": [4096]}),
        Sample(HOST, 10 * S, {"cores_percent": [100.0, 50.0], "load": [1.5, 1.0, 0.5]}),
        Sample(GPUS, 10 * S, {"gpus": [gpu]}),
        Sample(MARK, 10 * S, {"number": 1, "wall_ns": 10 * S, "lost": {}}),
    ):
        writer.write(item)
    writer.close()
    folder = exported(source, "csv", tmp_path)
    rows = {}
    for table in ("processes", "process_samples", "host_samples"):
        with open(folder / f"{table}.csv", newline="", encoding="utf-8") as file:
            (rows[table],) = csv.DictReader(file)
    process, used, host = rows.values()
    assert [process[key] for key in ("user", "job_id", "rank", "world_size", "pod")] == [
        "eve",
        "7",
        "3",
        "4",
        "",
    ]
    assert process["began_ns"] == str(-4 * S)
    assert [used[key] for key in ("gpu", "memory_bytes", "sm_percent", "rss_bytes")] == [
        "1",
        "64",
        "61",
        "4096",
    ]
    assert [host[key] for key in ("cpu_percent", "load_1", "swap_free_bytes")] == ["75.0", "1.5", ""]


@pytest.mark.slow
def test_csv_and_parquet_hold_the_same(tmp_path: Path) -> None:
    parquet = needed("pyarrow.parquet")
    one, other = exported(DIRECT, "csv", tmp_path), exported(DIRECT, "parquet", tmp_path)
    for table in COLUMNS:
        with open(one / f"{table}.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
        held = parquet.read_table(other / f"{table}.parquet")
        assert rows[0] == held.column_names
        wanted = [["" if cell is None else str(cell) for cell in row.values()] for row in held.to_pylist()]
        assert rows[1:] == wanted, table


def test_no_cell_of_a_csv_file_is_a_formula_or_holds_a_control_character(tmp_path: Path) -> None:
    folder = exported(hostile_names.write(tmp_path / "names.msgpack"), "csv", tmp_path)
    names = []
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", data), path
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                names += [row["name"]] if path.stem == "processes" else []
                for cell in row.values():
                    assert cell is not None
                    assert re.fullmatch(r"-?[0-9.]+", cell) or not cell.startswith(("=", "+", "-", "@")), cell
    assert '\'=HYPERLINK("http://x")' in names
    assert "'\\x09=1" in names
    assert len(names) == len(hostile_names.NAMES)


def test_names_that_are_meant_to_do_harm_are_names_to_perfetto(tmp_path: Path) -> None:
    path = hostile_names.write(tmp_path / "names.msgpack")
    with loaded(exported(path, "perfetto", tmp_path), tmp_path) as query:
        assert query("select name, value from stats where severity != 'info' and value > 0") == []
        names = {row["name"] for row in query("select name from process where pid >= 100")}
    assert len(names) == len(hostile_names.NAMES)
    assert not any(re.search(r"[\x00-\x1f\x7f\u202e]", name) for name in names)
    assert max(map(len, names)) <= 1000


# -- speedscope -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("recording", [STORM, WORKERS], ids=lambda file: file.stem)
def test_speedscope_has_all_stacks_with_their_time(recording: Path, tmp_path: Path) -> None:
    document = json.loads(exported(recording, "speedscope", tmp_path).read_text())
    with gputop.open_session(recording) as session:
        stacks = stack_times(session)
    totals = gputop.stats(recording)
    frames = document["shared"]["frames"]
    for profile in document["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"])
        assert sum(profile["weights"]) == profile["endValue"]
        assert all(0 <= frame < len(frames) for sample in profile["samples"] for frame in sample)
    assert len({json.dumps(frame) for frame in frames}) == len(frames)
    whole = sum(row.ns for row in (*stacks.calls, *stacks.waits))
    assert sum(profile["endValue"] for profile in document["profiles"]) == whole
    lines: Counter[tuple[str, int]] = Counter()
    for profile in document["profiles"]:
        for sample, weight in zip(profile["samples"], profile["weights"], strict=True):
            if "in CUDA calls" in profile["name"]:
                lines.update(
                    {(frames[row].get("file", ""), frames[row].get("line", 0)): weight for row in sample}
                )
    for process in totals.processes:
        for row in process.lines:
            assert lines[row.line.file, row.line.line] >= row.sum_ns


# -- what goes wrong ------------------------------------------------------------------------------------


def test_what_is_missing_is_reported_and_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for module, to in (("pyarrow", "parquet"), ("perfetto.protos.perfetto.trace", "perfetto")):
        monkeypatch.setitem(sys.modules, module, None)
        assert typed("export", str(STORM), "--to", to, "-o", str(tmp_path / to)) == 1
        assert f"{sys.executable} -m pip install 'perfetto>=" in capfd.readouterr().err
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine").touch()
    assert typed("export", str(STORM), "--to", "csv", "-o", str(tmp_path / "there")) == 1
    assert "exists already" in capfd.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["there", "mine"]


class Interrupted:
    """A progress that is interrupted when the tables are being written."""

    stopped = False

    def through(self, items: Iterable[Item], marks: int) -> Iterator[Item]:
        """Some of the items."""
        yield from itertools.islice(items, marks // 2)
        raise KeyboardInterrupt

    def parts(self, done: int, of: int) -> None:
        """Goes on."""

    def goes_on(self, doing: str) -> None:
        """Goes on."""


class InterruptedLate(Interrupted):
    """The same after everything was explained."""

    writing = False

    def through(self, items: Iterable[Item], marks: int) -> Iterator[Item]:
        """All items, but for those that are written."""
        yield from super().through(items, marks) if self.writing else items

    def goes_on(self, doing: str) -> None:
        """Whether it writes."""
        self.writing = doing == "writing"


@pytest.mark.slow
@pytest.mark.parametrize("progress", [Interrupted(), InterruptedLate()])
@pytest.mark.parametrize("to", ["parquet", "csv"])
def test_an_interrupt_leaves_nothing_behind_and_says_nothing_else(
    progress: Interrupted, to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if to == "parquet":
        needed("pyarrow")
    said: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda complaint: said.append(str(complaint.exc_value)))
    with pytest.raises(KeyboardInterrupt), gputop.open_session(STORM) as session:
        export(session, str(tmp_path / "out"), to, progress)
    gc.collect()
    assert said == []
    assert list(tmp_path.iterdir()) == []


def test_a_finding_has_the_columns_that_the_page_names() -> None:
    page = (ROOT / "docs" / "exchange.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| `findings` |"))
    assert list(COLUMNS["findings"]) == re.findall(r"`(\w+)`", row.split("|")[3])

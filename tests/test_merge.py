"""Several recordings as one: nothing is counted twice or lost, clocks are as exact as is reported."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import gputop
from gputop.analysis.proofs.gaps import GpuTime
from gputop.api.recording_evidence import evidence_of
from gputop.merging.numbering import PIDS_APART
from probes.source import FRAMES, GPUS, MARK, NAMES, Item, Sample
from probes.stacks.stack_samples import kernel_number
from tests import items
from tests.inside import run
from tests.items import MS, SECOND, START
from tests.json_page import assert_documented
from tests.random_recording import recording
from tests.session_data import totals
from tests.split_recording import of_processes, read, without_marks, write
from tests.two_ranks import job

ADD = 0x7F00_0000_1000  # the host function of a kernel
FOLDER = Path(__file__).resolve().parents[1] / "recordings"
WORKERS = FOLDER / "dataloader-workers.msgpack"


def merged(out: Path, *parts: Path) -> Path:
    """The file that the command writes."""
    result = run("merge", *map(str, parts), "-o", str(out))
    assert result.returncode == 0, result.stderr
    return out


def pids_of(path: Path) -> list[int]:
    """Processes of which there are records."""
    _header, told = read(path)
    batches = [item for item in told if not isinstance(item, Sample)]
    return sorted({int(pid) for batch in batches for pid in batch["pid"].tolist()})


# -- one ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["storm", "dataloader-workers", "dataloader-fixed"])
@pytest.mark.slow
@pytest.mark.mainly("dataloader-workers")
def test_one_recording_merged_is_itself(name: str, tmp_path: Path) -> None:
    out = merged(tmp_path / "out", FOLDER / f"{name}.msgpack")
    for command in ("stats", "explain"):
        printed = [run(command, "--json", str(path)).stdout for path in (FOLDER / f"{name}.msgpack", out)]
        assert json.loads(printed[1]) == json.loads(printed[0])


# -- one machine ----------------------------------------------------------------------------------------


@pytest.fixture
def apart(tmp_path: Path) -> list[Path]:
    """A recording as of two recorders with marks of their own, each of half of the processes."""
    header, told = read(WORKERS)
    half = pids_of(WORKERS)[::2]
    one = of_processes(told, lambda pid: pid in half)
    other = without_marks(of_processes(told, lambda pid: pid not in half), lambda number: number % 3 == 0)
    last = [item for item in told if isinstance(item, Sample)][-2:]
    return [
        write(tmp_path / "one", header, one),
        write(tmp_path / "other", header, [*other, *of_processes(last, lambda pid: pid not in half)]),
    ]


@pytest.mark.slow
def test_the_totals_of_recorders_of_one_machine_are_those_of_one_that_saw_it_all(
    apart: list[Path], tmp_path: Path
) -> None:
    whole, found = totals(WORKERS), totals(merged(tmp_path / "out", *apart))
    assert {**found, "lost": whole["lost"]} == whole
    assert found["lost"]["events"] == 0


@pytest.mark.slow
def test_what_is_reported_of_each_moment_is_what_one_recorder_would_have_reported(
    apart: list[Path], tmp_path: Path
) -> None:
    """By the frames of the whole: threads off their CPU between two marks of a part are known."""
    with (
        gputop.open_session(merged(tmp_path / "out", *apart)) as found,
        gputop.open_session(WORKERS) as whole,
    ):
        there = {frame.time_ns: frame for frame in whole.frames()}
        compared = 0
        for frame in found.frames():
            if frame.time_ns not in there or frame.time_ns <= START:
                continue
            for mine, theirs in zip(frame.processes, there[frame.time_ns].processes, strict=True):
                assert (mine.pid, mine.calls) == (theirs.pid, theirs.calls)
                states = [
                    [
                        (thread.tid, thread.on_cpu_ns, thread.runnable_ns, thread.blocked_ns)
                        for thread in one.threads
                    ]
                    for one in (mine, theirs)
                ]
                assert states[0] == states[1]
            compared += 1
        assert compared > 5


@pytest.mark.slow
def test_other_commands_take_a_merged_recording(apart: list[Path], tmp_path: Path) -> None:
    out = str(merged(tmp_path / "out", *apart))
    assert run("verify", out).returncode == 0
    inspected = json.loads(run("inspect", "--json", out).stdout)
    assert_documented(inspected)
    assert [(part["clock"], part["later_ns"], part["error_ns"]) for part in inspected["parts"]] == [
        ("same", 0, 0),
        ("same", 0, 0),
    ]
    assert "clock exact" in run("inspect", out).stdout
    assert "is gone" not in run("diff", str(WORKERS), out).stdout
    assert run("replay", "--once", "--at", "1", out).returncode == 0
    assert run("export", out, "--to", "csv", "-o", str(tmp_path / "csv")).returncode == 0
    assert run("cut", out, str(tmp_path / "part"), "--to", "1").returncode == 0


def test_a_process_that_two_recorders_saw_at_a_time_is_not_counted_twice(tmp_path: Path) -> None:
    result = run("merge", str(WORKERS), str(WORKERS), "-o", str(tmp_path / "out"))
    assert result.returncode == 1
    assert "counted twice" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_what_cannot_be_merged_is_reported(tmp_path: Path) -> None:
    header, told = read(WORKERS)
    for change, words in (
        ({"calls_observed": False}, "without eBPF"),
        ({"machine": {**header["machine"], "architecture": "aarch64"}}, "system calls"),
        ({"source": "kineto"}, "they differ in source"),
        ({"merged": {"parts": []}}, "merged already"),
        ({"detail": "adaptive"}, "record with --detail full"),
    ):
        other = write(tmp_path / f"other-{next(iter(change))}", {**header, **change}, told)
        result = run("merge", str(WORKERS), str(other), "-o", str(tmp_path / "out"))
        assert (result.returncode, words in result.stderr) == (1, True), result.stderr
    there = run("merge", str(WORKERS), "-o", str(WORKERS))
    assert "exists already" in there.stderr


# -- what was not recorded -------------------------------------------------------------------------------


@pytest.mark.slow
def test_while_a_part_was_not_recorded_nothing_is_proved(tmp_path: Path) -> None:
    told = list(recording(3, 20.0))
    header = {**items.HEADER, "machine": {"boot": "b"}}
    one = write(tmp_path / "one", header, of_processes(told, lambda pid: pid < 200))
    later = START + 8 * SECOND
    second = [item for item in of_processes(told, lambda pid: pid >= 200) if _time(item) > later]
    other = write(tmp_path / "other", {**header, "start_ns": later}, list(_from_one(second)))
    out = merged(tmp_path / "out", one, other)
    with gputop.open_session(out) as session:
        evidence = evidence_of(session)
    lost = list(zip(*evidence.lost, strict=True))
    assert lost[0][0] <= START
    assert lost[0][1] >= later
    gaps = GpuTime(evidence).gaps
    assert len(gaps)
    assert not ((gaps.begin < later) & gaps.proved).any()
    notes = gputop.explain(out).notes
    assert any("not recorded by all" in note for note in notes)
    assert run("inspect", out.as_posix()).stdout.count("not recorded by all parts") == 1


def _time(item: Item) -> int:
    return item.time_ns if isinstance(item, Sample) else int(item["t_end"].max())


def _from_one(told: list[Item]) -> Iterator[Item]:
    """As a recorder that begins there: an ApiTable first, records numbered from one on."""
    yield items.apis()
    yield from of_processes(told, lambda pid: True)


# -- several machines ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_machines_have_processes_and_gpus_of_their_own(tmp_path: Path) -> None:
    header, told = read(FOLDER / "dataloader.msgpack")
    one = write(tmp_path / "one", {**header, "machine": {**header["machine"], "boot": "a"}}, told)
    other = write(tmp_path / "other", {**header, "machine": {**header["machine"], "boot": "b"}}, told)
    out = merged(tmp_path / "out", one, other)
    whole, found = totals(one), totals(out)
    assert found["events"] == 2 * whole["events"]
    first, second = (
        [row for row in found["processes"] if (row["pid"] > PIDS_APART) == far] for far in (False, True)
    )
    assert first == whole["processes"]
    assert [row["pid"] - PIDS_APART for row in second] == [row["pid"] for row in first]
    for mine, theirs in zip(second, first, strict=True):
        assert mine["calls"] == theirs["calls"]
        assert mine["lines"] == theirs["lines"]
        assert mine["waits"] == theirs["waits"]
    alone, both = gputop.explain(one), gputop.explain(out)
    assert [gpu.label for gpu in both.gpus] == ["GPU 0", "GPU 100"]
    for gpu in both.gpus:
        assert gpu.account == alone.gpus[0].account
    assert {finding.cause for finding in both.findings} == {finding.cause for finding in alone.findings}


@pytest.mark.parametrize("boots", [("a", "a"), ("a", "b")], ids=["one machine", "two machines"])
def test_kernels_keep_their_names(boots: tuple[str, str], tmp_path: Path) -> None:
    files, frames = [], [[("/x/libtorch_cuda.so", 0, "add")]]
    for pid, boot in zip((10, 20), boots, strict=True):
        header = {**items.HEADER, "machine": {**items.HEADER.get("machine", {}), "boot": boot}}
        told = [
            items.apis(),
            items.process(pid, name="train"),
            Sample(FRAMES, START, {"pid": [pid], "stack": [kernel_number(pid, ADD)], "frames": frames}),
            *(
                items.call(START + at * MS, 10, "cudaLaunchKernel", pid=pid, tid=pid, aux=ADD)
                for at in (1, 2)
            ),
            items.mark(1, START + 250 * MS),
        ]
        files.append(write(tmp_path / f"{pid}", header, told))
    found = totals(merged(tmp_path / "out", *files))["processes"]
    assert [[(row["name"], row["launches"]) for row in one["kernels"]] for one in found] == [[("add", 2)]] * 2


def test_of_two_recorders_of_a_machine_one_at_a_time_shows_its_gpus(tmp_path: Path) -> None:
    """The longer one while both run, the other one before and after."""
    files = []
    for pid, low, high in ((10, 0, 3000), (20, 2000, 4000), (30, 6000, 7000)):
        start = START + low * MS
        told = [items.apis(), items.process(pid, start, name="train")]
        for number, at in enumerate(range(low + 250, high + 1, 250), 1):
            call = items.call(START + at * MS - 100, 10, pid=pid, tid=pid)
            told += [call, items.gpus(START + at * MS - 50, pid), items.mark(number, START + at * MS)]
        header = {**items.HEADER, "start_ns": start, "machine": {"boot": "a"}}
        files.append(write(tmp_path / f"{pid}", header, told))
    out = merged(tmp_path / "out", *files)
    _header, told = read(out)
    samples = [item for item in told if isinstance(item, Sample) and item.kind == GPUS]
    moments = [(sample.time_ns + 50 - START) // MS for sample in samples]
    assert sorted(moments) == [*range(250, 4001, 250), *range(6250, 7001, 250)]


def test_the_gpus_of_a_merged_recording_are_listed_although_its_last_part_shows_none(
    tmp_path: Path,
) -> None:
    files = []
    for pid, low, gpus in ((10, 0, True), (20, 60_000, False)):
        start = START + low * MS
        told = [
            items.apis(),
            items.process(pid, start, name="train"),
            items.call(start + 10, 5, pid=pid, tid=pid),
        ]
        told += [items.gpus(start + 20 * MS, 5)] if gpus else []
        told += [items.mark(1, start + 250 * MS)]
        header = {**items.HEADER, "start_ns": start, "machine": {"boot": "a"}}
        files.append(write(tmp_path / f"{pid}", header, told))
    found = json.loads(run("inspect", "--json", str(merged(tmp_path / "out", *files))).stdout)
    assert [gpu["index"] for gpu in found["gpus"]] == [0]


def test_a_merged_recording_is_redacted_as_its_parts_are(tmp_path: Path) -> None:
    parts = []
    for boot in "ab":
        header, told = job(0, random.Random(1), pid=100, boot=boot)
        header["machine"] = {"boot": boot, "host": f"node-{boot}"}
        known = [
            items.names(START, {100: f"train{boot}"}, pid=100),
            items.names(START, {500: "secretd"}, pid=500),
        ]
        parts.append(write(tmp_path / boot, header, [*told[:2], *known, *told[2:]]))
    out, public = merged(tmp_path / "out", *parts), tmp_path / "public"
    assert run("redact", str(out), str(public)).returncode == 0
    _header, told = read(public)
    names = {
        pid: name
        for item in told
        if isinstance(item, Sample) and item.kind == NAMES
        for pid, name in zip(item.data["pid"], item.data["name"], strict=True)
    }
    assert (names[100], names[100 + PIDS_APART]) == ("traina", "trainb")
    assert names[500].startswith("other-")
    assert names[500 + PIDS_APART].startswith("other-")
    assert b"node-" not in public.read_bytes()


@pytest.mark.parametrize("private", [(True, True), (True, False)], ids=["all private", "one is not"])
def test_what_is_merged_of_private_recordings_does_not_name_their_files(
    private: tuple[bool, bool], tmp_path: Path
) -> None:
    files = []
    for pid, own in zip((10, 20), private, strict=True):
        call = items.call(START + 10, 5, pid=pid, tid=pid)
        told: list[Item] = [items.apis(), call, items.mark(1, START + SECOND)]
        files.append(write(tmp_path / f"eves-{pid}", {**items.HEADER, "private": own}, told))
    header, _told = read(merged(tmp_path / "out", *files))
    assert header["private"] == all(private)
    assert ("eves-" in str(header)) != all(private)


@pytest.mark.slow
def test_marks_of_the_whole_are_about_as_many_as_of_a_part(apart: list[Path], tmp_path: Path) -> None:
    _header, told = read(merged(tmp_path / "out", *apart))
    _header, alone = read(WORKERS)
    marks = [sum(isinstance(item, Sample) and item.kind == MARK for item in some) for some in (told, alone)]
    assert marks[0] <= marks[1] + 2

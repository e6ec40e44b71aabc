"""Recordings that keep the records of what matters, and sums of the rest: exact totals, no proof made up."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gputop
from gputop.analysis.evidence.columns import intersect, length
from gputop.analysis.proofs.gaps import GpuTime
from gputop.api.recording_evidence import evidence_of
from gputop.engine.tally import Tally
from gputop.recording import adaptive
from gputop.recording.adaptive import Adaptive, RecordingDetail, SumsOnly
from probes import api
from probes.schema import Kind
from probes.source import MARK, SUMS, Item, Sample
from replay.writer import SessionWriter
from tests.inside import run
from tests.items import MS, SECOND
from tests.json_page import assert_documented
from tests.long_session import Rounds
from tests.session_data import totals
from tests.split_recording import read

pytestmark = pytest.mark.slow
FOLDER = Path(__file__).resolve().parents[1] / "recordings"
ONCE = {("adaptive", True)}  # of the storm, which takes twenty seconds each
NAMES = ("dataloader-workers", "dataloader-fixed", "storm")
ALWAYS = "dataloader-workers"


def long(name: str, seconds: int = 30) -> tuple[dict[str, Any], list[Item]]:
    """A recording that goes on for some time."""
    rounds = Rounds(FOLDER / f"{name}.msgpack")
    end = int(rounds.header["start_ns"]) + seconds * SECOND
    told: list[Item] = []
    for item in rounds.items(1 << 40):
        told.append(item)
        if isinstance(item, Sample) and item.kind == MARK and item.time_ns > end:
            break
    return dict(rounds.header), told


def through(detail: RecordingDetail, told: Iterable[Item]) -> Iterator[Item]:
    """What is written of some items."""
    for item in told:
        yield from detail.consume(item)
    yield from detail.finish()


def write(path: Path, header: dict[str, Any], told: Iterable[Item], *, sums: bool = False) -> Path:
    """A recording of these items."""
    writer = SessionWriter(path, header, sums=Tally() if sums else None)
    for item in told:
        writer.write(item)
    writer.close()
    return path


def slow(told: list[Item], at: int) -> list[Item]:
    """The same with one launch that took 300 ms, near a moment."""
    found = []
    done = False
    for item in told:
        if not done and not isinstance(item, Sample):
            mine = (item["kind"] == Kind.CALL) & (item["op"] == api.OP_OF["cudaLaunchKernel"])
            rows = np.flatnonzero(mine & (item["t_end"] > at) & (item["depth"] == 0))
            if len(rows):
                item = item.copy()
                item["duration"][rows[0]] = 300 * MS
                done = True
        found.append(item)
    assert done
    return found


@pytest.mark.parametrize(
    ("name", "kind", "sums"),
    [
        pytest.param(
            name,
            kind,
            sums,
            marks=() if name == ALWAYS or (name == "storm" and (kind, sums) in ONCE) else pytest.mark.long,
        )
        for name in NAMES
        for kind in ("summary", "adaptive")
        for sums in (True, False)
    ],
)
@pytest.mark.mainly("dataloader-workers-adaptive-True")
def test_totals_are_those_of_all_records(name: str, kind: str, tmp_path: Path, *, sums: bool) -> None:
    header, told = long(name)
    full = write(tmp_path / "full", header, told)
    start = int(header["start_ns"])
    detail: RecordingDetail = SumsOnly(start) if kind == "summary" else Adaptive(start)
    less = write(tmp_path / "less", header, through(detail, told), sums=sums)
    assert totals(less) == totals(full)
    with gputop.open_session(less) as session:
        left = sum(isinstance(item, Sample) and item.kind == SUMS for item in session.items())
    assert left > 20
    assert detail.omission()


@pytest.mark.parametrize("name", NAMES)
def test_frames_have_the_calls_and_threads_of_all_records(name: str) -> None:
    from gputop.engine.engine import Engine

    header, told = read(FOLDER / f"{name}.msgpack")
    engines = Engine(header), Engine(header)
    frames = [engines[0].frame() for item in told if engines[0].feed(item)]
    less = [
        engines[1].frame()
        for item in through(SumsOnly(int(header["start_ns"])), told)
        if engines[1].feed(item)
    ]
    assert len(less) == len(frames)
    for mine, theirs in zip(less, frames, strict=True):
        assert mine.calls_per_second == theirs.calls_per_second
        assert mine.events_per_second == theirs.events_per_second
        for one, other in zip(mine.processes, theirs.processes, strict=True):
            assert (one.pid, one.calls, one.lines) == (other.pid, other.calls, other.lines)
            assert [
                (row.tid, row.on_cpu_ns, row.runnable_ns, row.blocked_ns, row.voluntary_switches)
                for row in one.threads
            ] == [
                (row.tid, row.on_cpu_ns, row.runnable_ns, row.blocked_ns, row.voluntary_switches)
                for row in other.threads
            ]
        assert any("were not kept" in text for text in mine.problems)
        assert not any("were not kept" in text for text in theirs.problems)


@pytest.fixture
def around(tmp_path: Path) -> tuple[Path, Path, int]:
    """(all of it, what is kept of it, the moment of a call that takes far longer than usual)."""
    header, told = long("dataloader-fixed")
    moment = int(header["start_ns"]) + 20 * SECOND
    told = slow(told, moment)
    full = write(tmp_path / "full", header, told)
    less = write(tmp_path / "less", header, through(Adaptive(int(header["start_ns"])), told))
    return full, less, moment


def calls(path: Path, low: int, high: int) -> list[bytes]:
    """The records of calls that ended between two moments, each as its bytes."""
    _header, told = read(path)
    batches = [item for item in told if not isinstance(item, Sample)]
    every = np.concatenate(batches)
    chosen = (every["kind"] == Kind.CALL) & (every["t_end"] > low) & (every["t_end"] <= high)
    return sorted(row.tobytes() for row in every[chosen])


def test_every_call_around_one_that_takes_far_longer_is_kept(around: tuple[Path, Path, int]) -> None:
    full, less, moment = around
    low, high = moment - adaptive.BEFORE_NS + SECOND, moment + adaptive.AFTER_NS
    assert calls(less, low, high) == calls(full, low, high)
    assert len(calls(full, low, high)) > 500
    assert calls(less, moment - 9 * SECOND, moment - 7 * SECOND) == []
    assert less.stat().st_size < full.stat().st_size


@pytest.mark.long
def test_nothing_is_proved_of_what_was_not_kept(around: tuple[Path, Path, int]) -> None:
    full, less, _moment = around
    with gputop.open_session(less) as session:
        evidence = evidence_of(session)
    assert length(*evidence.unkept) > 5 * SECOND
    for one in (GpuTime(evidence),):
        assert length(*intersect((one.gaps.begin, one.gaps.end), evidence.unkept)) == 0
    report, whole = gputop.explain(less), gputop.explain(full)
    assert report.lost_events == whole.lost_events == 0
    assert report.span_ns < whole.span_ns - length(*evidence.unkept) // 2
    kept = report.duration_ns - length(*evidence.unkept)
    assert report.span_ns + report.outside_ns == pytest.approx(kept, rel=0.02)
    assert report.idle.lower <= whole.idle.lower
    assert report.notes[0].startswith("not kept: calls of ")
    alone = GpuTime(evidence_of_file(full)).gaps
    proved = set(zip(alone.begin.tolist(), alone.end.tolist(), strict=True))
    found = GpuTime(evidence).gaps
    mine = list(zip(found.begin[found.proved].tolist(), found.end[found.proved].tolist(), strict=True))
    assert len(mine) > 20
    assert proved.issuperset(mine)


def evidence_of_file(path: Path) -> Any:
    """Everything that it holds."""
    with gputop.open_session(path) as session:
        return evidence_of(session)


@pytest.mark.long
def test_what_is_not_kept_is_reported_wherever_the_recording_is_shown(around: tuple[Path, Path, int]) -> None:
    full, less, _moment = around
    found = json.loads(run("inspect", "--json", str(less)).stdout)
    assert_documented(found)
    assert found["not_kept"]
    assert "not kept    from" in run("inspect", str(less)).stdout
    assert "not kept: calls of" in run("explain", str(less)).stdout
    low = found["not_kept"][0]["start_ns"]
    assert "were not kept" in run("replay", "--once", "--at", str(low / SECOND + 3), str(less)).stdout
    told = run("diff", str(full), str(less)).stdout
    assert told.startswith("No clear change")
    assert run("verify", str(less)).returncode == 0


def test_of_sums_only_there_are_totals_and_no_explanation(tmp_path: Path) -> None:
    header, told = long("dataloader-fixed", 3)
    path = write(tmp_path / "sums", header, through(SumsOnly(int(header["start_ns"])), told))
    assert "no call of this time was kept" in run("explain", str(path)).stderr
    assert "no call of one of the recordings" in run("diff", str(path), str(path)).stderr
    assert run("stats", str(path)).returncode == 0
    for command, page in (("report", "page.html"), ("export", "tables")):
        flags = ("--to", "csv") if command == "export" else ()
        assert run(command, *flags, str(path), "-o", str(tmp_path / page)).returncode == 0
    told = [(tmp_path / "page.html").read_text(), (tmp_path / "tables" / "sessions.csv").read_text()]
    for page in told:
        assert "No call that enqueued GPU work was kept (record --detail)" in page
    assert "not kept: calls of" in told[0]


def test_a_short_recording_is_kept_whole() -> None:
    header, told = read(FOLDER / "storm.msgpack")
    detail = Adaptive(int(header["start_ns"]))
    kept = list(through(detail, told))
    assert len(kept) == len(told)
    for mine, theirs in zip(kept, told, strict=True):
        assert mine == theirs if isinstance(theirs, Sample) else np.array_equal(mine, theirs)  # type: ignore[arg-type]
    assert detail.omission() == ""


@dataclass
class Findings:
    """Explains as it is told to: a finding from a moment on."""

    since: int
    cause: str
    verdict: Any = None

    def feed(self, item: Item) -> None:
        """At a mark there is an explanation."""
        if isinstance(item, Sample) and item.kind == MARK:
            found = [SimpleNamespace(cause=self.cause, pid=7)] if item.time_ns >= self.since else []
            self.verdict = SimpleNamespace(end_ns=item.time_ns, report=SimpleNamespace(findings=found))


def test_around_a_finding_every_record_is_kept_and_again_after_a_minute() -> None:
    header, told = long("dataloader-fixed", 110)
    start = int(header["start_ns"])
    moment = start + 30 * SECOND
    detail = Adaptive(start, Findings(moment, "C12"))
    ticks: list[tuple[int, bool]] = []
    kept = True
    for item in through(detail, told):
        kept &= not (isinstance(item, Sample) and item.kind == SUMS)
        if isinstance(item, Sample) and item.kind == MARK:
            ticks.append((item.time_ns, kept))
            kept = True
    whole = [
        at
        for at, kept in ticks
        if kept and start + adaptive.FIRST_NS + SECOND < at < ticks[-1][0] - 8 * SECOND
    ]
    assert ticks[-1][0] - start > 100 * SECOND
    groups = np.split(np.array(whole), np.flatnonzero(np.diff(whole) > SECOND) + 1)
    assert len(groups) == 2
    for group, expected in zip(groups, (moment, moment + adaptive.AGAIN_NS), strict=True):
        assert group[0] <= expected - adaptive.BEFORE_NS + SECOND
        assert expected + adaptive.AFTER_NS - SECOND <= group[-1] <= expected + adaptive.AFTER_NS + SECOND
    assert detail.reasons == {"C12": 2}


def test_calls_that_take_long_by_turns_do_not_keep_everything() -> None:
    header, told = long("dataloader-fixed", 110)
    start = int(header["start_ns"])
    detail = Adaptive(start)
    for number in range(30):
        told = slow(told, start + (12 + 3 * number) * SECOND)
    sums = sum(isinstance(item, Sample) and item.kind == SUMS for item in through(detail, told))
    assert sums > 60

"""A recording that is explained in parts, which are joined: what is proved is what the whole proves."""

from __future__ import annotations

import pickle
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.analysis.answer.report import Report
from gputop.analysis.ledger import Ledger, merge, report_of
from gputop.analysis.window import Stretch
from gputop.api import stretches
from gputop.api.functions import explain
from gputop.api.session import Session
from gputop.documents.fields import document
from gputop.errors import OutsideSessionError
from gputop.parts.mapreduce import segments_by_size
from replay.reader import SessionReader
from tests import long_session
from tests.each_recording import FILES as EACH

FOLDER = Path(__file__).parent.parent / "recordings"


@cache
def whole(name: str) -> Report:
    """What is reported of a recording at once."""
    return explain(FOLDER / f"{name}.msgpack")


def partials(path: Path, cuts: list[int]) -> list[Ledger]:
    """Of the parts between some marks; what a part must know goes the way that it goes between processes."""
    reader = SessionReader(path)
    marks = len(reader.marks)
    borders = [-1, *sorted(cuts), marks]
    window, found = Stretch(reader.header), []
    for after, until in pairwise(borders):
        window.fill(reader.items_between(after, until))
        if until == marks:
            last = window.part(window.last_ns)
            found += [last[0]] if last is not None else []
            break
        end = window.end_ns
        carried: Stretch = pickle.loads(pickle.dumps(window.compact()))
        window.look_ahead(reader.items_between(until, marks))
        part = window.part(end)
        found += [part[0]] if part is not None else []
        window = carried
    reader.close()
    return found


def joined(parts: list[Ledger]) -> Report:
    """The report of all."""
    whole = parts[0]
    for part in parts[1:]:
        whole = merge(whole, pickle.loads(pickle.dumps(part)))
    return report_of(whole)


def sums(report: Report) -> dict[str, object]:
    """What is exact when parts are joined."""
    return {
        "spans": {gpu.label: gpu.span_ns for gpu in report.gpus},
        "proved": {gpu.label: gpu.account.proved_ns for gpu in report.gpus},
        "bounds": {gpu.label: gpu.account.bounds for gpu in report.gpus},
        "outside": report.outside_ns,
        "lost": (report.lost_events, report.unknown_ns),
        "duration": report.duration_ns,
        "start": report.start_ns,
    }


@pytest.mark.slow
@pytest.mark.parametrize("file", EACH)
@pytest.mark.mainly("dataloader-workers", "healthy")
def test_what_is_proved_in_parts_is_what_the_whole_proves(file: Path) -> None:
    whole = sums(explain(file))
    for cuts in ([7], [4, 9], [2, 5, 8, 11]):
        report = joined(partials(file, cuts))
        assert sums(report) == whole, cuts
        for gpu in report.gpus:
            one = gpu.account
            assert one.proved_ns + one.estimated_ns + one.busy_ns + one.unknown_ns == one.span_ns


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
@given(st.data())
def test_it_does_not_matter_where_a_recording_is_cut(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["dataloader", "dataloader-workers", "numpy-sync"]))
    cuts = data.draw(st.lists(st.integers(0, 13), min_size=1, max_size=4, unique=True))
    assert sums(joined(partials(FOLDER / f"{name}.msgpack", cuts))) == sums(whole(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dataloader", "storm"])
@pytest.mark.mainly("dataloader")
def test_the_answer_in_parts_is_that_of_the_whole(name: str, tmp_path: Path) -> None:
    path = tmp_path / "long"
    long_session.write(FOLDER / f"{name}.msgpack", path, {"dataloader": 12_000, "storm": 400_000}[name])
    reader = SessionReader(path)
    third = len(reader.marks) // 3
    reader.close()
    whole, parts = explain(path), joined(partials(path, [third, 2 * third]))
    assert parts.diagnosis is not None
    assert whole.diagnosis is not None
    assert (parts.diagnosis.kind, parts.diagnosis.title) == (whole.diagnosis.kind, whole.diagnosis.title)
    first, other = whole.findings[0], parts.findings[0]
    assert (other.cause, other.pid, other.tid, other.level) == (
        first.cause,
        first.pid,
        first.tid,
        first.level,
    )
    assert other.loss.lower == pytest.approx(first.loss.lower, rel=0.02)
    account, of_whole = parts.gpus[0].account, whole.gpus[0].account
    may_be_off = 0.05 * whole.span_ns  # as an estimate may be from the truth (docs/explain.md)
    assert abs(other.loss.middle - first.loss.middle) <= may_be_off
    assert abs(account.estimated_ns - of_whole.estimated_ns) <= may_be_off
    assert parts.steps is not None
    assert whole.steps is not None
    assert parts.steps.count == pytest.approx(whole.steps.count, abs=2 * 3)
    assert parts.steps.median_ns == pytest.approx(whole.steps.median_ns, rel=0.05)
    assert "3 parts were analysed and joined" in parts.notes[0]


def test_one_part_is_the_whole() -> None:
    path = FOLDER / "dataloader.msgpack"
    assert document(joined(partials(path, []))) == document(explain(path))


@pytest.mark.slow
def test_a_file_that_does_not_fit_is_explained_in_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "long"
    long_session.write(FOLDER / "dataloader.msgpack", path, 8_000)
    whole = explain(path)
    monkeypatch.setattr(stretches, "NEED", 1 << 14)
    monkeypatch.setattr(stretches, "LEAST_PART", 30_000)
    parts = explain(path, memory_bytes=1 << 30)
    assert sums(parts) == sums(whole)
    assert "parts were analysed and joined" in parts.notes[0]
    middle = explain(path, memory_bytes=1 << 30, start_s=3, end_s=6)
    assert middle.duration_ns == 3_000_000_000
    assert middle.idle.lower == explain(path, start_s=3, end_s=6).idle.lower
    with Session(path) as session:
        every = stretches.segments_that_fit(session, 1 << 30)
        needed = stretches.segments_that_fit(session, 1 << 30, session.start_ns + 6_000_000_000)
    assert needed == every[: len(needed)]
    assert 1 < len(needed) < len(every), "what comes after the stretch is not read"
    with pytest.raises(OutsideSessionError):
        explain(path, memory_bytes=1 << 30, start_s=3, end_s=2)


def test_it_does_not_matter_which_neighbours_are_joined_first() -> None:
    one, two, three = partials(FOLDER / "dataloader-workers.msgpack", [7, 14])
    left, right = report_of(merge(merge(one, two), three)), report_of(merge(one, merge(two, three)))
    assert sums(left) == sums(right)
    assert [(row.cause, row.pid, row.loss, row.gaps, row.level) for row in left.findings] == [
        (row.cause, row.pid, row.loss, row.gaps, row.level) for row in right.findings
    ]
    assert (left.steps, left.cpu_waits, left.notes) == (right.steps, right.cpu_waits, right.notes)


MEASURED = """
import re, resource, sys
from gputop.api.functions import explain
from gputop.api.session import Session
from gputop.parts.mapreduce import processors
report = explain(sys.argv[1], memory_bytes=int(sys.argv[2]))
# not by getrusage: it counts what whoever started us had
own = int(re.search("VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
one = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(1024 * (own + processors() * one), report.notes[0])
"""


@pytest.mark.long
@pytest.mark.slow
def test_all_processes_together_take_no_more_memory_than_they_may(tmp_path: Path) -> None:
    path, memory = tmp_path / "long", 300 << 20
    long_session.write(FOLDER / "redundant-to-device.msgpack", path, 1_000_000)
    assert not stretches.fits(memory, Session(path))
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(path), str(memory)], capture_output=True, text=True, check=True
    )
    took, note = done.stdout.split(maxsplit=1)
    assert int(took) <= memory
    assert "parts were analysed and joined" in note


def test_parts_are_as_long_as_they_may_be_and_hold_each_mark_once() -> None:
    parts = segments_by_size("f", [10, 20, 30, 100, 110, 120], 25)
    assert [(part.after_mark, part.until_mark) for part in parts] == [(-1, 1), (1, 2), (2, 3), (3, 6)]

"""Facts of samples are merged in one way, live and for a seek, and their types say what files hold."""

from __future__ import annotations

from pathlib import Path
from typing import get_type_hints

import pytest

from gputop.engine.facts import Facts
from probes import samples
from probes.samples import merged, sample_data
from probes.source import NAMES, NOTE, PROBLEM, PROCESS, Sample
from replay.reader import SessionReader
from replay.state_snapshot import FactBook

RECORDINGS = sorted((Path(__file__).resolve().parents[1] / "recordings").glob("*.msgpack"))
PAGE = (Path(__file__).resolve().parents[1] / "docs" / "session-format.md").read_text()
TYPES = {
    "mark": samples.MarkData,
    "gpus": samples.GpusData,
    "process": samples.ProcessData,
    "client": samples.ClientData,
    "names": samples.NamesData,
    "open": samples.OpenData,
    "counters": samples.CountersData,
    "files": samples.FilesData,
    "frames": samples.FramesData,
    "places": samples.PlacesData,
    "apis": samples.ApisData,
    "activity": samples.ActivityData,
    "carried": samples.CarriedData,
    "problem": samples.TextData,
    "marker": samples.TextData,
    "note": samples.TextData,
}


def retold(told_samples: list[Sample]) -> tuple[Facts, Facts]:
    """What is known live, and after a seek: by the samples that say the same as few as they can be."""
    live, sought, book = Facts(), Facts(), FactBook()
    for sample in told_samples:
        live.consume(sample)
        book.consume(sample)
    for sample in book.samples(99):
        sought.consume(sample)
    return live, sought


def test_what_is_known_after_a_seek_is_what_is_known_live() -> None:
    live, sought = retold(
        [
            Sample(PROCESS, 1, {"pid": 5, "name": "sh", "watched": True, "seen_ns": 1, "exited_ns": None}),
            Sample(PROCESS, 2, {"pid": 5, "name": "train", "seen_ns": 2}),
            Sample(PROCESS, 3, {"pid": 6, "name": "old", "watched": True, "seen_ns": 3, "exited_ns": None}),
            Sample(PROCESS, 4, {"pid": 6, "exited_ns": 4, "exit_code": 3, "called": True}),
            Sample(PROCESS, 5, {"pid": 6, "name": "new", "watched": True, "seen_ns": 5, "exited_ns": None}),
            Sample(NAMES, 5, {"tid": [5, 6], "pid": [5, 6], "name": ["a", "b"]}),
            Sample(NAMES, 6, {"tid": [6], "pid": [6], "name": ["c"]}),
            Sample(PROBLEM, 6, {"text": "NVML hangs", "about": "nvml"}),
            Sample(PROBLEM, 7, {"text": "", "about": "nvml"}),
            Sample(PROBLEM, 8, {"text": "no lines"}),
            Sample(PROBLEM, 9, {"text": "NVML hangs again", "about": "nvml"}),
            *(Sample(NOTE, 10 + number, {"text": f"note {number}"}) for number in range(40)),
        ]
    )
    for facts in (live, sought):
        assert facts.processes[5] == {
            "pid": 5, "name": "train", "watched": True, "seen_ns": 1, "exited_ns": None
        }  # fmt: skip
        assert facts.processes[6] == {
            "pid": 6, "name": "new", "watched": True, "seen_ns": 5, "exited_ns": None
        }  # fmt: skip
        assert [facts.thread_name(tid) for tid in (5, 6)] == ["a", "c"]
        assert facts.problems(None) == ("no lines", "NVML hangs again")
        assert facts.notes() == tuple(f"note {number}" for number in range(32, 40))


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: file.stem)
def test_what_recordings_hold_is_known_alike_live_and_after_a_seek(file: Path) -> None:
    reader = SessionReader(file)
    live, sought = retold([item for item in reader.items() if isinstance(item, Sample)])
    assert live.processes == sought.processes
    assert live.watched() == sought.watched()
    assert (live.problems(None), live.notes()) == (sought.problems(None), sought.notes())


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: file.stem)
def test_the_types_and_the_page_know_every_key_that_a_recording_holds(file: Path) -> None:
    reader = SessionReader(file)
    found = {(item.kind, key) for item in reader.items() if isinstance(item, Sample) for key in item.data}
    assert found
    assert {(kind, key) for kind, key in found if key not in get_type_hints(TYPES[kind])} == set()
    rows = {row.split("|")[1].strip(" `"): row for row in PAGE.splitlines() if row.startswith("| `")}
    assert {(kind, key) for kind, key in found if f"`{key}`" not in rows[kind]} == set()


@pytest.mark.parametrize("data", [{}, {"pid": "5"}, {"pid": None, "name": "x"}])
def test_facts_of_nobody_are_no_facts(data: dict[str, object]) -> None:
    live, sought = retold([Sample(PROCESS, 1, data)])
    assert (live.processes, sought.processes) == ({}, {})


def test_columns_that_were_cut_are_taken_as_far_as_they_go() -> None:
    live, sought = retold([Sample(NAMES, 1, {"tid": [1, 2], "pid": [1, 1], "name": ["a"]})])
    assert [facts.thread_name(tid) for facts in (live, sought) for tid in (1, 2)] == ["a", "2"] * 2


def test_a_sample_is_told_to_who_asks_for_its_kind_only() -> None:
    sample = Sample(NOTE, 1, {"text": "hello"})
    assert sample_data(sample, "note") == {"text": "hello"}
    assert sample_data(sample, "problem") is None


def test_facts_are_merged_without_changing_what_was_known() -> None:
    known = samples.ProcessData(pid=5, seen_ns=1, name="a")
    later = merged(known, samples.ProcessData(pid=5, seen_ns=9, name="b"))
    assert (later, known) == ({"pid": 5, "seen_ns": 1, "name": "b"}, {"pid": 5, "seen_ns": 1, "name": "a"})

"""The recordings that come with the project open, hold nothing of their machine, and show what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gputop.feeds import frame_at
from probes.source import Sample
from replay.reader import SessionReader

FOLDER = Path(__file__).resolve().parents[1] / "recordings"
FILES = sorted(FOLDER.glob("*.msgpack"))


def test_every_recording_is_described() -> None:
    listed = set(re.findall(r"`(\S+\.msgpack)`", (FOLDER / "README.md").read_text()))
    assert listed == {file.name for file in FILES}
    assert FILES


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_recording_is_whole_and_private(file: Path) -> None:
    reader = SessionReader(file)
    samples = [item for item in reader.items() if isinstance(item, Sample)]
    assert reader.problems == []
    assert reader.header["private"] is True
    frame = frame_at(reader, len(reader.marks) - 1)
    assert frame.lost.events == 0
    assert frame.calls_per_second > 0
    watched = {row.pid for row in frame.processes}
    for sample in samples:
        if sample.kind == "names":
            rows = zip(sample.data["pid"], sample.data["name"], strict=True)
            assert not [name for pid, name in rows if pid not in watched and not name.startswith("other-")]


def test_the_storm_is_seen_with_its_cause() -> None:
    reader = SessionReader(FOLDER / "storm.msgpack")
    (storm,) = frame_at(reader, len(reader.marks) - 1).storms
    assert storm.involuntary_per_second >= 500
    workers = [share.fraction for share in storm.occupants if share.name == "pt_data_worker"]
    assert len(workers) == 6
    assert sum(workers) > 0.5

"""CUDA graphs as an assistant is told of them: a program's own captures and launches, handle by handle."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from gputop.query.catalogue import Catalogue
from gputop.query.graph_tools import graph_frequency, graph_lifecycle
from tests.ebpf.recording import HERE, Workshop

pytestmark = pytest.mark.ebpf
PROGRAM = HERE.parent / "simgpu_programs" / "graphs.py"
COUNTS = (40, 200, 90)


def test_captures_and_launches_are_the_programs_own(tmp_path: Path) -> None:
    recorded = Workshop(tmp_path).record(sys.executable, str(PROGRAM), "2", *map(str, COUNTS))
    (said,) = recorded.said
    assert recorded.lost == 0
    catalogue = Catalogue([str(recorded.path)])
    life = json.loads(graph_lifecycle(catalogue, said["pid"]))
    assert not life["truncated"]
    assert (life["captures"], life["captures_without_begin_or_end"]) == (len(COUNTS) + 1, 1)
    assert (life["instantiations"], life["launches"]) == (len(COUNTS) + 1, sum(COUNTS) + 1)
    assert life["executables_made_before_the_recording_at_least"] == 0
    captures = [one for one in life["events"] if one["event"] == "capture"]
    calls = [one["calls_into_its_stream"] for one in captures]
    assert calls == [*range(1, len(COUNTS) + 1), 1, None]
    assert captures[-1]["error"] == said["refused"]
    made = [one.get("executable") for one in life["events"] if one["event"] == "instantiation"]
    assert made[:-1] == said["executables"]
    launched: Counter[str] = Counter()
    for one in life["events"]:
        if one["event"] == "launches":
            launched[one["executable"]] += one["count"]
    assert launched == said["launches"]

    often = json.loads(graph_frequency(catalogue, said["pid"]))
    told = {one["executable"]: one for one in often["executables"]}
    assert {handle: one["launches"] for handle, one in told.items()} == said["launches"]
    for one in told.values():
        assert 1 <= one["launches_per_s"] <= 500  # it sleeps 2 ms between two
        assert one["usual_interval_ms"] >= 2
    assert "hot" in {one["class"] for one in told.values()}

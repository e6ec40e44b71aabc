"""Ranges of NVTX under ``--inside``: as the program's own log has them, on its threads, without any CUDA."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from gputop.analysis.build import explain
from gputop.analysis.chains.named_ranges import NamedRanges, numbers_apart
from tests.ebpf.inside_evidence import FLAGS, evidence_of
from tests.ebpf.recording import Workshop
from tests.torch_programs.wheel import HERE, torch_cuda_python

pytestmark = [pytest.mark.ebpf, pytest.mark.timeout(300)]
TORCH_PROGRAM = HERE / "ranges.py"
PROGRAM = Path(__file__).resolve().parent / "programs" / "nvtx_ranges.py"


def test_ranges_are_those_of_the_programs_log(tmp_path: Path) -> None:
    run = Workshop(tmp_path).record(sys.executable, str(PROGRAM), flags=FLAGS)
    evidence, problems = evidence_of(run.path)
    texts = evidence.activities.texts
    assert problems == []
    (said,) = run.said
    rows = evidence.activities.of("range", "span")
    named = [texts[one] for one in rows["name"]]
    assert {name: named.count(name) for name in set(named)} == {
        "registered": 120, "plain": 120, "epoch": 1, "never popped": 1, "fertig: ä": 1,
    }  # fmt: skip
    for name in ("registered", "epoch"):
        own = sorted(tuple(row[1:]) for row in said["ranges"] if row[0] == name)
        mine = rows[[one == name for one in named]]
        found = sorted(zip(mine["tid"].tolist(), mine["begin"].tolist(), mine["end"].tolist(), strict=True))
        assert [row[0] for row in found] == [row[0] for row in own]
        for (_tid, begin, end), (_thread, before, after) in zip(found, own, strict=True):
            assert before <= begin <= end <= after
    details = {texts[one] for one in rows["detail"][[one == "registered" for one in named]]}
    assert {"domain mine, payload -59", "domain mine, payload 0"} <= details
    plain = rows[[one == "plain" for one in named]]
    outer = rows[[one == "registered" for one in named]]
    assert all(  # each lies in a range of its own thread
        ((outer["tid"] == row["tid"]) & (outer["begin"] <= row["begin"]) & (row["end"] <= outer["end"])).sum()
        == 1
        for row in plain
    )


def test_what_record_function_names_is_what_the_program_logs_of_it(tmp_path: Path) -> None:
    """PyTorch gives it to NVTX under ``emit_nvtx``, with its operators within."""
    run = Workshop(tmp_path).record(
        torch_cuda_python(), str(TORCH_PROGRAM), "30", flags=FLAGS, env={"SIMGPU_DEVICES": "1"}, seconds=250
    )
    evidence, problems = evidence_of(run.path)
    assert problems == []
    (said,) = run.said
    rows = evidence.activities.of("range")
    texts = [text.partition(", op_id = ")[0] for text in evidence.activities.texts]
    own = {name for name, *_ in said["ranges"]}
    found = sorted(
        (begin, end, texts[name])
        for begin, end, name in rows[["begin", "end", "name"]].tolist()
        if texts[name] in own
    )
    logged = sorted((before, after, name) for name, before, after in said["ranges"])
    assert [one[2] for one in found] == [one[2] for one in logged]
    for (begin, end, _name), (before, after, _) in zip(found, logged, strict=True):
        assert before <= begin <= end <= after
    ranges, whole = NamedRanges(evidence.activities), (np.array([0]), np.array([2**62]))
    (pid,) = set(evidence.calls["pid"].tolist())
    paths = set(numbers_apart(ranges.of(pid, pid).times(*whole)))
    assert "step #/forward/aten::linear/aten::addmm" in paths, "without what PyTorch puts behind the name"
    report = explain(evidence)
    assert report.steps is not None
    assert report.steps.count in (29, 30)

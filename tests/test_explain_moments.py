"""The moments that a finding names: of what is proved, proved ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gputop
from gputop.analysis.answer.report import Level
from gputop.analysis.build import examine
from gputop.api.recording_evidence import evidence_of
from tests.each_recording import RECORDINGS


@pytest.mark.slow
@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: str(file.stem))
def test_a_proved_finding_names_no_moment_that_is_estimated(file: Path) -> None:
    with gputop.open_session(file) as session:
        evidence = evidence_of(session)
    report, scene, _ = examine(evidence)
    start = int(evidence.header["start_ns"])
    proved = set((scene.gaps.begin[scene.gaps.proved] - start).tolist())
    for finding in report.findings:
        if finding.kind == "idle" and finding.level == Level.PROVED:
            assert finding.moments_ns
            assert set(finding.moments_ns) <= proved
    assert np.all(scene.gaps.proved <= ~scene.gaps.estimated)

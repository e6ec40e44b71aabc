"""NVML's samples of a made-up program, and the one estimate of its analysis."""

from __future__ import annotations

from gputop.analysis.chains.analysis import Analysis
from gputop.analysis.estimates.estimate import Estimate
from probes.source import GPUS, Sample
from tests.items import SECOND, START
from tests.programs import Program

SPAN_S = 6


def seen_by_nvml(program: Program, busy: float, begin_s: float = 0.25, end_s: float = SPAN_S) -> None:
    """NVML's utilisation four times a second."""
    at = begin_s
    while at <= end_s:
        row = {"index": 0, "uuid": "u", "name": "GPU", "utilization_percent": round(100 * busy)}
        program.samples.append(Sample(GPUS, START + int(at * SECOND), {"gpus": [row]}))
        at += 0.25


def only(analysis: Analysis) -> Estimate:
    (estimate,) = analysis.estimates
    return estimate

"""Gaps as plain rows that two analyses of the same time can be compared by."""

from __future__ import annotations

from gputop.analysis.chains.analysis import Analysis

Gap = tuple[int, int, str, int, int, bool]


def gaps_of(analysis: Analysis) -> list[Gap]:
    """Each gap with the calls at its ends, by their times; who opened one before the window may be lost."""
    calls, gaps = analysis.evidence.calls, analysis.gpu.gaps
    labels, low = analysis.gpu.devices.labels, analysis.gpu.stretch[0]
    return [
        (
            int(begin),
            int(end),
            labels[device],
            int(calls["end"][drained_by]) if drained_by >= 0 and begin > low else -1,
            int(calls["begin"][refilled_by]) if refilled_by >= 0 else -1,
            bool(proved),
        )
        for begin, end, device, drained_by, refilled_by, proved in zip(
            gaps.begin, gaps.end, gaps.device, gaps.drained_by, gaps.refilled_by, gaps.proved, strict=True
        )
    ]

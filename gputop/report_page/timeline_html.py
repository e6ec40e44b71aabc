"""The timeline of GPUs and threads over the recording, as lanes of one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from gputop.analysis.answer.picture import (
    ASSUMED,
    BLOCKED,
    BUSY,
    COLUMN_NS,
    FINDING,
    LOST,
    PRESUMED,
    PROVED,
    QUEUED,
    RUNNING,
    WHOLE,
    Lanes,
    RangeLane,
)
from gputop.analysis.answer.report import Report
from gputop.report_page.markup import text

_COLUMNS = 300
_THREADS = 12
_WIDTH, _HEIGHT = 1000, 24
_GPU_PARTS = (
    ("busy", "at work", (BUSY, BUSY + 1)),
    ("presumed", "probably at work", (PRESUMED, PRESUMED + 1)),
    ("proved", "idle, proved", (PROVED, ASSUMED)),
    ("assumed", "idle, estimated", (ASSUMED, PRESUMED)),
)
_THREAD_PARTS = (
    ("running", "on a CPU", (RUNNING, RUNNING + 1)),
    ("queued", "waits for a CPU", (QUEUED, QUEUED + 1)),
    ("blocked", "blocked", (BLOCKED, None)),
)

Shares = npt.NDArray[np.float64]


def timeline(lanes: Lanes, report: Report, names: Mapping[int, str]) -> str:
    """Return the lanes of a whole recording as HTML, with the names of its threads by number."""
    if not lanes.columns:
        return '<p class="note">the recording is too short for a timeline</p>'
    rows = [_lane(lane.label, _merged(lane.shares), _GPU_PARTS) for lane in lanes.gpus]
    ranges = {lane.tid: lane for lane in lanes.ranges}
    for lane in lanes.threads[:_THREADS]:
        rows.append(_lane(f"{lane.tid} {names.get(lane.tid, '')}", _merged(lane.states), _THREAD_PARTS))
        if lane.tid in ranges:
            rows.append(_range_lane(ranges[lane.tid]))
    begin = lanes.first * COLUMN_NS - report.start_ns
    left_out = len(lanes.threads) - _THREADS
    note = f'<p class="note">{left_out} more threads</p>' if left_out > 0 else ""
    return (
        f'<div class="lanes">{"".join(rows)}{_marks(lanes)}'
        f'<div class="name"></div><div class="axis">{_axis(begin, lanes.columns * COLUMN_NS)}</div></div>'
        f"{_legend()}{note}"
    )


def _merged(shares: npt.NDArray[np.uint8]) -> Shares:
    """Return the columns of the picture, each the mean of those it stands for, 0 to 1."""
    edges = np.linspace(0, shares.shape[1], min(_COLUMNS, shares.shape[1]) + 1).astype(np.int64)[:-1]
    sums = np.add.reduceat(shares.astype(np.float64), edges, axis=1)
    return sums / np.diff(np.append(edges, shares.shape[1])) / WHOLE


def _lane(name: str, shares: Shares, parts: Sequence[tuple[str, str, tuple[int, int | None]]]) -> str:
    base = np.zeros(shares.shape[1])
    paths = []
    for kind, about, (first, last) in parts:
        part = shares[first:last].sum(axis=0)
        paths.append(_path(kind, about, base, part))
        base = base + part
    shown = text(name.strip())
    return (
        f'<div class="name">{shown}</div><svg class="lane" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'preserveAspectRatio="none" role="img" aria-label="{shown}">{"".join(paths)}</svg>'
    )


def _range_lane(lane: RangeLane) -> str:
    """Return the ranges of a thread, with their names as tooltips and in the line below."""
    parts = [
        (f"range{place}", name or "other ranges", (place, place + 1)) for place, name in enumerate(lane.names)
    ]
    entries = "".join(
        f'<li><svg viewBox="0 0 10 10"><rect class="{kind}" width="10" height="10"/></svg> {text(name)}</li>'
        for kind, name, _rows in parts
    )
    return _lane(f"{lane.tid} ranges", _merged(lane.shares), parts) + (
        f'<div class="name"></div><ul class="legend">{entries}</ul>'
    )


def _path(kind: str, about: str, base: Shares, part: Shares) -> str:
    width = _WIDTH / len(part)
    steps = []
    for column in np.flatnonzero(part > 0.004).tolist():
        top = _HEIGHT * (1 - base[column] - part[column])
        steps.append(
            f"M{column * width:.1f} {max(top, 0):.1f}h{width:.2f}v{_HEIGHT * part[column]:.1f}h{-width:.2f}z"
        )
    mean = 100 * float(part.mean())
    return f'<path class="{kind}" d="{"".join(steps)}"><title>{text(about)}: {mean:.1f} %</title></path>'


def _marks(lanes: Lanes) -> str:
    signs = []
    for row, kind, about in (
        (FINDING, "finding", "a worst moment of a finding"),
        (LOST, "lost", "records are lost"),
    ):
        for column in np.flatnonzero(lanes.marks[row]).tolist()[:200]:
            at = (column + 0.5) / lanes.columns * _WIDTH
            place = f'x="{at - 1:.1f}" y="0" width="2" height="8"'
            signs.append(f'<rect class="{kind}" {place}><title>{about}</title></rect>')
    return (
        '<div class="name">moments</div>'
        f'<svg class="moments" viewBox="0 0 {_WIDTH} 8" preserveAspectRatio="none">{"".join(signs)}</svg>'
    )


def _axis(begin_ns: int, length_ns: int) -> str:
    return "".join(f"<span>{(begin_ns + part * length_ns / 4) / 1e9:.2f} s</span>" for part in range(5))


def _legend() -> str:
    signs = "".join(
        f'<li><svg viewBox="0 0 10 10"><rect class="{kind}" width="10" height="10"/></svg> {about}</li>'
        for kind, about, _rows in (*_GPU_PARTS, *_THREAD_PARTS)
    )
    return f'<ul class="legend">{signs}<li>empty: not known</li></ul>'

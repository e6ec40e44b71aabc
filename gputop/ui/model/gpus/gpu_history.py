"""Graphs of each GPU over the last minutes: utilisation, memory, power, SMs, tensor cores, DRAM.

They span two minutes, more if they are wide, and less of a short session.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gputop.engine.frame import Frame, GpuRow
from gputop.format import NS_PER_S, fit, format_bytes, format_percent, format_watts
from gputop.ui.model.braille import PER_COLUMN, Floats, graph, graph_spans
from gputop.ui.model.gpus import gpu_text
from gputop.ui.model.look import Glyphs, Line, Span, merged
from gputop.ui.model.time.history_ring import BIN_NS, HistoryRing, SeenFrames, share_of

LEAST_NS = 120 * NS_PER_S
KEPT_NS = 600 * NS_PER_S
MOST_GPUS = 64  # further ones have no graph
_DOT_NS = NS_PER_S  # of a graph that is wide enough for ``LEAST_NS``
_SHORT_DOTS_NS = (BIN_NS, 2 * BIN_NS)  # of a short session, while it fits
_LABEL, _FIGURE = 6, 8  # columns before a graph
_MOST_ROWS = 4  # lines of one graph
_FEW = 3  # graphs of a GPU's page on a low screen
_HOLD = 2.5  # frames: a longer distance of two frames is a gap


@dataclass(frozen=True, slots=True)
class Series:
    """One figure of a GPU over time: its label and its token."""

    label: str
    token: str


SERIES: tuple[Series, ...] = (
    Series("util", "busy"), Series("mem", "unsure"), Series("power", "unsure"),
    Series("SM", "busy"), Series("TENS", "busy"), Series("DRAM", "busy"),
)  # fmt: skip
_UTIL = 0


def shares(gpu: GpuRow) -> tuple[float | None, ...]:
    """Return the figures of a GPU in the order of ``SERIES``, 0 to 1; None: not reported by NVML."""
    return (
        share_of(gpu.utilization_percent, 100),
        share_of(gpu.memory_used_bytes, gpu.memory_total_bytes),
        share_of(gpu.power_milliwatts, gpu.power_limit_milliwatts),
        share_of(gpu.sm_active_percent, 100),
        share_of(gpu.tensor_active_percent, 100),
        share_of(gpu.dram_bandwidth_percent, 100),
    )


class GpuHistory:
    """The figures of each GPU over the last ten minutes."""

    def __init__(self) -> None:
        self.rings: dict[int, HistoryRing] = {}
        self._frames = SeenFrames()

    def append(self, frame: Frame, *, present: bool = False) -> None:
        """Add a frame, unless it is known. After a jump, the frame's own history fills the minute before.

        Args:
            frame: The frame.
            present: True for the newest frame, while another moment is shown.
        """
        new, before_ns = self._frames.before(frame, present=present)
        if not new:
            return
        step_ns = int(NS_PER_S / frame.rate_hz) if frame.rate_hz > 0 else NS_PER_S
        hold_ns = int(_HOLD * step_ns)
        for gpu in frame.gpus[:MOST_GPUS]:
            ring = self.rings.get(gpu.index)
            if ring is None:
                ring = self.rings[gpu.index] = HistoryRing(len(SERIES), KEPT_NS // BIN_NS)
            if not ring.put(frame.time_ns, shares(gpu), hold_ns, before_ns):
                before = tuple(share_of(value, 100) for value in gpu.utilization_history)
                ring.fill(_UTIL, frame.time_ns, step_ns, before)

    def known_ns(self, index: int, end_ns: int) -> int:
        """Return the time from the first frame with a GPU to a moment."""
        ring = self.rings.get(index)
        return end_ns - ring.oldest_ns if ring is not None and ring.oldest_ns is not None else 0

    def values(self, index: int, end_ns: int, columns: int) -> Floats:
        """Return ``[series, PER_COLUMN * columns]`` of a GPU up to a moment; NaN: unknown."""
        count = PER_COLUMN * columns
        ring = self.rings.get(index)
        if ring is None:
            return np.full((len(SERIES), count), np.nan)
        return ring.cells(end_ns, count, _dot_ns(columns, self.known_ns(index, end_ns)))


def _dot_ns(columns: int, known_ns: int) -> int:
    """Return the time of one dot: a second, or more so that two minutes fit; less in a short session."""
    dots = PER_COLUMN * max(columns, 1)
    needed = -(-LEAST_NS // dots)
    whole = max(-(-needed // BIN_NS) * BIN_NS, _DOT_NS)
    return next((dot for dot in _SHORT_DOTS_NS if known_ns < dot * dots), whole)


def span_ns(width: int, known_ns: int) -> int:
    """Return the time span of the graphs of ``detail_lines``."""
    columns = _columns(width)
    return PER_COLUMN * columns * _dot_ns(columns, known_ns)


def span_text(width: int, known_ns: int) -> str:
    """Return ``last 23 s``, ``last 2 min``, ``last 3 min 20 s``."""
    minutes, seconds = divmod(span_ns(width, known_ns) // NS_PER_S, 60)
    parts = [*([f"{minutes} min"] if minutes else []), *([f"{seconds} s"] if seconds else [])]
    return f"last {' '.join(parts)}"


def _columns(width: int) -> int:
    return max(width - _LABEL - _FIGURE - 1, 8)


# -- one GPU ------------------------------------------------------------------------------------------


def detail_lines(
    history: GpuHistory, frame: Frame, gpu: GpuRow, width: int, height: int, glyphs: Glyphs
) -> list[Line]:
    """Return the graphs of one GPU up to a frame, at most ``height`` lines; the last has other figures."""
    if trouble := gpu_text.trouble(gpu, glyphs):
        return [glyphs.line([(" ", ""), trouble], width)][:height]
    values = history.values(gpu.index, frame.time_ns, _columns(width))
    now = shares(gpu)
    known = [row for row in range(len(SERIES)) if now[row] is not None or not np.isnan(values[row]).all()]
    room = height - 1 if height > 1 else height
    chosen = known[:room]
    lines: list[Line] = []
    for place, row in enumerate(chosen):
        rows = _rows(place, len(chosen), room)
        text = _figures(gpu)[row]
        lines += _graph_lines(SERIES[row], text, values[row], rows, glyphs)
    if height > 1:
        lines.append(_figure_line(gpu, glyphs))
    return [glyphs.line(line, width) for line in lines[:height]]


def page_lines(
    history: GpuHistory, frame: Frame, gpu: GpuRow, width: int, glyphs: Glyphs, *, tall: bool
) -> list[Line]:
    """Return the graphs of a GPU's page: with room of every figure, else of the first three."""
    values = history.values(gpu.index, frame.time_ns, _columns(width))
    known = [row for row in range(len(SERIES)) if not np.isnan(values[row]).all()]
    lines = [
        line
        for row in (known if tall else known[:_FEW])
        for line in _graph_lines(SERIES[row], _figures(gpu)[row], values[row], 2 if tall else 1, glyphs)
    ]
    span = span_text(width, history.known_ns(gpu.index, frame.time_ns))
    return [*lines, ((f" 0-100%, {span}", "faint"),)] if lines else []


def mean_of_all(history: GpuHistory, end_ns: int, count: int, cell_ns: int) -> Floats:
    """Return the mean utilisation and memory share of all GPUs, ``[2, count]``; NaN: unknown."""
    rings = [ring.cells(end_ns, count, cell_ns)[:2] for ring in history.rings.values()]
    if not rings:
        return np.full((2, count), np.nan)
    stacked = np.stack(rings)
    seen = (~np.isnan(stacked)).sum(axis=0)
    return np.where(seen > 0, np.nansum(stacked, axis=0) / np.maximum(seen, 1), np.nan)


def _rows(place: int, count: int, room: int) -> int:
    """Return the lines of a graph: equal ones, the remainder for the first graphs."""
    each, left = divmod(room, count)
    return min(each + (place < left), _MOST_ROWS)


def _figures(gpu: GpuRow) -> tuple[str, ...]:
    percents = (gpu.sm_active_percent, gpu.tensor_active_percent, gpu.dram_bandwidth_percent)
    return (
        _percent(gpu.utilization_percent),
        format_bytes(gpu.memory_used_bytes),
        format_watts(gpu.power_milliwatts),
        *(_percent(value) for value in percents),
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{format_percent(value)}%"


def _graph_lines(series: Series, text: str, values: Floats, rows: int, glyphs: Glyphs) -> list[Line]:
    """Return a graph with its label and its newest figure before its lowest line."""
    head: list[Span] = [
        (fit(f" {series.label}", _LABEL), "head"),
        (fit(text, _FIGURE - 2, right=True), "value"),
    ]
    blank: list[Span] = [(" " * (_LABEL + _FIGURE - 2), "")]
    drawn = graph(values, rows, glyphs)
    return [
        merged(
            [*(head if place == rows - 1 else blank), ("  ", ""), *graph_spans(part, series.token, glyphs)]
        )
        for place, part in enumerate(drawn)
    ]


def _figure_line(gpu: GpuRow, glyphs: Glyphs) -> Line:
    """Return the figures without a graph: power and its limit, temperature, clock and its limit, PCIe."""
    texts = [
        gpu_text.power_text(gpu), gpu_text.temperature_text(gpu, glyphs), gpu_text.clock_text(gpu, glyphs),
    ]  # fmt: skip
    spans: list[Span] = [(" ", "")]
    known = [text for text in texts if text != gpu_text.NA]
    spans += [(f"{text}   ", "warn" if text.startswith(glyphs.warning) else "") for text in known]
    if gpu_text.slowed(gpu):
        spans.append((f"{gpu_text.held_text(gpu)}   ", "warn"))
    both = gpu_text.both_ways(gpu.pcie_rx_bytes_per_second, gpu.pcie_tx_bytes_per_second)
    if both != gpu_text.NA:
        spans += [("PCIe RX/TX ", "dim"), (f"{both}/s", "")]
    return tuple(spans)

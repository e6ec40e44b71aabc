"""The GPU pane: a line each, two columns of short lines where there are many, a page each when zoomed."""

from __future__ import annotations

from gputop.format import (
    NS_PER_S,
    bar,
    escape_text,
    fit,
    format_bytes,
    format_ns,
    format_watts,
    sparkline,
)
from gputop.frame import Frame, GpuRow
from gputop.ui.model.look import Glyphs, Line, Span, fit_line, merged, wrap

STALE_NS = 2 * NS_PER_S
NA = "n/a"
CELL_MIN = 38


def no_gpu_sentence(frame: Frame) -> str:
    """Why there is no line of a GPU."""
    for problem in frame.problems:
        about, _, reason = problem.partition(": ")
        if about in ("no GPU figures", "NVML"):
            return f"No GPU shown: {escape_text(reason)}"
    if frame.driver:
        return f"No GPU: NVML ({escape_text(frame.driver)}) lists none. CUDA calls are still traced."
    return "No GPU shown: NVML could not be loaded (no NVIDIA driver). CUDA calls are still traced."


def _value(value: int | None, unit: str) -> str:
    return NA if value is None else f"{value}{unit}"


def memory_text(gpu: GpuRow) -> str:
    """Used and total memory: ``61.0G/80.0G``."""
    if gpu.memory_used_bytes is None and gpu.memory_total_bytes is None:
        return NA
    return f"{format_bytes(gpu.memory_used_bytes)}/{format_bytes(gpu.memory_total_bytes)}"


def power_text(gpu: GpuRow) -> str:
    """Power drawn and its limit: ``212/700W``."""
    if gpu.power_milliwatts is None:
        return NA
    if gpu.power_limit_milliwatts is None:
        return format_watts(gpu.power_milliwatts)
    return f"{gpu.power_milliwatts / 1000:.0f}/{format_watts(gpu.power_limit_milliwatts)}"


def temperature_text(gpu: GpuRow, glyphs: Glyphs) -> str:
    """Temperature: ``34°C``."""
    return _value(gpu.temperature_celsius, "C" if glyphs.ascii else "°C")


def stale_text(gpu: GpuRow) -> str:
    """How old the sample is when it is too old to be trusted, else ""."""
    return f"? no sample for {format_ns(gpu.age_ns)}" if gpu.age_ns >= STALE_NS else ""


def _cell(text: str, width: int, token: str = "", *, right: bool = True) -> Span:
    return fit(text, width, right=right), token if text != NA else "unknown"


def _utilization(gpu: GpuRow, glyphs: Glyphs) -> Span:
    text = NA if gpu.utilization_percent is None else f"{gpu.utilization_percent}%"
    return fit(text, 4, right=True), "unknown" if text == NA or stale_text(gpu) else "value"


def _spark(gpu: GpuRow, width: int, glyphs: Glyphs) -> Span:
    return sparkline(gpu.utilization_history, width, ascii_only=glyphs.ascii), "busy"


def heading(frame: Frame, width: int, glyphs: Glyphs) -> Line:
    """The names of the columns of the full lines."""
    name, spark, meter = _widths(frame, width)
    seconds = spark / frame.rate_hz if frame.rate_hz > 0 else 0
    spark_title = f"last {seconds:.0f} s, 0-100%" if spark >= 20 else f"{seconds:.0f} s"
    spans: list[Span] = [("GPU ", "head")]
    if name:
        spans.append((fit("NAME", name + 1), "head"))
    spans.append(("UTIL ", "head"))
    if meter:
        spans.append((fit("", meter + 1), "head"))
    spans += [
        (fit(spark_title, spark), "head"),
        (fit("MEMORY", 14, right=True), "head"),
        (fit("POWER", 10, right=True), "head"),
        (fit("TEMP", 6, right=True), "head"),
        (fit("CLOCK", 8, right=True), "head"),
    ]
    return merged(fit_line(spans, width, token="head"))


def _widths(frame: Frame, width: int) -> tuple[int, int, int]:
    """Columns of name, sparkline and meter."""
    fixed = 4 + 5 + 14 + 10 + 6 + 8
    spare = width - fixed
    longest = max((len(gpu.name) for gpu in frame.gpus), default=0)
    name = min(longest, 24, spare - 12) if spare >= 24 else 0
    spare -= name + 1 if name else 0
    meter = 16 if spare >= 60 else 0
    spare -= meter + 1 if meter else 0
    return name, max(min(spare, 80), 4), meter


def full_line(gpu: GpuRow, frame: Frame, width: int, glyphs: Glyphs) -> Line:
    """All figures of a GPU in one line."""
    name, spark, meter = _widths(frame, width)
    spans: list[Span] = [(fit(str(gpu.index), 3, right=True) + " ", "value")]
    if name:
        text = fit(escape_text(gpu.name, ascii_only=glyphs.ascii), name, ellipsis=glyphs.ellipsis)
        spans.append((text + " ", "dim"))
    spans += [_utilization(gpu, glyphs), (" ", "")]
    stale = stale_text(gpu)
    if meter:
        share = None if gpu.utilization_percent is None else gpu.utilization_percent / 100
        full, empty = bar(share, meter, ascii_only=glyphs.ascii)
        spans += [(full, "busy"), (empty, "rule"), (" ", "")]
    spans.append((fit(stale, spark), "unknown") if stale else _spark(gpu, spark, glyphs))
    spans += [
        _cell(memory_text(gpu), 14),
        _cell(power_text(gpu), 10),
        _cell(temperature_text(gpu, glyphs), 6),
        _cell(_value(gpu.sm_clock_mhz, "MHz"), 8),
    ]
    return merged(fit_line(spans, width))


def short_cell(gpu: GpuRow, width: int, glyphs: Glyphs) -> Line:
    """A GPU in a part of a line: index, utilisation, sparkline, memory, power."""
    spans: list[Span] = [(f"{gpu.index:>2} ", "value"), _utilization(gpu, glyphs), (" ", "")]
    tail = [_cell(memory_text(gpu), 12), _cell(power_text(gpu), 9)]
    while tail and 8 + 4 + sum(len(text) for text, _ in tail) > width:
        tail.pop()
    spark = max(width - 8 - sum(len(text) for text, _ in tail), 0)
    stale = stale_text(gpu)
    spans.append((fit(stale, spark), "unknown") if stale else _spark(gpu, spark, glyphs))
    return fit_line([*spans, *tail], width)


def lines_needed(frame: Frame, width: int, room: int) -> int:
    """How many lines the pane wants (without a title) when it may have at most ``room``."""
    if not frame.gpus:
        return 1
    if len(frame.gpus) + 1 <= room and width >= 64:
        return len(frame.gpus) + 1
    per_line = max(width // CELL_MIN, 1)
    return min(-(-len(frame.gpus) // per_line), max(room, 1))


def gpu_lines(frame: Frame, width: int, height: int, glyphs: Glyphs) -> tuple[list[Line], str]:
    """The pane's lines and what is out of sight."""
    if not frame.gpus:
        return [fit_line([(no_gpu_sentence(frame), "unknown")], width, ellipsis=glyphs.ellipsis)], ""
    if len(frame.gpus) + 1 <= height and width >= 64:
        lines = [full_line(gpu, frame, width, glyphs) for gpu in frame.gpus]
        return [heading(frame, width, glyphs), *lines], ""
    per_line = max(width // CELL_MIN, 1)
    cell = (width - (per_line - 1) * 3) // per_line
    count = -(-len(frame.gpus) // per_line)
    lines = []
    for line in range(min(count, height)):
        spans: list[Span] = []
        for gpu in frame.gpus[line::count][:per_line]:  # columns read downwards
            spans += ([(f" {glyphs.separator} ", "rule")] if spans else []) + list(
                short_cell(gpu, cell, glyphs)
            )
        lines.append(merged(fit_line(spans, width)))
    hidden = len(frame.gpus) - sum(
        len(frame.gpus[line::count][:per_line]) for line in range(min(count, height))
    )
    return lines, f"+{hidden} GPU{'s' if hidden > 1 else ''}" if hidden > 0 else ""


def detail_lines(frame: Frame, width: int, glyphs: Glyphs) -> list[Line]:
    """The zoomed pane: everything NVML says about each GPU, and why it does not say the rest."""
    out: list[Line] = []
    for gpu in frame.gpus:
        out.append(full_line(gpu, frame, width, glyphs))
        facts = [
            f"uuid {escape_text(gpu.uuid) or NA}",
            f"memory controller {_value(gpu.memory_utilization_percent, '%')}",
            f"memory clock {_value(gpu.memory_clock_mhz, 'MHz')}",
            f"fan {_value(gpu.fan_percent, '%')}",
            f"PCIe tx {_rate(gpu.pcie_tx_bytes_per_second)} rx {_rate(gpu.pcie_rx_bytes_per_second)}",
            f"sample {format_ns(gpu.age_ns)} old",
        ]
        room = max(width - 4, 1)
        texts = [(text, "dim") for text in wrap(f"  {glyphs.dot}  ".join(facts), room)]
        for key, reason in gpu.unavailable:
            sentence = f"{NA}: {escape_text(key)}: {escape_text(reason)}"
            texts += [(text, "unknown") for text in wrap(sentence, room)]
        out += [fit_line([("    " + text, token)], width) for text, token in texts]
    return out or gpu_lines(frame, width, 1, glyphs)[0]


def _rate(size: int | None) -> str:
    return NA if size is None else f"{format_bytes(size)}/s"

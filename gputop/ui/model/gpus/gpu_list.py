"""The GPU pane: a line per GPU with as many columns as fit, or short lines side by side for many GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gputop.engine.frame import Frame, GpuRow
from gputop.format import bar, brief, escape_text, fit, format_counted, format_percent, sparkline
from gputop.ui.model.gpus import gpu_text as text
from gputop.ui.model.gpus.gpu_text import NA
from gputop.ui.model.gpus.only_gpus import CHOSEN
from gputop.ui.model.look import Glyphs, Line, Span, fit_line, line_width, merged

CELL_MIN = 38
_SPARK_MIN, _SPARK_MAX = 10, 80
_NAME_MAX, _METER = 24, 16
_METER_ROOM = 50  # columns, from which on there is a meter beside the graph


@dataclass(frozen=True, slots=True)
class GpuColumn:
    """A column of the full lines."""

    title: str  # its heading
    width: int  # its width with the space before it
    text: Callable[[GpuRow, Glyphs], str]  # returns a cell's text
    rank: int = 0  # 0: always shown; else lower ranks come first. Columns without any figure are left out


def _percent(title: str, key: str, rank: int) -> GpuColumn:
    def cell(gpu: GpuRow, _: Glyphs) -> str:
        value: float | None = getattr(gpu, key)
        return NA if value is None else format_percent(value)

    return GpuColumn(title, len(title) + 2, cell, rank)


def _state(gpu: GpuRow, _: Glyphs) -> str:
    return NA if gpu.performance_state is None else f"P{gpu.performance_state}"


COLUMNS: tuple[GpuColumn, ...] = (
    _percent("SM%", "sm_active_percent", 1),
    _percent("TENS%", "tensor_active_percent", 4),
    _percent("DRAM%", "dram_bandwidth_percent", 5),
    GpuColumn("MEMORY", 12, lambda gpu, _: text.memory_text(gpu)),
    GpuColumn("MEM%", 5, lambda gpu, _: text.memory_share_text(gpu), 2),
    GpuColumn("POWER", 11, lambda gpu, _: text.power_text(gpu)),
    GpuColumn("TEMP", 6, text.temperature_text),
    _percent("FAN%", "fan_percent", 3),
    GpuColumn("CLOCK", 9, text.clock_text),
    GpuColumn("PERF", 5, _state, 13),
    GpuColumn("THROTTLE", 26, lambda gpu, _: text.held_text(gpu), 8),
    GpuColumn(
        "PCIe RX/TX", 13,
        lambda gpu, _: text.both_ways(gpu.pcie_rx_bytes_per_second, gpu.pcie_tx_bytes_per_second), 6,
    ),
    GpuColumn(
        "NVLink RX/TX", 13,
        lambda gpu, _: text.both_ways(gpu.nvlink_rx_bytes_per_second, gpu.nvlink_tx_bytes_per_second), 9,
    ),
    GpuColumn("ENC/DEC%", 10, lambda gpu, _: text.video_text(gpu), 11),
    GpuColumn("ECC c/u", 9, lambda gpu, _: text.ecc_text(gpu), 10),
)  # fmt: skip
_NAME_RANK, _METER_RANK = 7, 12


@dataclass(frozen=True, slots=True)
class _Plan:
    """The widths of name, meter and graph, and the columns that fit."""

    name: int
    meter: int
    spark: int
    columns: tuple[GpuColumn, ...]


TRY_WITHOUT = "Try: gputop demo storm"


def facts_of_all(frame: Frame, width: int, glyphs: Glyphs) -> list[Span]:
    """Return the GPUs' common facts for the title, as many as fit: name, driver, CUDA, modes."""
    persistence = [{True: "on", False: "off", None: ""}[gpu.persistence_enabled] for gpu in frame.gpus]
    facts = [
        _in_common("", [gpu.name for gpu in frame.gpus]) if _one_name(frame) else "",
        f"driver {frame.driver}" if frame.driver else "",
        f"CUDA {frame.cuda}" if frame.cuda else "",
        _in_common("compute mode", [gpu.compute_mode or "" for gpu in frame.gpus]),
        _in_common("persistence", persistence),
    ]
    spans: list[Span] = []
    for fact in filter(None, facts):
        wanted: Span = (f"  {glyphs.shown(fact)}", "faint")
        if line_width([*spans, wanted]) <= width:
            spans.append(wanted)
    return spans


def _in_common(label: str, values: list[str]) -> str:
    """Return ``persistence on``, or if GPUs differ ``persistence on (0,1,2), off (3)``."""
    places: dict[str, list[int]] = {}
    for index, value in enumerate(values):
        places.setdefault(value, []).append(index)
    if not values or not all(values):
        return ""
    if len(places) == 1:
        return f"{label} {values[0]}".strip()
    parts = (f"{value} ({','.join(map(str, where))})" for value, where in places.items())
    return f"{label} {', '.join(parts)}"


def _one_name(frame: Frame) -> bool:
    """True if several GPUs have the same name, which is in the title."""
    return len(frame.gpus) > 1 and len({gpu.name for gpu in frame.gpus}) == 1


def no_gpu_sentence(frame: Frame) -> str:
    """Return why no GPU is shown."""
    traced = "CUDA calls are still traced."
    more = traced if any(row.calls for row in frame.processes) else TRY_WITHOUT
    for problem in frame.problems:
        if is_no_gpu_reason(problem):
            return f"No GPU is shown: {escape_text(brief(problem.partition(': ')[2], 0))}. {more}"
    if frame.driver:
        return f"No GPU: NVML ({escape_text(frame.driver)}) lists none. {traced}"
    return f"No GPU is shown: NVML could not be loaded (no NVIDIA driver). {more}"


def is_no_gpu_reason(problem: str) -> bool:
    return problem.partition(": ")[0] in ("no GPU figures", "NVML") or problem.startswith(CHOSEN)


def offered(column: GpuColumn, gpus: tuple[GpuRow, ...], glyphs: Glyphs) -> bool:
    """True if any GPU has a figure for a column, or has no figures at the moment."""
    return any(text.trouble(gpu, glyphs) or column.text(gpu, glyphs) != NA for gpu in gpus)


def _plan(frame: Frame, width: int, glyphs: Glyphs, *, titled: bool) -> _Plan:
    """Choose optional columns by rank while the graph keeps its least width."""
    wanted = [(column.rank, column.width, column) for column in COLUMNS]
    room = width - 4 - 5 - _SPARK_MIN - sum(size for rank, size, _ in wanted if rank == 0)
    name = min(max((len(gpu.name) for gpu in frame.gpus), default=0), _NAME_MAX)
    extras: list[tuple[int, int, GpuColumn | None]] = [(_METER_RANK, _METER + 1, None)]
    extras += [(_NAME_RANK, name + 1, None)] if not (titled and _one_name(frame)) else []
    extras += [entry for entry in wanted if entry[0] and offered(entry[2], frame.gpus, glyphs)]
    chosen: set[int] = {0}
    for rank, size, _ in sorted(extras, key=lambda entry: entry[0]):
        if (size if rank != _METER_RANK else _METER_ROOM) <= room:
            room -= size
            chosen.add(rank)
    return _Plan(
        name if _NAME_RANK in chosen else 0,
        _METER if _METER_RANK in chosen else 0,
        min(_SPARK_MIN + max(room, 0), _SPARK_MAX),
        tuple(column for rank, _, column in wanted if rank in chosen),
    )


def _utilization(gpu: GpuRow, glyphs: Glyphs) -> Span:
    shown = NA if gpu.utilization_percent is None else f"{gpu.utilization_percent}%"
    return fit(shown, 4, right=True), "unknown" if shown == NA or text.trouble(gpu, glyphs) else "value"


def _graph(gpu: GpuRow, width: int, glyphs: Glyphs) -> Span:
    """Return the utilisation of the newest marks, or why there is none."""
    if trouble := text.trouble(gpu, glyphs):
        return glyphs.fit(trouble[0].replace(" the ", " "), width), trouble[1]
    if gpu.mig_enabled and gpu.utilization_percent is None:
        instances = f"MIG: {format_counted(len(gpu.mig), 'instance')}"
        return glyphs.fit(instances if len(instances) <= width else f"MIG: {len(gpu.mig)}", width), "dim"
    return sparkline(gpu.utilization_history, width, ascii_only=glyphs.ascii), "busy"


def _token(column: GpuColumn, gpu: GpuRow, shown: str) -> str:
    if shown == NA:
        return "unknown"
    held = column.title in ("CLOCK", "THROTTLE") and text.slowed(gpu)
    return "warn" if held else ""


def _heading(frame: Frame, width: int, plan: _Plan) -> Line:
    """Return the heading of the full lines."""
    seconds = plan.spark / frame.rate_hz if frame.rate_hz > 0 else 0
    title = f"last {seconds:.0f} s, 0-100%"
    parts = ["GPU ", fit("NAME", plan.name + 1) if plan.name else "", "UTIL "]
    parts += [" " * (plan.meter + 1) if plan.meter else ""]
    parts += [fit(title if len(title) <= plan.spark else "0-100%", plan.spark)]
    parts += [fit(column.title, column.width, right=True) for column in plan.columns]
    return merged(fit_line([("".join(parts), "head")], width, token="head"))


def _full_line(gpu: GpuRow, plan: _Plan, width: int, glyphs: Glyphs, *, selected: bool) -> Line:
    """Return the figures of a GPU in one line."""
    cursor = glyphs.cursor if selected else " "
    spans: list[Span] = [(cursor, "cursor"), (f"{gpu.index:>2} ", "value")]
    if plan.name:
        name = glyphs.fit(glyphs.shown(gpu.name), plan.name)
        spans.append((name + " ", "dim"))
    spans += [_utilization(gpu, glyphs), (" ", "")]
    if plan.meter:
        share = None if gpu.utilization_percent is None else gpu.utilization_percent / 100
        full, empty = bar(share, plan.meter, ascii_only=glyphs.ascii)
        spans += [(full, "busy"), (empty, "rule"), (" ", "")]
    texts = [column.text(gpu, glyphs) for column in plan.columns]
    trouble = text.trouble(gpu, glyphs)
    if trouble and all(shown == NA for shown in texts):  # the reason in place of all columns
        return _selected(merged(glyphs.line([*spans, trouble], width)), selected)
    spans.append(_graph(gpu, plan.spark, glyphs))
    for column, shown in zip(plan.columns, texts, strict=True):
        cell = " " + glyphs.fit(shown, column.width - 1, right=True)
        spans.append((cell, _token(column, gpu, shown)))
    return _selected(merged(glyphs.line(spans, width)), selected)


def _short_cell(gpu: GpuRow, width: int, glyphs: Glyphs, *, selected: bool) -> Line:
    """Return a GPU in a part of a line: throttle sign, utilisation, memory, power, temperature."""
    cursor = glyphs.cursor if selected else " "
    held = (glyphs.warning, "warn") if text.slowed(gpu) else (" ", "")
    spans: list[Span] = [
        (cursor, "cursor"),
        (f"{gpu.index}", "value"),
        held,
        _utilization(gpu, glyphs),
        (" ", ""),
    ]
    heat = text.temperature_text(gpu, glyphs)
    tail = [_cell(text.memory_text(gpu), 12), _cell(text.power_text(gpu), 9), _cell(heat, 5)]
    while tail and 8 + 4 + sum(len(shown) for shown, _ in tail) > width:
        tail.pop()
    spans.append(_graph(gpu, max(width - 8 - sum(len(shown) for shown, _ in tail), 0), glyphs))
    return _selected(glyphs.line([*spans, *tail], width), selected)


def _cell(shown: str, width: int) -> Span:
    return fit(shown, width, right=True), "" if shown != NA else "unknown"


def _selected(line: Line, selected: bool) -> Line:
    return tuple((shown, f"{token}+select") for shown, token in line) if selected else line


def has_full_lines(frame: Frame, width: int, height: int) -> bool:
    """True if each GPU has a full line, below a heading."""
    return len(frame.gpus) + 1 <= height and width >= 64


def lines_needed(frame: Frame, width: int, room: int) -> int:
    """Return the lines that the pane wants (without a title), at most ``room``."""
    if not frame.gpus:
        return 1
    if has_full_lines(frame, width, room):
        return len(frame.gpus) + 1
    per_line = max(width // CELL_MIN, 1)
    return min(-(-len(frame.gpus) // per_line), max(room, 1))


def gpu_lines(
    frame: Frame,
    width: int,
    height: int,
    glyphs: Glyphs,
    selected: int | None = None,
    *,
    titled: bool = False,
) -> tuple[list[Line], str]:
    """Return the pane's lines, and what is out of sight.

    Args:
        frame: The frame.
        width: The width in columns.
        height: The most lines.
        glyphs: The screen's glyphs.
        selected: The index of the GPU with the cursor, if any.
        titled: True if a title shows common facts.
    """
    if not frame.gpus:
        return [glyphs.line([(no_gpu_sentence(frame), "unknown")], width)], ""
    if has_full_lines(frame, width, height):
        plan = _plan(frame, width, glyphs, titled=titled)
        rows = (_full_line(gpu, plan, width, glyphs, selected=gpu.index == selected) for gpu in frame.gpus)
        return [_heading(frame, width, plan), *rows], ""
    return _short_lines(frame, width, height, glyphs, selected, titled=titled)


def _short_lines(
    frame: Frame, width: int, height: int, glyphs: Glyphs, selected: int | None, *, titled: bool
) -> tuple[list[Line], str]:
    """Return short cells in columns, read downwards; the selected one is in sight.

    Without a title the last cell counts the GPUs out of sight.
    """
    per_line = max(width // CELL_MIN, 1)
    cell = (width - (per_line - 1) * 3) // per_line
    count = -(-len(frame.gpus) // per_line)
    place = next((at for at, gpu in enumerate(frame.gpus) if gpu.index == selected), 0) % count
    first = max(0, place - height + 1)
    rows = [frame.gpus[line::count][:per_line] for line in range(first, min(count, first + height))]
    hidden = len(frame.gpus) - sum(map(len, rows))
    more = f"+{hidden} GPU{'s' if hidden > 1 else ''}" if hidden > 0 else ""
    lines = []
    for row in rows:
        spans: list[Span] = []
        for gpu in row:
            spans += [(f" {glyphs.separator} ", "rule")] if spans else []
            last = more and not titled and row is rows[-1] and gpu is row[-1]
            room = cell - len(more) - 1 if last else cell
            spans += _short_cell(gpu, room, glyphs, selected=gpu.index == selected)
            spans += [(f" {more}", "more")] if last else []
        lines.append(merged(glyphs.line(spans, width)))
    return lines, more

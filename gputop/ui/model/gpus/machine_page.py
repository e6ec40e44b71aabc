"""The page of the machine: CPUs, memory, pressure, disks, network, mean of the GPUs; the last minutes."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.engine.frame import Frame
from gputop.engine.host_figures import HostRow
from gputop.format import NS_PER_S, bar, fit, format_bytes, format_percent
from gputop.ui.model.braille import PER_COLUMN, graph, graph_spans
from gputop.ui.model.gpus.gpu_history import GpuHistory, mean_of_all, shares
from gputop.ui.model.gpus.host_line import cpu_text
from gputop.ui.model.listing.process_table import format_run
from gputop.ui.model.look import Glyphs, Line, Span, line_width, merged, paragraph
from gputop.ui.model.time.history_ring import BIN_NS, HistoryRing, SeenFrames, share_of

_KEPT_NS = 600 * NS_PER_S
_SERIES = ("CPU", "memory", "CPU pressure", "I/O pressure")
_GPU_SERIES = "GPUs, mean", "GPU memory"
_LABEL, _FIGURE, _ROWS = 14, 6, 2
_LOADS = "load of 1 min", "of 5 min", "of 15 min"
_CORE = 20  # columns of a CPU
_TITLE, _GAP = 11, "   "
_HOLD_NS = 3 * NS_PER_S
_NONE = "The recording has no figures of the machine."
_NONE_YET = "The machine's figures appear within a second."
_NO_TOP = "Processes without a GPU are not listed (see top or btop); those that preempt are named in Threads."


class MachineHistory:
    """CPU, memory and pressure of the machine over the last ten minutes."""

    def __init__(self) -> None:
        self._ring = HistoryRing(len(_SERIES), _KEPT_NS // BIN_NS)
        self._seen = SeenFrames()

    def add(self, frame: Frame, *, present: bool = False) -> None:
        """Add a frame, unless it is known; ``present``: the newest one, while another moment is shown."""
        new, before_ns = self._seen.before(frame, present=present)
        if new and frame.host is not None:
            self._ring.put(frame.time_ns, _shares(frame.host), _HOLD_NS, before_ns)

    def lines(self, frame: Frame, gpus: GpuHistory, width: int, glyphs: Glyphs, *, tall: bool) -> list[Line]:
        """Return a graph of each figure: those of the machine, then the means of its GPUs."""
        rows = _ROWS if tall else 1
        columns = max(width - _LABEL - _FIGURE - 2, 8)
        cell_ns = max(NS_PER_S, -(-120 * NS_PER_S // (columns * PER_COLUMN) // BIN_NS) * BIN_NS)
        cells = frame.time_ns, columns * PER_COLUMN, cell_ns
        values = [*self._ring.cells(*cells), *mean_of_all(gpus, *cells)]
        now = (*_shares(frame.host), *_gpu_shares(frame))
        lines: list[Line] = []
        for label, share, row in zip((*_SERIES, *_GPU_SERIES), now, values, strict=True):
            if share is None:
                continue
            for place, drawn in enumerate(graph(row, rows, glyphs)):
                last = place == rows - 1
                head: list[Span] = [
                    (fit(f" {label}" if last else "", _LABEL), "head"),
                    (fit(f"{format_percent(100 * share)}%" if last else "", _FIGURE, right=True), "value"),
                    (" ", ""),
                ]
                lines.append(merged([*head, *graph_spans(drawn, "busy", glyphs)]))
        seconds = columns * PER_COLUMN * cell_ns // NS_PER_S
        span = f"{seconds // 60} min {seconds % 60} s" if seconds % 60 else f"{seconds // 60} min"
        return [*lines, ((f" 0-100%, last {span}", "faint"),)]


def _gpu_shares(frame: Frame) -> list[float | None]:
    """Return the mean utilisation and memory share of the GPUs; None: not reported."""
    found = [shares(gpu)[:2] for gpu in frame.gpus]
    columns = [[one for one in column if one is not None] for column in zip(*found, strict=True)] or [[], []]
    return [sum(column) / len(column) if column else None for column in columns]


def _shares(host: HostRow | None) -> tuple[float | None, ...]:
    if host is None:
        return (None,) * len(_SERIES)
    return (
        share_of(host.cpu_percent, 100),
        None
        if (free := share_of(host.memory_available_bytes, host.memory_total_bytes)) is None
        else 1 - free,
        share_of(host.pressure_cpu_percent, 100),
        share_of(host.pressure_io_percent, 100),
    )


def page(
    frame: Frame,
    history: MachineHistory,
    gpus: GpuHistory,
    width: int,
    glyphs: Glyphs,
    *,
    live: bool,
    tall: bool = True,
) -> list[Line]:
    """Return the page; not ``tall``: with a line for each graph."""
    host = frame.host
    if host is None:
        return [*paragraph(_NONE_YET if live else _NONE, "unknown", width, glyphs)]
    name = glyphs.shown(host.name or "this machine")
    facts: list[Line] = [((cpu, ""),)] if (cpu := cpu_text(host, glyphs)) else []
    if host.uptime_s is not None:
        facts.append(((f"up {format_run(host.uptime_s * NS_PER_S)}", "dim"),))
    title = _packed((f" {name}  ", "value"), facts, width)
    lines = [
        *title,
        *history.lines(frame, gpus, width, glyphs, tall=tall),
        *_cores(host, width, glyphs),
        *_figures(host, width),
    ]
    lines += paragraph(_NO_TOP, "faint", width, glyphs)
    return [glyphs.line(line, width) for line in lines]


def _cores(host: HostRow, width: int, glyphs: Glyphs) -> list[Line]:
    across = max((width - 1) // _CORE, 1)
    cells: list[list[Span]] = []
    for index, percent in enumerate(host.cores_percent):
        full, empty = bar(percent / 100, _CORE - 11, ascii_only=glyphs.ascii)
        cells.append(
            [(f"{index:>4} ", "dim"), (full, "busy"), (empty, "rule"), (f"{percent:4.0f}% ", "value")]
        )
    rows = [cells[at : at + across] for at in range(0, len(cells), across)]
    return [merged([span for cell in row for span in cell]) for row in rows]


def _figures(host: HostRow, width: int) -> list[Line]:
    """Return the known figures in lines by kind."""
    memory = [
        ("used", _less(host.memory_total_bytes, host.memory_available_bytes), host.memory_total_bytes),
        ("available", host.memory_available_bytes, None),
        ("cached", host.memory_cached_bytes, None),
        ("free", host.memory_free_bytes, None),
        ("swap used", _less(host.swap_total_bytes, host.swap_free_bytes), host.swap_total_bytes),
    ]
    pressure = (
        ("CPU", host.pressure_cpu_percent),
        ("memory", host.pressure_memory_percent),
        ("I/O", host.pressure_io_percent),
    )
    rows: dict[str, list[tuple[str, str]]] = {
        "work": [
            *((label, f"{load:.2f}") for label, load in zip(_LOADS, host.load, strict=False)),
            *_numbers(("processes", host.processes), ("threads", host.threads)),
        ],
        "memory": [
            (label, format_bytes(size) + (f"/{format_bytes(whole)}" if whole else ""))
            for label, size, whole in memory
            if size is not None
        ],
        "pressure": [(what, f"{format_percent(one)}%") for what, one in pressure if one is not None],
        "disks": _rates("read", host.disk_read_bytes_per_second)
        + _rates("written", host.disk_write_bytes_per_second)
        + (
            [("busiest", f"{format_percent(host.disk_busy_percent)}%")]
            if host.disk_busy_percent is not None
            else []
        ),
        "network": _rates("received", host.received_bytes_per_second, host.received_bytes)
        + _rates("sent", host.sent_bytes_per_second, host.sent_bytes),
    }
    return [
        line
        for title, found in rows.items()
        if found
        for line in _packed(
            (fit(f" {title}", _TITLE), "head"),
            [((f"{label} ", "dim"), (figure, "value")) for label, figure in found],
            width,
        )
    ]


def _packed(first: Span, parts: Sequence[Line], width: int) -> list[Line]:
    """Return lines with as many parts as fit, indented behind the first one."""
    lines: list[list[Span]] = [[first]]
    gap = ""
    for part in parts:
        if gap and line_width([*lines[-1], (gap, ""), *part]) > width:
            lines.append([(" " * len(first[0]), "")])
            gap = ""
        lines[-1] += [(gap, ""), *part]
        gap = _GAP
    return [merged(line) for line in lines]


def _numbers(*figures: tuple[str, int | None]) -> list[tuple[str, str]]:
    return [(label, str(value)) for label, value in figures if value is not None]


def _rates(label: str, rate: int | None, total: int | None = None) -> list[tuple[str, str]]:
    if rate is None:
        return []
    found = [(label, f"{format_bytes(rate)}/s")]
    return [*found, (f"{label} in total", format_bytes(total))] if total is not None else found


def _less(whole: int | None, free: int | None) -> int | None:
    return whole - free if whole is not None and free is not None else None

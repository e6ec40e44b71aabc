"""The page of one GPU: its figures, reasons for missing ones, its instances and processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gputop.engine.frame import GpuProcess, GpuRow, MigRow
from gputop.format import escape_text, fit, format_bytes, format_ns, format_percent
from gputop.ui.model.gpus import gpu_text
from gputop.ui.model.gpus.gpu_text import NA
from gputop.ui.model.look import Glyphs, Line, Span, merged, paragraph

_SECTION, _LABEL, _CELL_MIN = 10, 17, 34
_HELD_WIDE = "clock limit"  # on a line of its own, since it may be long
_NO_PROCESS = "no process has a context on this GPU"
_MIG_HEADS = (("#", 3), ("ID", 4), ("SMs", 5), ("MEMORY", 14), ("SM%", 6), ("TENS%", 7), ("DRAM%", 7))


def page(gpu: GpuRow, graphs: Sequence[Line], width: int, glyphs: Glyphs) -> list[Line]:
    """Return the page; ``graphs`` are those of the last minutes, if any figure is known."""
    lines = [_who(gpu, width, glyphs), *_graphs(gpu, graphs, glyphs)]
    if not gpu.lost:
        for title, figures in gpu_text.SECTIONS:
            lines += _section(title, figures, gpu, width, glyphs)
    for sentence in gpu_text.reasons(gpu):
        lines += paragraph(sentence, "alert" if gpu.lost else "unknown", width, glyphs)
    lines += instances(gpu, glyphs)
    lines += processes(gpu, glyphs)
    return [glyphs.line(line, width) for line in lines]


def _who(gpu: GpuRow, width: int, glyphs: Glyphs) -> Line:
    facts = [gpu.pci_bus_id, f"sample {format_ns(gpu.age_ns)} old", gpu.uuid]
    rest = f"  {glyphs.dot}  ".join(escape_text(fact) for fact in facts if fact)
    name = glyphs.shown(gpu.name)
    return ((f" GPU {gpu.index}", "value"), (f"  {name}  ", ""), (rest, "faint"))


def _graphs(gpu: GpuRow, graphs: Sequence[Line], glyphs: Glyphs) -> Sequence[Line]:
    if trouble := gpu_text.trouble(gpu, glyphs):
        return [((" ", ""), trouble)]
    return graphs or [((" no utilisation reported so far", "unknown"),)]


def _section(
    title: str, figures: Sequence[gpu_text.Figure], gpu: GpuRow, width: int, glyphs: Glyphs
) -> list[Line]:
    """Return figures side by side, behind their title."""
    across = max((width - _SECTION - 1) // _CELL_MIN, 1)
    cell = (width - _SECTION - 1) // across
    cells = [_cell(figure, gpu, cell, glyphs) for figure in figures if figure.label != _HELD_WIDE]
    rows: list[list[Span]] = [
        [span for spans in cells[at : at + across] for span in spans] for at in range(0, len(cells), across)
    ]
    rows += [
        _cell(figure, gpu, width - _SECTION - 1, glyphs) for figure in figures if figure.label == _HELD_WIDE
    ]
    names = [title, *[""] * (len(rows) - 1)]
    return [
        merged(((fit(f" {name}", _SECTION + 1), "head"), *row)) for name, row in zip(names, rows, strict=True)
    ]


def _cell(figure: gpu_text.Figure, gpu: GpuRow, width: int, glyphs: Glyphs) -> list[Span]:
    shown = figure.text(gpu, glyphs)
    token = "unknown" if shown == NA else "value"
    if figure.label == _HELD_WIDE and gpu_text.slowed(gpu):
        token = "warn"
    return [
        (fit(figure.label, _LABEL), "dim"),
        (glyphs.fit(shown, max(width - _LABEL, 1)), token),
    ]


def _heads(heads: Sequence[tuple[str, int]], last: str) -> Line:
    text = "".join(fit(title, width, right=True) for title, width in heads)
    return ((f" {text}  {last}", "head"),)


def instances(gpu: GpuRow, glyphs: Glyphs) -> list[Line]:
    """Return a GPU's MIG instances with a title; nothing without MIG."""
    if not gpu.mig_enabled:
        return []
    title: Line = ((f" Instances (MIG) {len(gpu.mig)}", "title"),)
    if not gpu.mig:
        return [title, ((" MIG is on without an instance: nothing can run on this GPU", "dim"),)]
    return [title, _heads(_MIG_HEADS, "NAME"), *(_instance(row, glyphs) for row in gpu.mig)]


def _instance(row: MigRow, glyphs: Glyphs) -> Line:
    texts = (
        str(row.index),
        "-" if row.gpu_instance is None else str(row.gpu_instance),
        "-" if row.multiprocessors is None else str(row.multiprocessors),
        f"{format_bytes(row.memory_used_bytes)}/{format_bytes(row.memory_total_bytes)}",
        format_percent(row.sm_active_percent),
        format_percent(row.tensor_active_percent),
        format_percent(row.dram_bandwidth_percent),
    )
    cells = "".join(fit(text, size, right=True) for text, (_, size) in zip(texts, _MIG_HEADS, strict=True))
    names = "  ".join(glyphs.shown(text) for text in (row.name, row.uuid) if text)
    return ((f" {cells}", ""), (f"  {names}", "dim"))


def processes(gpu: GpuRow, glyphs: Glyphs) -> list[Line]:
    """Return the processes on the GPU with a title; nothing if NVML does not report them."""
    if gpu.processes is None:
        return []
    title: Line = ((f" Processes {len(gpu.processes)}", "title"),)
    if not gpu.processes:
        return [title, ((f" {_NO_PROCESS}", "dim"),)]
    table = _user_table(gpu, gpu.processes, glyphs)
    return [title, *table, *(((f" {text}", "warn"),) for text in gpu_text.idle_holders(gpu, glyphs))]


# title, width, text
_UserColumn = tuple[str, int, Callable[[GpuProcess], str]]
_USER_COLUMNS: tuple[_UserColumn, ...] = (
    ("PID", 8, lambda row: str(row.pid)),
    ("TYPE", 5, lambda row: escape_text(row.kind)),
    ("MEMORY", 8, lambda row: format_bytes(row.memory_bytes)),
    ("SM%", 5, lambda row: format_percent(row.sm_percent)),
    ("MEM%", 5, lambda row: format_percent(row.memory_percent)),
    ("ENC%", 5, lambda row: format_percent(row.encoder_percent)),
    ("DEC%", 5, lambda row: format_percent(row.decoder_percent)),
)
_INSTANCE: _UserColumn = ("INST", 5, lambda row: "-" if row.gpu_instance is None else str(row.gpu_instance))
_USER_LEAST, _USER_MOST = 4, 16


def _user_table(gpu: GpuRow, rows: Sequence[GpuProcess], glyphs: Glyphs) -> list[Line]:
    """Return a heading and a line for each process, dim for those that are not watched."""
    columns = [*_USER_COLUMNS, *([_INSTANCE] if gpu.mig_enabled else [])]
    users = [glyphs.shown(row.user) or "?" for row in rows]
    room = max(_USER_LEAST, min(max(map(len, users)), _USER_MOST))
    titles = "".join(fit(title, width, right=True) for title, width, _ in columns)
    lines: list[Line] = [((f" {titles}  {fit('USER', room)}  COMMAND", "head"),)]
    for row, user in zip(rows, users, strict=True):
        cells = "".join(fit(text(row), width, right=True) for _, width, text in columns)
        inside = f"[{glyphs.shown(row.container)}] " if row.container else ""
        program, space, words = row.command.partition(" ")
        command = program.rpartition("/")[2] + space + words or row.name
        lines.append(
            (
                (f" {cells}", "" if row.watched else "dim"),
                (f"  {fit(glyphs.clip(user, room), room)}  ", "dim"),
                (inside, "faint"),
                (glyphs.shown(command) or "unknown: not visible in /proc", "" if command else "unknown"),
            )
        )
    return lines

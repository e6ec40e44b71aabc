"""What a process launches by kernel: folded names, whose library, launches a second and a step, line."""

from __future__ import annotations

import math
from typing import NamedTuple

from gputop.analysis.answer.kernel_report import KernelLaunches, KernelReport, per_step_text
from gputop.analysis.answer.memory_report import counted
from gputop.analysis.answer.report import Report
from gputop.engine.calls.launch_counts import NAMELESS, by_folded_name, folded, shape_text
from gputop.engine.calls.stack_table import Line as SourceLine
from gputop.engine.frame import Frame, ProcessRow
from gputop.format import escape_text, format_count, format_percent
from gputop.ui.model.look import Glyphs, Line, fit_line

_SHAPES_FROM, _SHAPE_WIDTH = 110, 24  # columns of the pane, of a shape


class _Told(NamedTuple):
    """What the explanation knows of kernels of one folded name: GPU time and its error as shares."""

    per_step: float | None = None
    line: SourceLine | None = None
    gpu: tuple[float, float] | None = None


def kernel_lines(
    frame: Frame, row: ProcessRow, width: int, glyphs: Glyphs, report: Report | None = None
) -> list[Line]:
    """A heading, and a line for each name; kernels that differ in their templates only are one line.

    ``SMALL%`` is the share of launches with fewer threads than fill the GPU, of those whose shape is known;
    ``SHAPE`` the most frequent one. Launches a second are those of the frame; launches a step, the line that
    makes most of them, and the estimate of their GPU time with its error (``GPU%``, of the time that was
    explained) are those of the explanation, where it knows them.
    """
    seconds, total = frame.window_ns / 1e9, sum(kernel.launches for kernel in row.kernels)
    known = _explained(report, row.pid)
    timed = any(one.gpu is not None for one in known.values())
    shapes = width >= _SHAPES_FROM
    shape_head = f"{'SHAPE':<{_SHAPE_WIDTH}} " if shapes else ""
    gpu_head = f"{'GPU%':>6} " if timed else ""
    head = f" {'LAUNCH/s':>8} {'/STEP':>6} {'SHARE%':>6} {'SMALL%':>6} {gpu_head} {'LIBRARY':<16} "
    head += f"{shape_head}KERNEL"
    lines: list[Line] = [((head, "head"),)]
    for kernel in by_folded_name(row.kernels):
        share = format_percent(100 * kernel.launches / max(total, 1))
        several = f"  {kernel.kernels} kernels" if kernel.kernels > 1 else ""
        told = known.get((kernel.name, kernel.library), _Told())
        step = "-" if told.per_step is None else per_step_text(told.per_step)
        small = "-" if kernel.small is None else format_percent(100 * kernel.small / kernel.shaped)
        gpu = f"{_gpu_text(told.gpu, glyphs):>6} " if timed else ""
        lead = f" {format_count(kernel.launches / seconds):>8} {step:>6} {share:>6} {small:>6} {gpu} "
        whose = escape_text(kernel.library or "-", ascii_only=glyphs.ascii)[:16]
        shape = "-" if kernel.shape is None else shape_text(kernel.shape)
        at = f"  {escape_text(told.line.brief, ascii_only=glyphs.ascii)}" if told.line is not None else ""
        spans = [
            (lead, "value"),
            (f"{whose:<16} ", "dim"),
            *([(f"{shape:<{_SHAPE_WIDTH}} ", "value")] if shapes else []),
            (escape_text(kernel.name, ascii_only=glyphs.ascii), "unknown" if kernel.name == NAMELESS else ""),
            (several + at, "dim"),
        ]
        lines.append(fit_line(spans, width, ellipsis=glyphs.ellipsis))
    return lines


def _explained(report: Report | None, pid: int) -> dict[tuple[str, str], _Told]:
    """What is known by folded name and library."""
    kernels = report.kernels if report is not None else None
    if kernels is None:
        return {}
    alike: dict[tuple[str, str], list[KernelLaunches]] = {}
    for row in kernels.rows:
        if row.pid == pid:
            alike.setdefault((folded(row.name) or NAMELESS, row.library), []).append(row)
    return {key: _together(kernels, rows) for key, rows in alike.items()}


def _together(kernels: KernelReport, rows: list[KernelLaunches]) -> _Told:
    steps = [step for row in rows if (step := kernels.per_step(row)) is not None]
    lines: dict[SourceLine, int] = {}
    for row in rows:
        lines = counted(lines, row.lines)
    times = [row.gpu for row in rows if row.gpu is not None]
    gpu = None
    if len(times) == len(rows):  # else the time of the others is missing in it
        over = max(kernels.over_ns, 1)
        gpu = sum(one.ns for one in times) / over, sum(one.error_ns for one in times) / over
    return _Told(sum(steps) if steps else None, _most(lines), gpu)


def _gpu_text(gpu: tuple[float, float] | None, glyphs: Glyphs) -> str:
    """``41±3``, in percent; ``-`` where it is not known."""
    if gpu is None:
        return "-"
    return f"{100 * gpu[0]:.0f}{'+-' if glyphs.ascii else '±'}{math.ceil(100 * gpu[1])}"


def _most(lines: dict[SourceLine, int]) -> SourceLine | None:
    return max(lines, key=lambda one: (lines[one], one), default=None)

"""What a process launches by kernel: folded names, whose library, launches a second and a step, line."""

from __future__ import annotations

from gputop.engine.frame import Frame, ProcessRow
from gputop.engine.kernels import NAMELESS, by_folded_name, folded
from gputop.engine.kernels_output import shape_text
from gputop.engine.lines import Line as SourceLine
from gputop.explain.answer.kernels_output import per_step_text
from gputop.explain.answer.report import Report
from gputop.explain.answer.sums import counted
from gputop.format import escape_text, format_count, format_percent
from gputop.ui.model.look import Glyphs, Line, fit_line

_SHAPES_FROM, _SHAPE_WIDTH = 110, 24  # columns of the pane, of a shape
Known = dict[tuple[str, str], tuple[float | None, SourceLine | None]]


def kernel_lines(
    frame: Frame, row: ProcessRow, width: int, glyphs: Glyphs, report: Report | None = None
) -> list[Line]:
    """A heading, and a line for each name; kernels that differ in their templates only are one line.

    ``SMALL%`` is the share of launches with fewer threads than fill the GPU, of those whose shape is known;
    ``SHAPE`` the most frequent one. Launches a second are those of the frame; launches a step, and the line
    that makes most of them, are those of the explanation, where it knows them.
    """
    seconds, total = frame.window_ns / 1e9, sum(kernel.launches for kernel in row.kernels)
    known = _explained(report, row.pid)
    shapes = width >= _SHAPES_FROM
    shape_head = f"{'SHAPE':<{_SHAPE_WIDTH}} " if shapes else ""
    head = f" {'n/s':>6} {'/STEP':>6} {'SHARE%':>6} {'SMALL%':>6}  {'LIBRARY':<16} {shape_head}KERNEL"
    lines: list[Line] = [((head, "head"),)]
    for kernel in by_folded_name(row.kernels):
        share = format_percent(100 * kernel.launches / max(total, 1))
        several = f"  {kernel.kernels} kernels" if kernel.kernels > 1 else ""
        times, line = known.get((kernel.name, kernel.library), (None, None))
        step = "-" if times is None else per_step_text(times)
        small = "-" if kernel.small is None else format_percent(100 * kernel.small / kernel.shaped)
        lead = f" {format_count(kernel.launches / seconds):>6} {step:>6} {share:>6} {small:>6}  "
        whose = escape_text(kernel.library or "-", ascii_only=glyphs.ascii)[:16]
        shape = "-" if kernel.shape is None else shape_text(kernel.shape)
        at = f"  {escape_text(line.brief, ascii_only=glyphs.ascii)}" if line is not None else ""
        spans = [
            (lead, "value"),
            (f"{whose:<16} ", "dim"),
            *([(f"{shape:<{_SHAPE_WIDTH}} ", "value")] if shapes else []),
            (escape_text(kernel.name, ascii_only=glyphs.ascii), "unknown" if kernel.name == NAMELESS else ""),
            (several + at, "dim"),
        ]
        lines.append(fit_line(spans, width, ellipsis=glyphs.ellipsis))
    return lines


def _explained(report: Report | None, pid: int) -> Known:
    """(Folded name, library) -> launches a step, and the line that makes most of them."""
    kernels = report.kernels if report is not None else None
    if kernels is None:
        return {}
    times: dict[tuple[str, str], float | None] = {}
    lines: dict[tuple[str, str], dict[SourceLine, int]] = {}
    for row in kernels.rows:
        if row.pid == pid:
            key, step = (folded(row.name) or NAMELESS, row.library), kernels.per_step(row)
            times[key] = None if step is None else step + (times.get(key) or 0)
            lines[key] = counted(lines.get(key, {}), row.lines)
    return {key: (times[key], _most(lines[key])) for key in times}


def _most(lines: dict[SourceLine, int]) -> SourceLine | None:
    return max(lines, key=lambda one: (lines[one], one), default=None)

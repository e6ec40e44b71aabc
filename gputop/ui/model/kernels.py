"""What a process launches by kernel: folded names, whose library, launches a second and a step, line."""

from __future__ import annotations

from gputop.engine.frame import Frame, ProcessRow
from gputop.engine.kernels import NAMELESS, by_folded_name, folded
from gputop.engine.lines import Line as SourceLine
from gputop.explain.answer.kernels_output import per_step_text
from gputop.explain.answer.report import Report
from gputop.explain.answer.sums import counted
from gputop.format import escape_text, format_count, format_percent
from gputop.ui.model.look import Glyphs, Line, fit_line

Known = dict[tuple[str, str], tuple[float | None, SourceLine | None]]


def kernel_lines(
    frame: Frame, row: ProcessRow, width: int, glyphs: Glyphs, report: Report | None = None
) -> list[Line]:
    """A heading, and a line for each name; kernels that differ in their templates only are one line.

    Launches a second are those of the frame; launches a step, and the line that makes most of them, are those
    of the explanation, where it knows them.
    """
    seconds, total = frame.window_ns / 1e9, sum(kernel.launches for kernel in row.kernels)
    known = _explained(report, row.pid)
    lines: list[Line] = [((f" {'n/s':>6} {'/STEP':>6} {'SHARE%':>6}  {'LIBRARY':<16} KERNEL", "head"),)]
    for name, library, launches, kernels in by_folded_name(row.kernels):
        share = format_percent(100 * launches / max(total, 1))
        several = f"  {kernels} kernels" if kernels > 1 else ""
        times, line = known.get((name, library), (None, None))
        step = "-" if times is None else per_step_text(times)
        lead = f" {format_count(launches / seconds):>6} {step:>6} {share:>6}  "
        whose = escape_text(library or "-", ascii_only=glyphs.ascii)[:16]
        at = f"  {escape_text(line.brief, ascii_only=glyphs.ascii)}" if line is not None else ""
        spans = [
            (lead, "value"),
            (f"{whose:<16} ", "dim"),
            (escape_text(name, ascii_only=glyphs.ascii), "unknown" if name == NAMELESS else ""),
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

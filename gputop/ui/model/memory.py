"""The memory of a process as lines: held by line, growing without end, and what failed for lack of it."""

from __future__ import annotations

from gputop.analysis.answer.memory_report import BEFORE, KINDS, leak_line, shortage_lines
from gputop.analysis.answer.report import Report
from gputop.format import escape_text, format_bytes, format_count, format_counted
from gputop.ui.model.look import Glyphs, Line, fit_line, paragraph


def memory_lines(report: Report | None, pid: int, width: int, glyphs: Glyphs) -> list[Line]:
    """All of it, the troubles first; the newest shortage before older ones."""
    memory = report.memory if report is not None else None
    held = next((one for one in memory.processes if one.pid == pid), None) if memory else None
    if memory is None or held is None:
        return []
    lines: list[Line] = []
    for one in sorted(memory.shortages, key=lambda one: -one.time_ns):
        if one.pid == pid:
            first, *rest = shortage_lines(one)
            lines += _wrapped(first, width, glyphs, "alert")
            lines += [line for text in rest for line in _wrapped(text, width, glyphs, "")]
    for leak in memory.leaks:
        if leak.pid == pid:
            lines += _wrapped(leak_line(leak), width, glyphs, "warn")
    until = "held until its end" if held.ended else "holds"
    head = f"{until} {format_bytes(held.held)} of the GPU (at most {format_bytes(held.peak)})"
    if held.pinned:
        head += f", {format_bytes(held.pinned)} page-locked"
    if not held.whole:
        head += f", and {BEFORE}"
    if held.strangers:
        head += f"; it freed {format_counted(held.strangers, 'allocation')} from before it was watched"
    lines += _wrapped(head, width, glyphs, "value")
    if held.lines:
        lines.append(((f" {'HELD':>6} {'PIECES':>6} {'TOOK':>6} {'TIMES':>6}  {'KIND':<11} LINE", "head"),))
    for row in held.lines:
        place = row.line.text() if row.line is not None else "not known"
        shown = (
            f" {format_bytes(row.held):>6} {format_count(row.pieces):>6} {format_bytes(row.taken):>6} "
            f"{format_count(row.takes):>6}  {KINDS.get(row.use, row.use):<11} "
        )
        text = escape_text(place, ascii_only=glyphs.ascii)
        token = "" if row.held else "dim"
        lines.append(fit_line([(shown, token), (text, token)], width, ellipsis=glyphs.ellipsis))
    return lines


def _wrapped(text: str, width: int, glyphs: Glyphs, token: str) -> list[Line]:
    indent = 1 + len(text) - len(text.lstrip())
    return paragraph(text.strip(), token, width, glyphs, indent=indent)

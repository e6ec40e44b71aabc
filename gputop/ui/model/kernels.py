"""What a process launches by kernel, as lines: folded names, whose library, launches a second, share."""

from __future__ import annotations

from gputop.engine.frame import Frame, ProcessRow
from gputop.engine.kernels import by_folded_name
from gputop.format import escape_text, format_count, format_percent
from gputop.ui.model.look import Glyphs, Line, fit_line


def kernel_lines(frame: Frame, row: ProcessRow, width: int, glyphs: Glyphs) -> list[Line]:
    """A heading, and a line for each name; kernels that differ in their templates only are one line."""
    seconds, total = frame.window_ns / 1e9, sum(kernel.launches for kernel in row.kernels)
    lines: list[Line] = [((f" {'n/s':>6} {'SHARE%':>6}  {'LIBRARY':<16} KERNEL", "head"),)]
    for name, library, launches, kernels in by_folded_name(row.kernels):
        share = format_percent(100 * launches / max(total, 1))
        several = f"  {kernels} kernels" if kernels > 1 else ""
        lead = f" {format_count(launches / seconds):>6} {share:>6}  "
        whose = escape_text(library or "-", ascii_only=glyphs.ascii)[:16]
        spans = [
            (lead, "value"),
            (f"{whose:<16} ", "dim"),
            (escape_text(name, ascii_only=glyphs.ascii), "unknown" if name.startswith("handles ") else ""),
            (several, "dim"),
        ]
        lines.append(fit_line(spans, width, ellipsis=glyphs.ellipsis))
    return lines

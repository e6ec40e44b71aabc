"""The calls of a process that failed, as lines: error and text, how often, when first, at which line."""

from __future__ import annotations

from gputop.analysis.answer.report import Report
from gputop.engine.calls.failed_calls import failure_line, launch_line
from gputop.ui.model.look import Glyphs, Line, paragraph


def failed_lines(report: Report | None, pid: int, width: int, glyphs: Glyphs) -> list[Line]:
    """All of a process, the newest first; below one that ends everything what the GPU was given before it."""
    every = report.failures if report is not None else ()
    failures = sorted((one for one in every if one.pid == pid), key=lambda one: -one.last_ns)
    lines: list[Line] = []
    for failure in failures:
        lines += paragraph(failure_line(failure), "alert" if failure.error.sticky else "", width, glyphs)
        if failure.error.sticky:
            said = "every later call of the process fails"
            if failure.launches:
                said += "; not known to have ended before it:"
            lines += paragraph(said, "warn", width, glyphs, indent=3)
        for launch in failure.launches:
            lines += paragraph(launch_line(launch, failure.first_ns), "dim", width, glyphs, indent=5)
    return lines

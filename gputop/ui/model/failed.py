"""The calls of a process that failed, as lines: error and text, how often, when first, at which line."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.engine.failed_calls import Failure
from gputop.engine.failed_output import failure_line, launch_line
from gputop.explain.answer.report import Report
from gputop.format import escape_text
from gputop.ui.model.look import Glyphs, Line, wrap


def failures_of(report: Report | None, pid: int | None) -> tuple[Failure, ...]:
    """Those of a process, the newest first."""
    every = report.failures if report is not None else ()
    return tuple(sorted((one for one in every if one.pid == pid), key=lambda one: -one.last_ns))


def failed_lines(failures: Sequence[Failure], width: int, glyphs: Glyphs) -> list[Line]:
    """All of them, wrapped; below an error that ends everything what the GPU was given before it."""
    lines: list[Line] = []
    for failure in failures:
        lines += _wrapped(failure_line(failure), 1, width, glyphs, "alert" if failure.error.sticky else "")
        if failure.error.sticky:
            said = "every later call of the process fails"
            if failure.launches:
                said += "; not known to have ended before it:"
            lines += _wrapped(said, 3, width, glyphs, "warn")
        for launch in failure.launches:
            lines += _wrapped(launch_line(launch, failure.first_ns), 5, width, glyphs, "dim")
    return lines


def _wrapped(text: str, indent: int, width: int, glyphs: Glyphs, token: str) -> list[Line]:
    shown = escape_text(text, ascii_only=glyphs.ascii)
    return [((" " * indent + part, token),) for part in wrap(shown, max(width - indent - 1, 8))]

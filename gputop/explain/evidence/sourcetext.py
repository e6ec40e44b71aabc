"""The text of a line of the program, where this machine has the file that the program had."""

from __future__ import annotations

from gputop.engine.lines import Line
from gputop.engine.source import read_source
from gputop.engine.wallclock import WallClock
from gputop.explain.evidence.evidence import Evidence


def text_of(evidence: Evidence, line: Line) -> str:
    """The line's source; "" where this machine has not the file that the program had."""
    if not line.file.startswith("/") or line.is_native or line.line < 1:
        return ""
    source = read_source(line, None)
    clock = WallClock.of_header(evidence.header)
    if clock is not None and (
        clock.joined(evidence.facts.clock).is_after(source.changed_ns, evidence.end_ns) is not False
    ):
        return ""  # or it cannot be told, since the clock was set
    return source.lines[line.line - 1] if line.line <= len(source.lines) else ""

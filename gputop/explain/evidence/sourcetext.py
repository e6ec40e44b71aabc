"""Lines of the program: their numbers by stack, and their text where this machine has the same file."""

from __future__ import annotations

import numpy as np

from gputop.engine.lines import Line
from gputop.engine.source import read_source
from gputop.engine.wallclock import WallClock
from gputop.explain.evidence.evidence import Column, Evidence
from gputop.explain.evidence.ranges import Ints


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


def line_numbers(evidence: Evidence, stacks: Column) -> Ints:
    """A number for the line of each stack, the same for the same line; -1 where it is not known."""
    numbers = np.unique(stacks)
    known: dict[Line, int] = {}
    of_stack = np.full(len(numbers), -1, np.int64)
    for place, stack in enumerate(numbers.tolist()):
        line = evidence.facts.stacks.line(stack)
        if line is not None:
            of_stack[place] = known.setdefault(line, len(known))
    of_each: Ints = of_stack[np.searchsorted(numbers, stacks)]  # of few different ones faster than an inverse
    return of_each

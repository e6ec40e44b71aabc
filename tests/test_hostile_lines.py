"""A recording that names ten thousand files of this machine: those of few of its lines are read."""

from __future__ import annotations

import re
from typing import Any, cast

import numpy as np
import pytest

from gputop.analysis.evidence import call_context
from gputop.analysis.evidence.evidence import Evidence
from gputop.engine.calls.stack_table import Line


class Named:
    """Facts, by which each stack is a line of a file of its own, but for a thousand of one line."""

    stacks: Any

    def __init__(self) -> None:
        self.stacks = self.facts = self

    def frames(self, stack: int) -> tuple[Line, ...]:
        return (Line("/srv/usual.py", 3, "f") if stack < 1_000 else Line(f"/srv/{stack}.py", 1, "f"),)


def test_of_many_lines_the_most_frequent_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def text_of(_evidence: Evidence, line: Line) -> str:
        read.append(line.file)
        return "with lock:"

    monkeypatch.setattr(call_context, "text_of", text_of)
    stacks = np.concatenate([np.repeat(np.arange(1_000), 2), np.arange(1_000, 11_000)]).astype(np.uint64)
    found = call_context.by_text(cast(Evidence, Named()), stacks, re.compile("with"))
    assert len(read) == call_context.MOST_READ
    assert read[0] == "/srv/usual.py"
    assert found[:2_000].all(), "stacks of one line are one reading"
    assert np.count_nonzero(found[2_000:]) == call_context.MOST_READ - 1

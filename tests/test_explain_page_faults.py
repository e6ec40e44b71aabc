"""Time on a CPU that page faults take (C11): told between two waits, wherever preemptions cut it."""

from __future__ import annotations

import pytest

from tests.cause_stories import WORKER, loader
from tests.programs import Program


@pytest.mark.parametrize(("pages", "cause"), [(5000, "C11"), (1000, "C08")])
def test_a_preemption_does_not_part_touched_pages_from_what_unmaps_them(pages: int, cause: str) -> None:
    """7 ms between two waits: all pages are touched in 3 ms, then a preemption and 3.9 ms without faults."""

    def touches(program: Program, at: int) -> None:
        program.off(at - 600, at, pid=WORKER, nivcsw=0)
        program.preempted(at + 3000, at + 3100, pid=WORKER, nivcsw=pages)
        program.off(at + 7000, at + 7300, pid=WORKER, nivcsw=0)

    first, *_ = loader(touches).report().findings
    assert first.cause == cause
    assert first.loss.lower >= 0.9 * 40 * 6_900_000

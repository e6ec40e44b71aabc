"""Where the time of the only gap of a program went."""

from __future__ import annotations

import numpy as np

from gputop.analysis.chains.chain import State
from tests import programs as p
from tests.programs import US, Program

Pieces = list[tuple[int, str, int, int]]


def pieces(program: Program) -> Pieces:
    """(thread, state, begin, end) of the leaves of the only gap; they cover it without overlap."""
    analysis = program.analysis()
    (begin,), (end,) = analysis.gaps.begin.tolist(), analysis.gaps.end.tolist()
    segments, tids = analysis.segments, analysis.evidence.threads.tid
    order = np.lexsort((segments.thread, segments.begin))
    found = [
        (
            int(tids[thread]) if thread >= 0 else 0,
            State(state).name,
            (low - p.START) // US,
            (high - p.START) // US,
        )
        for thread, state, low, high in zip(
            *(
                column[order].tolist()
                for column in (segments.thread, segments.state, segments.begin, segments.end)
            ),
            strict=True,
        )
    ]
    assert int(segments.ns.sum()) == end - begin
    return found

"""What is carried over of a time that is dropped, and that later proofs are the same by it."""

from __future__ import annotations

from gputop.analysis.chains.analysis import Analysis, analyse
from gputop.analysis.proofs.retention import carried
from gputop.analysis.window import Stretch
from probes import api
from tests import items
from tests.items import HEADER, START
from tests.programs import US, Program

CUT = 5000  # us: what is older is dropped


def gaps_after(program: Program) -> list[tuple[int, int]]:
    """The proved gaps after the cut, in microseconds, from what is carried over; as from everything."""
    every, at = program.batch(), START + CUT * US
    end = int(every["t_end"].max())
    past, later = every[every["t_end"] <= at], every[every["t_end"] > at]
    before = Stretch(HEADER)
    before.fill([items.apis(), *program.samples, items.gpus(START, 0), past, items.mark(1, at)])
    after = before.compact()
    after.fill([later, items.mark(2, end)])
    found = _proved(analyse(after.evidence(), (at, end)))
    assert found == _proved(analyse(program.evidence(), (at, end)))
    return found


def _proved(analysis: Analysis) -> list[tuple[int, int]]:
    gaps = analysis.gpu.gaps
    rows = zip(gaps.begin.tolist(), gaps.end.tolist(), gaps.proved.tolist(), strict=True)
    return [((low - START) // US, (high - START) // US) for low, high, sure in rows if sure]


def kept(program: Program, op: str, dropped: list[int] | None = None) -> list[int]:
    """When the calls of an API that are carried over began, in microseconds."""
    calls = carried(program.evidence(dropped))[0]
    of_it = calls["op"] == api.OP_OF[op]
    return sorted(((calls["begin"][of_it] - START) // US).tolist())

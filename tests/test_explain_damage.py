"""Session files are other people's data: whatever their records say, there is a report."""

from __future__ import annotations

import numpy as np
import pytest

from gputop.analysis.answer.report_output import report_to_text
from gputop.analysis.build import explain
from gputop.analysis.evidence.assembly import assemble
from gputop.analysis.evidence.gatherer import Gatherer
from gputop.documents.fields import document
from probes.schema import Records
from tests import items
from tests.items import HEADER, SECOND, START
from tests.random_worlds import seeds

LARGEST = {"small": 5, "byte": 255, "any": 1 << 64}


def random_records(random: np.random.Generator, size: int) -> Records:
    """Records of which each column may be plausible or anything."""
    records = items.empty(size)
    for name in records.dtype.names or ():
        bounds = np.iinfo(records.dtype[name])
        most = min(LARGEST[random.choice(list(LARGEST))], bounds.max)
        records[name] = random.integers(0, most, size, dtype=records.dtype[name], endpoint=True)
    records["kind"] = random.integers(0, 11, size)
    if random.integers(0, 3):
        records["t_end"] = np.sort(START + random.integers(0, SECOND, size))
    if random.integers(0, 2):
        records["duration"] = random.integers(0, 2 * SECOND, size)
    if random.integers(0, 2):
        records["op"], records["stream"] = random.integers(0, 90, size), random.integers(0, 3, size)
        records["tid"], records["pid"] = random.integers(1, 4, size), random.integers(1, 3, size)
        records["ret"] = 0
    return records


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@seeds(200, quick=60)
def test_any_records_give_a_report(seed: int) -> None:
    random = np.random.default_rng(seed)
    gatherer = Gatherer(HEADER)
    since = {"off_since": int(random.integers(0, 1 << 62)), "call_since": START, "op": 3}
    last = items.still_open(START + SECOND, [since])
    for item in (
        items.apis(),
        items.process(10),
        random_records(random, 200),
        last,
        items.mark(1, START + SECOND),
    ):
        gatherer.feed(item)
    report = explain(assemble(gatherer))
    assert report_to_text(report).startswith(report.verdict[:20])
    assert document(report)["unexplained_ns"] >= 0

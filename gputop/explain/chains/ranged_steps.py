"""Steps that a file names itself: ``ProfilerStep#7``, or a range around each round of a loop."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from gputop.explain.evidence.activity import RANGE
from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.ranges import Ints, length
from probes.activities import Table

STEP: Final = "ProfilerStep#"
FEWEST_RANGES: Final = 2
MOST: Final = 0.5  # of the time from the first to the last call, that ranges of one name must take


def named_rounds(evidence: Evidence, thread: int, stretch: tuple[int, int]) -> tuple[Ints, Ints] | None:
    """(begin, end) of the rounds that ranges on a thread name; None where none takes most of the time."""
    rows = evidence.activities.of(RANGE)
    rows = rows[(rows["tid"] == evidence.threads.tid[thread])]
    rows = rows[(rows["begin"] >= stretch[0]) & (rows["begin"] < stretch[1])]
    if len(rows) < FEWEST_RANGES:
        return None
    rows = _outermost(rows, evidence.activities.texts)
    calls = evidence.calls
    low, high = np.searchsorted(calls["row"], [thread, thread + 1])
    if low == high:
        return None
    whole = int(calls["end"][low:high].max() - calls["begin"][low])
    words = [re.sub(r"\d+", "#", text) for text in evidence.activities.texts]
    numbers = {word: place for place, word in enumerate(dict.fromkeys(words))}
    sort = np.array([numbers[word] for word in words], np.int64)[rows["name"]]
    best, most = None, MOST * whole
    for one in np.unique(sort).tolist():
        mine = rows[sort == one]
        spent = length(mine["begin"].astype(np.int64), mine["end"].astype(np.int64))
        if len(mine) >= FEWEST_RANGES and spent >= most:
            best, most = mine, spent
    if best is None:
        return None
    return best["begin"].astype(np.int64), best["end"].astype(np.int64)


def _outermost(rows: Table, texts: tuple[str, ...]) -> Table:
    """The profiler's own steps, where there are some; else the ranges that lie in no other one."""
    steps = np.array([text.startswith(STEP) for text in texts])[rows["name"]]
    if np.count_nonzero(steps) >= FEWEST_RANGES:
        named: Table = rows[steps]
        return named
    rows = rows[np.lexsort((-rows["end"], rows["begin"]))]
    reach = np.append(-1, np.maximum.accumulate(rows["end"])[:-1])
    outer: Table = rows[rows["begin"] >= reach]
    return outer

"""Gaps of a file that holds its kernels, by what the file says of the thread that ended each.

Such a file tells operators, ranges and calls, and seldom whether a thread ran. So a gap is cut where the
thread's operators begin that mean something, and where the launch returned that ended it: what is left of the
gap then is not the host's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from gputop.engine.intervals import expand
from gputop.explain.chains.chain import Segments
from gputop.explain.evidence.activity import OVERHEAD
from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.nesting import Intervals, Nesting
from gputop.explain.evidence.ranges import Ints, Mask, covered, union
from gputop.explain.proofs.gaps import Gaps

AROUND: Final = ("ProfilerStep#", "PyTorch Profiler", "profiler::_record_function")
_ALONE: Final = re.compile(
    r"_SingleProcessDataLoaderIter|dataloader_next|\b(train|val|eval)?_?data_?load(er|ing)?\b"
    r"|\b(get|next|load|fetch|prepare)_(next_)?(mini)?(batch|data|inputs?)\b",
    re.IGNORECASE,
)
_WORKERS: Final = re.compile(r"_MultiProcessingDataLoaderIter")
SCALARS: Final = re.compile(r"^aten::(item|_local_scalar_dense|is_nonzero|equal)\b")
READS: Final = re.compile(r"^aten::(nonzero|masked_select|unique\w*|_unique2|repeat_interleave|bincount)\b")
_INSIDE = 0.5  # of a piece within an interval, for it to belong there


class Names:
    """Which texts of a file mean that an input is made, or that something is read back."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.workers = _matching(texts, _WORKERS)
        self.alone = np.setdiff1d(_matching(texts, _ALONE), self.workers)
        self.scalars = _matching(texts, SCALARS)
        self.reads = _matching(texts, READS)


def _matching(texts: Sequence[str], pattern: re.Pattern[str]) -> Ints:
    return np.array([place for place, text in enumerate(texts) if pattern.search(text)], np.int64)


class Traced:
    """What the threads were in that ended the gaps.

    Attributes:
        nesting: Operators, ranges, functions.
        names: What their names mean.
    """

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.nesting = Nesting(evidence, AROUND)
        self.names = Names(evidence.activities.texts)
        self._overhead = evidence.activities.of(OVERHEAD)

    def intervals(self, tid: int) -> dict[str, Intervals]:
        """When a thread was in something that explains why it launched nothing."""
        own = self._overhead[np.isin(self._overhead["tid"], [tid, -1])]
        names = {"workers": self.names.workers, "alone": self.names.alone}
        names |= {"scalars": self.names.scalars, "reads": self.names.reads}
        found = {kind: self.nesting.within(tid, which) for kind, which in names.items()}
        return found | {"overhead": union(own["begin"].astype(np.int64), own["end"].astype(np.int64))}

    def cut(self, segments: Segments) -> Segments:
        """The segments, cut where such an interval begins or ends on their thread."""
        for thread in np.unique(segments.thread[segments.thread >= 0]).tolist():
            tid = int(self.evidence.threads.tid[thread])
            edges = [edge for begin_end in self.intervals(tid).values() for edge in begin_end]
            segments = _cut(segments, thread, np.unique(np.concatenate(edges)))
        return segments

    def inside(self, segments: Segments) -> dict[str, Mask]:
        """Which segments lie in each kind of interval of their thread."""
        found: dict[str, Mask] = {}
        for thread in np.unique(segments.thread[segments.thread >= 0]).tolist():
            rows = np.flatnonzero(segments.thread == thread)
            begin, end = segments.begin[rows], segments.end[rows]
            for kind, cover in self.intervals(int(self.evidence.threads.tid[thread])).items():
                mask = found.setdefault(kind, np.zeros(len(segments), np.bool_))
                mask[rows] = covered(cover, begin, end) > _INSIDE * (end - begin)
        return found


def _cut(segments: Segments, thread: int, edges: Ints) -> Segments:
    """Cuts the segments of one thread at some moments, in order."""
    mine = segments.thread == thread
    low = np.searchsorted(edges, segments.begin, side="right")
    high = np.searchsorted(edges, segments.end, side="left")
    owner, edge = expand(np.where(mine, low, 0), np.where(mine, np.maximum(high, low), 0))
    if not len(owner):
        return segments
    row = np.concatenate([np.arange(len(segments)), owner])
    begin = np.concatenate([segments.begin, edges[edge]])
    order = np.lexsort((begin, row))
    row, begin = row[order], begin[order]
    last = np.append(row[1:] != row[:-1], True)
    end = np.where(last, segments.end[row], np.append(begin[1:], 0))
    return Segments(
        segments.gap[row],
        segments.thread[row],
        segments.state[row],
        begin,
        end,
        segments.slice[row],
        segments.link[row],
        segments.call[row],
        segments.depth[row],
    )


def returned(evidence: Evidence, gaps: Gaps) -> Ints:
    """When the call returned that gave the GPU work at the end of each gap; the gap's begin if before it."""
    rows = np.maximum(gaps.refilled_by, 0)
    end: Ints = evidence.calls["end"][rows] if len(evidence.calls) else gaps.end
    return np.clip(end, gaps.begin, gaps.end)

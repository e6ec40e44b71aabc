"""The whole computation: evidence in, gaps and segments out; of files with kernels, by their rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from gputop.analysis.chains.chain import Links, Segments, Walk
from gputop.analysis.chains.polling import Polls
from gputop.analysis.estimates.estimate import WORTH_NS, Estimate, estimates
from gputop.analysis.evidence.api_classes import OVERHEAD
from gputop.analysis.evidence.call_context import AROUND, Intervals, Nesting
from gputop.analysis.evidence.columns import WHOLE, Effort, Ints, Mask, covered, length, union
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.proofs.gaps import Gaps, GpuTime, KernelTime, held_kernels, join
from gputop.analysis.proofs.nvml_witness import shared_gpus
from gputop.engine.malloc_tuning import release_free_memory
from gputop.engine.threads.occupancy import expand
from gputop.errors import AccountingError

_ALONE: Final = re.compile(
    r"_SingleProcessDataLoaderIter|dataloader_next|\b(train|val|eval)?_?data_?load(er|ing)?\b"
    r"|\b(get|next|load|fetch|prepare)_(next_)?(mini)?(batch|data|inputs?)\b",
    re.IGNORECASE,
)
_WORKERS: Final = re.compile(r"_MultiProcessingDataLoaderIter")
SCALARS: Final = re.compile(r"^aten::(item|_local_scalar_dense|is_nonzero|equal)\b")
READS: Final = re.compile(r"^aten::(nonzero|masked_select|unique\w*|_unique2|repeat_interleave|bincount)\b")
MOST_GPUS_OF_A_THREAD: Final = 16  # an HGX has 8, a DGX-2 16
FEW_CUTS: Final = 1 << 22  # a GB of them
_INSIDE = 0.5  # of a piece must lie within an interval to belong to it


class Names:
    """Names in a file that mean data loading or read-backs."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.workers = _matching(texts, _WORKERS)
        self.alone = np.setdiff1d(_matching(texts, _ALONE), self.workers)
        self.scalars = _matching(texts, SCALARS)
        self.reads = _matching(texts, READS)


def _matching(texts: Sequence[str], pattern: re.Pattern[str]) -> Ints:
    return np.array([place for place, text in enumerate(texts) if pattern.search(text)], np.int64)


class Traced:
    """Operators, ranges and functions of the threads that ended the gaps."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.nesting = Nesting(evidence, AROUND)  # the intervals of each thread
        self.names = Names(evidence.activities.texts)  # the meaning of their names
        self._overhead = evidence.activities.of(OVERHEAD)

    def intervals(self, tid: int) -> dict[str, Intervals]:
        """Return when a thread was in an operation that explains why it launched nothing, by kind."""
        own = self._overhead[np.isin(self._overhead["tid"], [tid, -1])]
        names = {"workers": self.names.workers, "alone": self.names.alone}
        names |= {"scalars": self.names.scalars, "reads": self.names.reads}
        found = {kind: self.nesting.within(tid, which) for kind, which in names.items()}
        return found | {"overhead": union(own["begin"].astype(np.int64), own["end"].astype(np.int64))}

    def cut(self, segments: Segments) -> Segments:
        """Return the segments, cut where such an interval begins or ends on their thread."""
        for thread in np.unique(segments.thread[segments.thread >= 0]).tolist():
            tid = int(self.evidence.threads.tid[thread])
            edges = [edge for begin_end in self.intervals(tid).values() for edge in begin_end]
            segments = _cut(segments, thread, np.unique(np.concatenate(edges)))
        return segments

    def inside(self, segments: Segments) -> dict[str, Mask]:
        """Return the segments in each kind of interval of their thread, as masks."""
        found: dict[str, Mask] = {}
        for thread in np.unique(segments.thread[segments.thread >= 0]).tolist():
            rows = np.flatnonzero(segments.thread == thread)
            begin, end = segments.begin[rows], segments.end[rows]
            for kind, cover in self.intervals(int(self.evidence.threads.tid[thread])).items():
                mask = found.setdefault(kind, np.zeros(len(segments), np.bool_))
                mask[rows] = covered(cover, begin, end) > _INSIDE * (end - begin)
        return found


def _cut(segments: Segments, thread: int, edges: Ints) -> Segments:
    """The segments, those of one thread cut at some moments in order."""
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
    return replace(segments.take(row), begin=begin, end=end)


def returned(evidence: Evidence, gaps: Gaps) -> Ints:
    """Return when the call at the end of each gap returned, within the gap."""
    rows = np.maximum(gaps.refilled_by, 0)
    end: Ints = evidence.calls["end"][rows] if len(evidence.calls) else gaps.end
    return np.clip(end, gaps.begin, gaps.end)


# The whole computation: evidence in, gaps and segments out.

_MANY = 2_000_000


@dataclass(frozen=True, slots=True)
class Analysis:
    """Gaps, proved and estimated, and the segments of each.

    ``traced``: operators and ranges, of a file with kernel times.
    """

    evidence: Evidence
    gpu: GpuTime
    gaps: Gaps
    segments: Segments
    links: Links
    polls: Polls
    estimates: tuple[Estimate, ...] = ()
    traced: Traced | None = None

    @property
    def estimated(self) -> bool:
        """True if every GPU has an estimate of its idle time."""
        devices = {one.device for one in self.estimates}
        rest = [span.device for span in self.gpu.spans if span.device not in devices]
        return bool(self.gpu.spans) and all(length(*self.gpu.unknown[one]) < WORTH_NS for one in rest)


def analyse(evidence: Evidence, stretch: tuple[int, int], effort: Effort = WHOLE) -> Analysis:
    """Find the gaps in a stretch of time and divide each into segments, exactly.

    Raises:
        AccountingError: The segments of a gap do not sum up to it.
    """
    exact = held_kernels(evidence)
    gpu = KernelTime(evidence, stretch) if exact else GpuTime(evidence, stretch)
    if exact and evidence.header.get("inside") and shared_gpus(evidence, gpu):
        # kernels of processes that are not watched are missing
        exact, gpu = False, GpuTime(evidence, stretch)
    if len(evidence.calls) > _MANY:
        release_free_memory()  # temporary arrays of the proofs: half a GB for ten million calls
    estimated = () if exact else tuple(estimates(evidence, gpu, effort))
    gaps = join([gpu.gaps, *(one.gaps for one in estimated)])
    segments, links, polls = walk(evidence, gaps)
    if not exact:
        return Analysis(evidence, gpu, gaps, segments, links, polls, estimated)
    traced = Traced(evidence)
    return Analysis(evidence, gpu, gaps, traced.cut(segments), links, polls, traced=traced)


def walk(evidence: Evidence, gaps: Gaps, polls: Polls | None = None) -> tuple[Segments, Links, Polls]:
    """Return the segments of some gaps, the waits on the way, and the threads that polled.

    ``polls``: these, if known already.

    Raises:
        AccountingError: The segments of a gap do not sum up to it.
    """
    gap, begin, end, call = _cut_at_calls(evidence, gaps)
    made = Walk(evidence, gap, gaps.thread[gap], begin, end, call, polls)
    sums = np.bincount(made.segments.gap, weights=made.segments.ns, minlength=len(gaps)).astype(np.int64)
    wrong = np.flatnonzero(sums != gaps.end - gaps.begin)
    if len(wrong):
        row = int(wrong[0])
        raise AccountingError(
            f"the parts of {len(wrong)} of {len(gaps)} gaps do not add up: "
            f"{int(sums[row])} of {int(gaps.end[row] - gaps.begin[row])} ns at {int(gaps.begin[row])}"
        )
    return made.segments, made.links, made.polls


def _cut_at_calls(evidence: Evidence, gaps: Gaps) -> tuple[Ints, Ints, Ints, Ints]:
    """(gap, begin, end, call): the gaps cut at the calls that their thread makes in them.

    Raises:
        ValueError: They are too many: one thread's calls for very many GPUs cut the gaps of each.
    """
    calls = evidence.calls
    first, last = np.zeros(len(gaps), np.int64), np.zeros(len(gaps), np.int64)
    for thread in np.unique(gaps.thread).tolist():
        mine = gaps.thread == thread
        low, high = np.searchsorted(calls["row"], [thread, thread + 1])
        ends = np.maximum.accumulate(calls["end"][low:high])
        first[mine] = low + np.searchsorted(ends, gaps.begin[mine], side="right")
        last[mine] = low + np.searchsorted(calls["begin"][low:high], gaps.end[mine], side="left")
    cuts = int(np.maximum(last - first, 0).sum())
    if cuts > FEW_CUTS + MOST_GPUS_OF_A_THREAD * len(calls):
        raise ValueError(
            f"gaps of {len(np.unique(gaps.device))} GPUs are cut {cuts} times by {len(calls)} calls, where a "
            f"thread uses {MOST_GPUS_OF_A_THREAD} GPUs at most"
        )
    owner, row = expand(first, last)
    begin = np.maximum(calls["begin"][row], gaps.begin[owner])
    end = np.minimum(calls["end"][row], gaps.end[owner])
    # calls of one thread do not overlap, but a jump out of one may leave records that do
    head = np.append(True, owner[1:] != owner[:-1]) if len(owner) else np.zeros(0, np.bool_)
    reach = _running_end(owner, end, gaps.begin)
    before = np.where(head, gaps.begin[owner], np.append(0, reach[:-1]) if len(reach) else reach)
    begin = np.maximum(begin, before)
    last_end = gaps.begin.copy()
    np.maximum.at(last_end, owner, end)
    every = np.arange(len(gaps))
    none = np.full(len(owner), -1, np.int64)
    gap = np.concatenate([owner, owner, every])
    low = np.concatenate([begin, before, last_end])
    high = np.concatenate([end, begin, gaps.end])
    call = np.concatenate([row, none, np.full(len(gaps), -1, np.int64)])
    keep = high > low
    return gap[keep], low[keep], high[keep], call[keep]


def _running_end(owner: Ints, end: Ints, begin: Ints) -> Ints:
    """The running maximum of the ends within each gap."""
    if not len(owner):
        return end
    # counted from the gap's begin, so that many gaps in a long recording still fit into 64 bits
    within = end - begin[owner]
    width = int(within.max()) + 1
    reach: Ints = np.maximum.accumulate(owner * width + within) - owner * width + begin[owner]
    return reach

"""The whole computation: evidence in, gaps and segments out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gputop.engine.intervals import expand
from gputop.errors import AccountingError
from gputop.explain.chains.chain import Links, Segments, Walk
from gputop.explain.chains.polling import Polls
from gputop.explain.chains.traced import Traced
from gputop.explain.estimates.estimate import WORTH_NS, Estimate, estimates
from gputop.explain.evidence.effort import WHOLE, Effort
from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.memory import give_back
from gputop.explain.evidence.ranges import Ints, length
from gputop.explain.proofs.gaps import Gaps, GpuTime, join
from gputop.explain.proofs.kernels import KernelTime, held_kernels

_MANY = 2_000_000


@dataclass(frozen=True, slots=True)
class Analysis:
    """Gaps, proved and estimated, and where each instant of them went.

    ``traced`` is what a file that holds its kernels says of the threads.
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
        """Whether every GPU has an estimate of its idle time."""
        told = {one.device for one in self.estimates}
        rest = [span.device for span in self.gpu.spans if span.device not in told]
        return bool(self.gpu.spans) and all(length(*self.gpu.unknown[one]) < WORTH_NS for one in rest)


def analyse(evidence: Evidence, stretch: tuple[int, int], effort: Effort = WHOLE) -> Analysis:
    """Finds the gaps in a stretch of time and explains each; its segments sum up to it, to the nanosecond.

    Raises:
        AccountingError: They do not.
    """
    exact = held_kernels(evidence)
    gpu = KernelTime(evidence, stretch) if exact else GpuTime(evidence, stretch)
    if len(evidence.calls) > _MANY:
        give_back()  # what the proofs of ten million calls took for a moment, half a GB in pieces
    estimated = () if exact else tuple(estimates(evidence, gpu, effort))
    gaps = join([gpu.gaps, *(one.gaps for one in estimated)])
    segments, links, polls = walk(evidence, gaps)
    if not exact:
        return Analysis(evidence, gpu, gaps, segments, links, polls, estimated)
    traced = Traced(evidence)
    return Analysis(evidence, gpu, gaps, traced.cut(segments), links, polls, traced=traced)


def walk(evidence: Evidence, gaps: Gaps, polls: Polls | None = None) -> tuple[Segments, Links, Polls]:
    """Where each instant of some gaps went, the waits on the way, and the threads that polled.

    ``polls`` are these, if they are known already.

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
    """(gap, begin, end, call): the gaps cut at the calls that their thread makes in them."""
    calls = evidence.calls
    first, last = np.zeros(len(gaps), np.int64), np.zeros(len(gaps), np.int64)
    for thread in np.unique(gaps.thread).tolist():
        mine = gaps.thread == thread
        low, high = np.searchsorted(calls["row"], [thread, thread + 1])
        ends = np.maximum.accumulate(calls["end"][low:high])
        first[mine] = low + np.searchsorted(ends, gaps.begin[mine], side="right")
        last[mine] = low + np.searchsorted(calls["begin"][low:high], gaps.end[mine], side="left")
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
    """The latest end so far within each gap."""
    if not len(owner):
        return end
    # counted from the gap's begin, so that many gaps in a long recording still fit into 64 bits
    within = end - begin[owner]
    width = int(within.max()) + 1
    reach: Ints = np.maximum.accumulate(owner * width + within) - owner * width + begin[owner]
    return reach

"""What a cause is: a claim on pieces of gaps, with its level of proof and what to change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gputop.engine.frameworks import Framework
from gputop.engine.lines import Line
from gputop.explain.answer.report import DiagnosisKind, Finding, Level
from gputop.explain.chains.scene import Scene
from gputop.explain.chains.steps import Steps
from gputop.explain.evidence.ranges import Ints, Mask, distinct

# the call that opened the gap; that which ends it; the call that the pieces lie in; the one that opened it,
# with the line at which the submitting thread was blocked after; that, with the line of the thread at the end
Culprit = Literal["drained_by", "refilled_by", "inside", "waiter", "end"]


@dataclass(frozen=True, slots=True)
class Claim:
    """What one cause takes of one process's gaps.

    Attributes:
        scene: Everything.
        segments: Mask of the pieces that it takes.
        gaps: Rows of the gaps that they lie in, ascending.
    """

    scene: Scene
    segments: Mask
    gaps: Ints

    @property
    def ns(self) -> int:
        """Time taken."""
        return int(self.scene.ns[self.segments].sum())

    @property
    def pid(self) -> int:
        """The process whose gaps these are."""
        return int(self.scene.evidence.threads.pid[self.scene.gaps.thread[self.gaps[0]]])

    @property
    def loads(self) -> frozenset[Framework]:
        """The frameworks that the process has loaded; advice is in their words."""
        return self.scene.evidence.frameworks(self.pid)

    @property
    def torch(self) -> bool:
        """Whether PyTorch is one of them."""
        return Framework.TORCH in self.loads

    @property
    def steps(self) -> Steps | None:
        """The steps of the process."""
        return self.scene.steps_of(self.pid)

    @property
    def sent_bytes(self) -> int:
        """The usual size of the copies to the device that end its gaps."""
        return int(np.median(self.scene.gap_facts.sent_bytes[self.gaps]))

    @property
    def times(self) -> float | None:
        """How many of its gaps there are a step; None without steps."""
        return self.times_of(len(self.gaps))

    def times_of(self, count: int) -> float | None:
        """How many a step that is; None without steps."""
        steps = self.steps
        return count / steps.count if steps is not None and steps.count else None

    def often(self, calls: Ints) -> float | None:
        """How many of these calls there are a step, from the first to the last of them; None without steps.

        Eleven gaps in 120 steps are one in ten if that is how far they are apart: before the first and behind
        the last there is a part of a period. What is in a part of the steps only is counted by all of them.
        Of sixty in every fiftieth step (a checkpoint) it is each fiftieth step, and not each.
        """
        steps, count = self.steps, len(calls)
        if steps is None or not steps.count or count < 2:
            return self.times_of(count)
        at = distinct(np.searchsorted(steps.begin, self.scene.evidence.calls["begin"][calls], "right"))
        first, last = int(at[0]), int(at[-1])
        period = (last - first) / max(len(at) - 1, 1)
        through = max(first, steps.count - last) <= 2 * period
        return 1 / period if through and period > 1 else self.times_of(count)

    def per_step(self, count: int | None = None) -> str:
        """``3.1 times a step``: so many, or its gaps, in words."""
        count = len(self.gaps) if count is None else count
        times = self.times_of(count)
        return f"{count} times" if times is None else f"{times:.1f} times a step"


def ends_of(claim: Claim) -> Ints:
    """Its segments on other threads than the submitter; where there are none, all of them."""
    rows = np.flatnonzero(claim.segments)
    others = rows[~claim.scene.own[rows]]
    return others if len(others) else rows


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of the catalogue (docs/causes/ has a page for each).

    Attributes:
        number: ``C01``, ``C02``, … as its page in docs/causes/.
        title: What it is, in a few words.
        titled: The same for one claim, where it depends on what was called.
        claim: Which of the free segments belong to it, where it takes pieces of gaps.
        kind: The class of a program that loses most by it; None where it says nothing of the kind.
        rank: When it is asked for its pieces: the lowest first; None where it takes none.
        family: The letter of its family (families.py), where it takes pieces.
        assess: Findings of it that are no pieces of gaps, of so long a span: waste inside calls, rates, the
            hardware, other ranks.
        advice: What to change, for one claim.
        level: The best level that it can have, for one claim.
        overlaps: Whether the change lets host and GPU work side by side (then it wins the shorter of the
            two), instead of taking the host's work away.
        works: Of one that overlaps, (begin, end) of the host's work that goes as well, for one claim.
        more: What the change takes away beside the gaps, ns, for one claim: calls that are no longer made.
        calls_go: Which calls go with the cause: ``reads`` (the copies to the host that its gaps wait for, and
            their waits), ``sends`` (the copies to the device that end them, and the waits behind these),
            ``inside`` (calls that allocate or free).
        between: Whether what lies between the reads of a loop goes with them, whatever it is.
        gone: Other calls that go with it, for one claim, whether they end gaps or not.
        culprit: Which call is named.
        at: The line that is named, for one claim, where the cause has one of its own.
        told: Sentences with figures that only this cause has, for one claim.
        fault: Whether it is something to change; else it is no finding, however long it takes.
        beside: The causes whose gaps, with its own, tell how long one usually is.
        short: What ends the gaps that are its though they are too short to be followed: of launches all, of
            copies those whose longer ones are no other cause's. Of ``launch`` only idle time goes.
        relaunched: Whether all small copies go with it, and each is replaced by a launch.
        late_rank: Whether it says that a rank is late, not what makes it late: what that costs the others
            counts for it, and not once more beside it. It is told beside the kernels of a trace, too.
        crowded: Whether a wait for a CPU among the pieces is part of the work: others at it have that CPU.
    """

    number: str
    title: str
    claim: Callable[[Scene, Mask], Mask] = lambda scene, _free: scene.mask()
    advice: Callable[[Claim], tuple[str, ...]] = lambda _claim: ()
    level: Callable[[Claim], Level] = lambda _claim: Level.PROVED
    overlaps: bool = False
    works: Callable[[Claim], tuple[Ints, Ints]] = lambda _claim: (np.zeros(0, np.int64),) * 2
    more: Callable[[Claim], int] = lambda _claim: 0
    calls_go: frozenset[str] = frozenset()
    between: bool = True
    gone: Callable[[Claim], Ints] = lambda _claim: np.zeros(0, np.int64)
    culprit: Culprit = "drained_by"
    at: Callable[[Claim], Line | None] = lambda _claim: None
    beside: frozenset[str] = frozenset()
    crowded: bool = False
    short: Literal["launch", "copy", ""] = ""
    relaunched: bool = False
    late_rank: bool = False
    fault: bool = True
    told: Callable[[Claim], tuple[str, ...]] = lambda _claim: ()
    titled: Callable[[Claim], str] | None = None
    kind: DiagnosisKind | None = None
    rank: int | None = None
    family: str = ""
    assess: Callable[[Scene, int], list[Finding]] = lambda _scene, _span_ns: []

    def name(self, claim: Claim) -> str:
        """The title for one claim."""
        return self.titled(claim) if self.titled is not None else self.title


def bursts(times: Ints, least: int, within_ns: int) -> Mask:
    """Mask of moments that lie in a run of at least ``least`` within ``within_ns``; times ascending."""
    if len(times) < least:
        return np.zeros(len(times), np.bool_)
    first = np.arange(len(times) - least + 1)
    dense = times[first + least - 1] - times[first] <= within_ns
    marks = np.zeros(len(times) + 1, np.int64)
    np.add.at(marks, first[dense], 1)
    np.add.at(marks, first[dense] + least, -1)
    dense_here: Mask = np.cumsum(marks[:-1]) > 0
    return dense_here

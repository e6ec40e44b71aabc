"""What a cause is: a match of pieces of gaps, its registry, its level of proof, its chain in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gputop.analysis.answer.picture import FAMILIES, UNEXPLAINED
from gputop.analysis.answer.report import DiagnosisKind, Finding, Gain, Layer, Level, Link, LossKind, Range
from gputop.analysis.chains.analysis import returned
from gputop.analysis.chains.attribution_context import AttributionContext
from gputop.analysis.chains.chain import DEPTH, State
from gputop.analysis.chains.roles import WORDS as WORDS_OF
from gputop.analysis.chains.roles import Peer, peer_of, peers, process_title
from gputop.analysis.chains.steps import Steps
from gputop.analysis.chains.thread_places import hot_line, in_words, longest, main_range, waiting_line
from gputop.analysis.evidence.blocking import WORDS, Wait
from gputop.analysis.evidence.columns import Ints, Mask, distinct
from gputop.engine.calls.frameworks import Framework
from gputop.engine.calls.stack_table import Line

# the call that opened the gap, that which ends it, that which the pieces lie in; the one that opened it, with
# the line at which the submitting thread was blocked after it, or with the line of the thread at the end
Culprit = Literal["drained_by", "refilled_by", "inside", "waiter", "end"]


MOST = 0.95  # of a loss: the longest gaps that make up so much of it are reported


@dataclass(frozen=True, slots=True)
class CauseMatch:
    """The pieces of one process's gaps that belong to one cause."""

    scene: AttributionContext
    segments: Mask  # mask of the pieces
    gaps: Ints  # rows of the gaps that they lie in, ascending

    @property
    def ns(self) -> int:
        """The time of the pieces."""
        return int(self.scene.ns[self.segments].sum())

    @property
    def pid(self) -> int:
        """The process of the gaps."""
        return int(self.scene.evidence.threads.pid[self.scene.gaps.thread[self.gaps[0]]])

    @property
    def torch(self) -> bool:
        """True if the process has loaded PyTorch: advice is in its words."""
        return Framework.TORCH in self.scene.evidence.frameworks(self.pid)

    @property
    def steps(self) -> Steps | None:
        """The steps of the process."""
        return self.scene.steps_of(self.pid)

    @property
    def sent_bytes(self) -> int:
        """The median size of the copies to the device that end the gaps."""
        return int(np.median(self.scene.gap_facts.sent_bytes[self.gaps]))

    @property
    def times(self) -> float | None:
        """Gaps per step; None without steps."""
        return self.times_of(len(self.gaps))

    @property
    def lengths(self) -> Ints:
        """Its time in each of its gaps, ns."""
        return self.scene.gap_ns(self.segments)[self.gaps]

    @property
    def usual_ns(self) -> int:
        """The median of these as the evidence has it: without short ones that add up to little."""
        return int(np.median(main_lengths(self.lengths)))

    def times_of(self, count: int) -> float | None:
        """Return a count per step; None without steps."""
        steps = self.steps
        return count / steps.count if steps is not None and steps.count else None

    def often(self, calls: Ints) -> float | None:
        """Return how many of these calls there are per step, from the first to the last; None without steps.

        Eleven in 120 steps are one in ten if they are ten steps apart: before the first and after the last
        lies a part of a period. Calls in a part of the run only are counted by all steps. Sixty calls in
        every fiftieth step (a checkpoint) are one in fifty.
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
        """Return ``3.1 times a step`` for a count, by default of the gaps."""
        count = len(self.gaps) if count is None else count
        times = self.times_of(count)
        return f"{count} times" if times is None else f"{times:.1f} times a step"


def main_lengths(lengths: Ints) -> Ints:
    """Return the longest of some gaps, which make up ``MOST`` of their time, longest first."""
    ordered = np.sort(lengths)[::-1]
    most: Ints = ordered[: int(np.searchsorted(np.cumsum(ordered), MOST * ordered.sum())) + 1]
    return most


def ends_of(claim: CauseMatch) -> Ints:
    """Return the segments on other threads than the submitter; all segments where there are none."""
    rows = np.flatnonzero(claim.segments)
    others = rows[~claim.scene.own[rows]]
    return others if len(others) else rows


_CAUSES: dict[str, Cause] = {}


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of the catalogue, which has a page in docs/causes/; it registers itself when it is made."""

    number: str  # ``C01``, ``C02``, … as its page
    title: str  # the cause in a few words
    # mask of its segments among the free ones
    claim: Callable[[AttributionContext, Mask], Mask] = lambda scene, _free: scene.mask()
    advice: Callable[[CauseMatch], tuple[str, ...]] = lambda _claim: ()  # the changes that help
    level: Callable[[CauseMatch], Level] = lambda _claim: Level.PROVED  # its best level
    # True if the change lets host and GPU work side by side (it saves the shorter of the two) instead of
    # removing host work
    overlaps: bool = False
    # (begin, end) of host work that goes as well, of a cause that overlaps
    works: Callable[[CauseMatch], tuple[Ints, Ints]] = lambda _claim: (np.zeros(0, np.int64),) * 2
    # time that goes beside the gaps, ns: calls that are no longer made
    more: Callable[[CauseMatch], int] = lambda _claim: 0
    # calls that go with the cause: ``reads`` (the copies to the host that its gaps wait for, and their
    # waits), ``sends`` (the copies to the device that end the gaps, and the waits behind these), ``inside``
    # (calls that allocate or free)
    calls_go: frozenset[str] = frozenset()
    between: bool = True  # True if everything between the reads of a loop goes with them
    # other calls that go, whether they end gaps or not
    gone: Callable[[CauseMatch], Ints] = lambda _claim: np.zeros(0, np.int64)
    culprit: Culprit = "drained_by"  # the call to name
    # the line to name, where the cause has one of its own
    at: Callable[[CauseMatch], Line | None] = lambda _claim: None
    beside: frozenset[str] = frozenset()  # the causes whose gaps, with its own, show how long one usually is
    # True if its gaps are waits for an answer of others: brief ones are mostly wakeups
    exchanges: bool = False
    # True if a wait for a CPU among the segments is part of the work: fellow workers have the CPU
    crowded: bool = False
    # True if the change takes work from threads that share their CPUs with the submitter: its waits for a CPU
    # behind these go, too
    frees_cpu: bool = False
    # the end of the gaps that belong to it though they are too short to be followed: all that end with a
    # launch; of copies those whose longer gaps belong to no other cause. Of ``launch`` only idle time goes
    short: Literal["launch", "copy", ""] = ""
    relaunched: bool = False  # True if all small copies go, each replaced by a launch
    # True if it means that a rank is late, not the reason: the time that the others lose counts for this
    # cause alone. It is reported beside the kernels of a trace, too
    late_rank: bool = False
    fault: bool = True  # False for idle time that is nothing to change, and never a finding
    # sentences with figures that only this cause has
    evidence: Callable[[CauseMatch], tuple[str, ...]] = lambda _claim: ()
    titled: Callable[[CauseMatch], str] | None = None  # the title of one match, where it depends on the calls
    # the class of a program that loses most by it; None where it implies no class
    kind: DiagnosisKind | None = None
    # its place in the order in which causes claim segments; None where it claims none
    rank: int | None = None
    family: str = ""  # the letter of its family (``FAMILIES``), where it claims segments
    # findings, within a span in ns, that are no pieces of gaps: waste inside calls, rates, the hardware,
    # other ranks
    assess: Callable[[AttributionContext, int], list[Finding]] = lambda _scene, _span_ns: []

    def __post_init__(self) -> None:
        """Register the cause.

        Raises:
            ValueError: Another cause has its number or its rank.
        """
        for known in _CAUSES.values():
            if self.number == known.number or (self.rank is not None and self.rank == known.rank):
                raise ValueError(f"{self.number} ({self.title}) has the number or the rank of {known.number}")
        _CAUSES[self.number] = self

    def name(self, claim: CauseMatch) -> str:
        """Return the title of one match."""
        return self.titled(claim) if self.titled is not None else self.title


def bursts(times: Ints, least: int, within_ns: int) -> Mask:
    """Return the mask of moments in a run of at least ``least`` within ``within_ns``; times ascending."""
    if len(times) < least:
        return np.zeros(len(times), np.bool_)
    first = np.arange(len(times) - least + 1)
    dense = times[first + least - 1] - times[first] <= within_ns
    marks = np.zeros(len(times) + 1, np.int64)
    np.add.at(marks, first[dense], 1)
    np.add.at(marks, first[dense] + least, -1)
    return np.cumsum(marks[:-1]) > 0


# The registry of causes.


def every() -> tuple[Cause, ...]:
    """Return all causes, by number."""
    return tuple(_CAUSES[number] for number in sorted(_CAUSES))


def numbered(number: str) -> Cause:
    """Return the cause of a number."""
    return _CAUSES[number]


def in_order() -> tuple[Cause, ...]:
    """Return the causes that claim segments, in their order."""
    ranked = (cause for cause in every() if cause.rank is not None)
    return tuple(sorted(ranked, key=lambda cause: cause.rank or 0))


def family_table() -> Ints:
    """Return the family's row for each row of the catalogue; the last entry, also -1, is ``UNEXPLAINED``."""
    rows = {family.letter: row for row, family in enumerate(FAMILIES)}
    return np.array([*(rows.get(cause.family, UNEXPLAINED) for cause in in_order()), UNEXPLAINED], np.int64)


# Findings that are no pieces of gaps.

LEAST_SHARE, LEAST_NS = 0.05, 5_000_000  # of the span: an estimate must be larger than a proof
MOMENTS = 3


@dataclass(frozen=True, slots=True)
class AboutCalls:
    """The thread and the calls of such a finding."""

    pid: int
    tid: int
    count: int  # number of calls
    begin: Ints  # their begins, CLOCK_MONOTONIC, the worst first
    api: str = ""  # the most frequent function; ``where``: with its line
    where: str = ""
    line: Line | None = None

    @classmethod
    def of(cls, scene: AttributionContext, rows: Ints, cost: Ints | None = None) -> AboutCalls:
        """Make it of at least one call, by the cost of each; the thread of the first stands for all."""
        calls = scene.evidence.calls
        worst = rows[:0] if cost is None else rows[np.argsort(cost)[::-1]]
        pid, tid = int(calls["pid"][rows[0]]), int(calls["tid"][rows[0]])
        api, where, line = usual_api(scene, rows), placed(scene, rows), usual_line(scene, rows)
        return cls(pid, tid, len(rows), calls["begin"][worst], api, where, line)

    def link(self, layer: Layer, text: str, ns: int, events: int | None = None) -> Link:
        """Return a link of the chain on this thread, of the calls themselves with their line."""
        count = self.count if events is None else events
        return Link(layer, self.pid, self.tid, text, ns, count, self.line if layer == "cuda" else None)


def assessed(
    scene: AttributionContext,
    cause: Cause,
    about: AboutCalls,
    *,
    title: str = "",
    level: Level,
    kind: LossKind,
    loss: Range,
    chain: Sequence[Link],
    evidence: Sequence[str],
    advice: Sequence[str],
    gain_ns: int | None = None,
) -> Finding:
    """Return the finding; its title defaults to the cause's, its gain to the most that may be lost."""
    start = int(scene.evidence.header.get("start_ns", scene.evidence.start_ns))
    steps = scene.steps_of(about.pid)
    middle = int(loss.middle)
    streams = scene.analysis.gpu.streams
    works = scene.evidence.calls["pid"][streams.enqueue_row] == about.pid
    return Finding(
        cause.number,
        kind,
        title or cause.title,
        level,
        loss,
        about.pid,
        about.tid,
        about.api,
        tuple(chain),
        tuple(evidence),
        (),
        tuple(advice),
        Gain(loss.upper if gain_ns is None else gain_ns),
        tuple((np.asarray(about.begin[:MOMENTS], np.int64) - start).tolist()),
        about.count,
        middle // steps.count if steps is not None and steps.count else None,
        about.line,
        level,
        level,
        scene.gpu_shares(streams.device[streams.enqueue_stream[works]]),
    )


def within(scene: AttributionContext, rows: Ints) -> Ints:
    """Return the calls within the explained stretch."""
    low, high = scene.analysis.gpu.stretch
    calls = scene.evidence.calls
    return rows[(calls["begin"][rows] >= low) & (calls["end"][rows] <= high)]


# The links of a chain in words, from the segments of one match.

_NAMED = 2  # occupants that a link or an advice names


def _idle_text(claim: CauseMatch) -> str:
    """Return ``GPU 0 was idle``, or the same of the GPUs of a program on several."""
    devices, labels = np.unique(claim.scene.gaps.device[claim.gaps]), claim.scene.analysis.gpu.devices.labels
    names = " and ".join(labels[device] for device in devices)
    if len(devices) == 1:
        return f"{names} was idle"
    return f"{names if len(devices) <= _NAMED else f'{len(devices)} GPUs'} were idle"


def chain(cause: Cause, claim: CauseMatch) -> tuple[Link, ...]:
    """Return GPU, the calls around the gaps, each wait on the way, and the state of the last thread."""
    scene = claim.scene
    rows = np.flatnonzero(claim.segments)
    ns = scene.ns[rows]
    states = scene.segments.state[rows]
    if cause.crowded and (states == State.RUN).any():
        states = np.where(states == State.QUEUED, State.RUN, states)
    weights = _weights(scene, rows, states)
    if cause.culprit == "end":
        weights = np.where(np.isin(rows, ends_of(claim)), weights, -1)
    leader = int(rows[np.argmax(weights)])
    submitter = int(scene.gaps.thread[scene.segments.gap[leader]])
    pid, tid = _ids(scene, submitter)
    total, gaps = int(ns.sum()), len(claim.gaps)
    links = [
        Link("gpu", 0, 0, _idle_text(claim), total, gaps),
        Link("cuda", pid, tid, _calls_text(scene, claim.gaps), total, gaps, role=WORDS_OF[Peer.SUBMITTER]),
    ]
    for thread, wait, poll in _waits(scene, leader):
        pid, tid = _ids(scene, thread)
        through = rows[scene.links.behind(scene.links.thread == thread, scene.segments.link[rows])]
        if poll >= 0:
            line = scene.evidence.facts.stacks.line(int(scene.analysis.polls.stack[poll]))
            text = _at(f"{_name(scene, thread)} polled", line)
        else:
            line = waiting_line(scene, through, thread)
            text = _at(f"{_name(scene, thread)} {_waited(wait)}", line)
        role = Peer.SUBMITTER
        if thread != submitter:
            role = peer_of(scene, int(scene.gaps.thread[scene.segments.gap[through[0]]]), thread)
        ns_through = int(scene.ns[through].sum())
        links.append(Link("host", pid, tid, text, ns_through, len(through), line, WORDS_OF[role]))
    return (*links, _last(claim, rows, states, leader))


def _weights(scene: AttributionContext, rows: Ints, states: Ints) -> Ints:
    """Return the time of each segment's (process, state): the biggest group is reported."""
    key = (scene.pid[rows] + 1) * 8 + states
    _unique, where = np.unique(key, return_inverse=True)
    sums = np.bincount(where.reshape(-1), weights=scene.ns[rows])
    weights: Ints = sums[where.reshape(-1)] + scene.ns[rows] / (1 + scene.ns[rows].max())
    return weights


def _last(claim: CauseMatch, rows: Ints, states: Ints, leader: int) -> Link:
    scene = claim.scene
    state = State(int(states[rows == leader][0]))
    alike = rows[(states == state) & (scene.pid[rows] == scene.pid[leader])]
    thread = int(scene.segments.thread[leader])
    pid, tid = _ids(scene, thread)
    others = len(np.unique(scene.pid[rows])) - 1
    name = _name(scene, thread)
    layer: Layer = "host"
    text, line = f"{name} was running", None
    call = int(scene.segments.call[leader])
    if call >= 0 and scene.own[leader]:
        api = scene.evidence.apis.name(int(scene.evidence.calls["op"][call]))
        line = usual_line(scene, scene.segments.call[alike])
        text = _at(f"{name} was inside {api}", line)
    elif scene.unrecorded[leader]:
        where = in_words(scene, alike)
        if scene.segments.begin[leader] >= returned(scene.evidence, scene.gaps)[scene.segments.gap[leader]]:
            text = f"{name} had launched it before"
            return Link("cuda", pid, tid, text, int(scene.ns[alike].sum()), len(alike))
        where = where or f"between two calls{main_range(scene, alike)}"
        text = f"{name} was {where}; whether it ran there is not recorded"
    elif state == State.RUN and (hot := hot_line(scene, alike)) is not None:
        line = hot.line
        text += f", most often at {hot.text()}"
    if (states != scene.segments.state[rows]).any():
        text += ", or waited while other workers ran"
    if state == State.QUEUED:
        layer, text = "system", f"{name} was runnable but not running"
        if by := _preempted_by(claim):
            text += f": {by}"
    elif state == State.BLOCKED and scene.throttled[leader]:
        layer, text = "system", f"{name} was throttled by its cgroup's CPU quota"
    elif state == State.BLOCKED:
        wait = Wait(int(scene.wait[leader]))
        layer = "system" if wait in (Wait.DISK, Wait.SOCKET, Wait.FAULT, Wait.MEMORY, Wait.READ) else "host"
        line = waiting_line(scene, alike, scene.segments.thread[alike]) or line
        text = _at(f"{name} {_waited(wait)}", line)
    elif state == State.OUTSIDE:
        text = f"woken by a thread that is not watched, after it {_waited(scene.wait[leader])}"
    if others > 0:
        text += f" (and {others} more process{'es' * (others > 1)} likewise)"
        alike = rows
    if state != State.OUTSIDE and not scene.unrecorded[leader]:
        text += main_range(scene, alike)
    role = WORDS_OF[Peer(int(peers(scene)[leader]))]
    return Link(layer, pid, tid, text, int(scene.ns[alike].sum()), len(alike), line, role)


def _waited(kind: int) -> str:
    wait = Wait(int(kind))
    return "was sleeping" if wait is Wait.SLEEP else f"waited {WORDS[wait]}"


def _at(text: str, line: Line | None) -> str:
    return f"{text} at {line.text()}" if line is not None else text


def _waits(scene: AttributionContext, segment: int) -> list[tuple[int, int, int]]:
    """Return (thread, kind of wait, row of ``Polls`` or -1) of each link, from the submitter on."""
    found: list[tuple[int, int, int]] = []
    link = int(scene.segments.link[segment])
    kinds = scene.links.of_slices(scene.evidence.slices["wait"], Wait.YIELD)
    while link >= 0 and len(found) < DEPTH:
        found.append((int(scene.links.thread[link]), int(kinds[link]), int(scene.links.poll[link])))
        link = int(scene.links.above[link])
    return found[::-1]


def _calls_text(scene: AttributionContext, gaps: Ints) -> str:
    drained_by = placed(scene, scene.gaps.drained_by[gaps])
    refilled_by = placed(scene, scene.gaps.refilled_by[gaps]) or "the next work"
    if not drained_by:
        return f"until {refilled_by}"
    read = scene.gap_facts.read_row[gaps]
    copy = placed(scene, read) if (read >= 0).mean() > 0.5 else drained_by
    drained_by = drained_by if copy == drained_by else f"{copy} and {drained_by}"
    return f"from the return of {drained_by} to {refilled_by}"


def usual_api(scene: AttributionContext, rows: Ints) -> str:
    """Return the most frequent function among calls, "" without any; rows of -1 do not count."""
    rows = rows[rows >= 0]
    if not len(rows):
        return ""
    return scene.evidence.apis.name(int(np.argmax(np.bincount(scene.evidence.calls["op"][rows]))))


def usual_line(scene: AttributionContext, rows: Ints) -> Line | None:
    """Return the line in whose calls of the most frequent function most time passes; None: not known."""
    calls = scene.evidence.calls
    rows = rows[rows >= 0]
    if not calls["stack"][rows].any():  # of ten million calls without lines none has to be sorted
        return None
    rows = distinct(rows)
    ops = calls["op"][rows]
    rows = rows[ops == np.argmax(np.bincount(ops))]
    return longest(scene.evidence, calls["stack"][rows], (calls["end"] - calls["begin"])[rows])


def placed(scene: AttributionContext, rows: Ints) -> str:
    """Return the most frequent function among calls, with its line where that is known."""
    name = usual_api(scene, rows)
    return _at(name, usual_line(scene, rows) if name else None)


def occupants(claim: CauseMatch) -> str:
    """Return the threads that ran while that of a match waited for a CPU, as the begin of an advice."""
    shares = claim.scene.occupants(claim.segments)
    named = [f"{name} for {100 * share:.0f} % of that time" for name, share in shares[:_NAMED]]
    return f"preempted by {', '.join(named)}: " if named else ""


def occupants_of(claim: CauseMatch) -> str:
    """Return `` (preempted by stress-ng (12) 80 %)``; "" where no thread ran on its CPU."""
    by = _preempted_by(claim)
    return f" ({by})" if by else ""


def _preempted_by(claim: CauseMatch) -> str:
    named = [f"{name} {100 * share:.0f} %" for name, share in claim.scene.occupants(claim.segments)[:_NAMED]]
    return f"preempted by {', '.join(named)}" if named else ""


def _ids(scene: AttributionContext, thread: int) -> tuple[int, int]:
    threads = scene.evidence.threads
    return (int(threads.pid[thread]), int(threads.tid[thread])) if thread >= 0 else (0, 0)


def _name(scene: AttributionContext, thread: int) -> str:
    if thread < 0:
        return "a thread that is not watched"
    pid, tid = _ids(scene, thread)
    if pid == tid:
        return process_title(scene, pid)
    return f"{scene.evidence.facts.thread_name(tid, pid)} ({tid} of {pid})"

"""The context of each piece of a gap for its attribution: the calls around it and its chain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from gputop.analysis.chains.analysis import Analysis
from gputop.analysis.chains.call_forms import by_loader
from gputop.analysis.chains.chain import DEPTH, State
from gputop.analysis.chains.named_ranges import NamedRanges
from gputop.analysis.chains.polling import Futex, find_locks
from gputop.analysis.chains.steps import Steps, find_steps
from gputop.analysis.evidence.api_classes import D2H, H2D, OPERATOR, RANGE, Group, Role
from gputop.analysis.evidence.blocking import Wait
from gputop.analysis.evidence.call_context import line_numbers, stacks_within, time_within
from gputop.analysis.evidence.columns import Ints, Mask, among, covered, union
from gputop.analysis.evidence.evidence import Column, Evidence
from gputop.analysis.proofs.proofs import COPY_BEFORE
from gputop.engine.threads.occupancy import SEGMENT, match, split
from probes.samples import section
from probes.schema import OffFlag

READ_NS = 100_000  # a wait this soon after a copy to the host is for that copy (docs/causes/C01.md)
NEXT_NS = 10_000_000  # with no call in between; time in a run queue does not count
SCALAR_BYTES = 16  # .item() reads 1 to 16 bytes
BIG_COPY = 64 << 10  # below, a copy is dominated by its fixed costs; also the driver's limit for async copies
FAULT_NS, FAULTY = (
    1000,
    0.3,
)  # a fresh 4 KiB page costs 0.5 us (bare metal) to 2.3 us (guests, with unmapping)
REPEATED = 3  # wakeups between two processes that are not due to chance
Kept = TypeVar("Kept")
_INSIDE = 0.9  # of a piece must lie within an operator to belong to it
_BRIEF = 0.05  # of the time that a thread waited for a CPU: smaller occupants are added up by name


@dataclass(frozen=True, slots=True)
class GapFacts:
    """One row per gap."""

    read_bytes: Ints  # size of the copy to the host for which the draining call waited, -1 for none
    read_row: Ints  # that copy's row
    moved_row: Ints  # the copy to the device for which the draining call waited, -1 for none
    refill_group: Column  # ``Group`` of the refilling call
    sent_bytes: Ints  # size of the copy to the device that ended the gap, -1 for another call
    slack_ns: Ints  # time just before the gap in which the GPU may have been idle already


class AttributionContext:
    """Columns over the segments, and facts about gaps, steps and threads.

    Attributes:
        wait: ``Wait`` of the segment's thread if asleep, else that of the last link.
        via: ``Wait`` of the submitter's own sleep at the top of the chain; 255 on the submitter itself.
        own: True if the segment is on the submitter.
        same_process: True if its thread belongs to the submitter's process.
        family: True if its process descends from the submitter's, or they have one watched parent.
        group: ``Group`` of the submitter's CUDA call around it, ``Group.OTHER`` between calls.
        in_drain: True within the wait that opened the gap (a late return).
        in_refill: True within the refilling call.
        estimated: True if its gap is estimated, not proved.
        throttled: True if the cgroup's quota was used up.
        locks: ``Futex`` of each stay off the CPU.
        futex: ``Futex`` of the submitter's own sleep at the top of the chain.
        polled_for: True if a thread on the chain polls: the chain follows work, not a wakeup.
        polling: True if the segment's thread polls there for an unknown thread.
    """

    def __init__(
        self, analysis: Analysis, *, steps_of: AttributionContext | None = None, with_steps: bool = True
    ) -> None:
        """Prepare the columns.

        Args:
            analysis: The gaps and segments.
            steps_of: Another context of the same evidence, whose steps are used.
            with_steps: Find the steps now, not only when a cause needs them.
        """
        self.analysis = analysis
        self.evidence: Evidence = analysis.evidence
        self.gaps = analysis.gaps
        self.segments = analysis.segments
        self.links = analysis.links
        self.steps: Steps | None = steps_of.steps if steps_of else None
        if with_steps and steps_of is None:
            self.steps = find_steps(self.evidence, analysis.gpu.stretch)
        self._steps_of: dict[int, Steps | None] = {}
        self._kept: dict[str, Any] = {}
        self._roots: dict[int, int] | None = None
        self.gap_facts = _gap_facts(analysis)
        self.size = len(self.segments)
        self.ns: Ints = self.segments.ns
        self._columns()

    def gpu_shares(self, device: Ints, weight: Ints | None = None) -> tuple[tuple[int, float], ...]:
        """Return (NVML's index, share) of each GPU among weighted rows, without GPUs of unknown index."""
        sums = np.bincount(device[device >= 0], None if weight is None else weight[device >= 0])
        index, whole = self.analysis.gpu.devices.index, max(float(sums.sum()), 1.0)
        return tuple(
            (index[one], float(sums[one]) / whole) for one in np.flatnonzero(sums).tolist() if index[one] >= 0
        )

    def _columns(self) -> None:
        evidence, segments = self.evidence, self.segments
        calls, threads, slices = evidence.calls, evidence.threads, evidence.slices
        submitter = self.gaps.thread[segments.gap]
        self.own: Mask = segments.thread == submitter
        watched = segments.thread >= 0
        pid = np.where(watched, threads.pid[segments.thread], -1)
        self.pid: Ints = pid
        self.same_process: Mask = pid == threads.pid[submitter]
        self._descendants = self._family()
        self.family: Mask = np.isin(pid, self._descendants)
        in_call = segments.call >= 0
        groups = evidence.apis.group.take(calls["op"], mode="clip") if len(calls) else np.zeros(1, np.uint8)
        self.group: Column = np.where(in_call, groups[segments.call], Group.OTHER)
        self.in_drain: Mask = in_call & (segments.call == self.gaps.drained_by[segments.gap])
        self.in_refill: Mask = in_call & (segments.call == self.gaps.refilled_by[segments.gap])
        self.estimated: Mask = self.gaps.estimated[segments.gap]
        kinds = slices["wait"] if len(slices) else np.zeros(1, np.uint8)
        flags = slices["flags"] if len(slices) else np.zeros(1, np.uint16)
        asleep = segments.slice >= 0
        # of an imported file: the submitter's own time, whose thread states are not recorded
        recorded = evidence.header.get("states") is not False
        self.unrecorded: Mask = self.own & (segments.state == State.UNKNOWN) & (not recorded)
        self.ranges = NamedRanges(evidence.activities)
        self.throttled: Mask = asleep & ((flags[segments.slice] & OffFlag.THROTTLED) != 0)
        first, last = self._ends_of_chains()
        linked = segments.link >= 0
        size = len(self.links.slice)
        self.first_link: Ints = first  # of each segment's chain; 0 where there is none
        of_link = self.links.of_slices(slices["wait"], Wait.YIELD) if size else np.zeros(1, np.uint8)
        via = np.where(linked, of_link[first], 255)
        behind = np.where(linked, of_link[last], Wait.OTHER)
        sleeps = asleep & (segments.state == State.BLOCKED)
        self.wait: Column = np.where(sleeps, kinds[segments.slice], behind)
        self.via: Column = via
        self.locks: Ints = find_locks(evidence)
        self.futex: Ints = np.zeros(self.size, np.int64)
        if size:
            self.futex = np.where(linked, self.links.of_slices(self.locks, Futex.UNKNOWN)[first], 0)
        self.polled_for: Mask = self.links.behind(self.links.poll >= 0, segments.link)
        self.polling: Mask = self._polling()

    def _polling(self) -> Mask:
        polls, segments, key = self.analysis.polls, self.segments, self.evidence.key
        if not len(polls):
            return self.mask()
        begins = key(polls.thread, polls.begin)
        place = np.searchsorted(begins, key(np.maximum(segments.thread, 0), segments.begin), side="right") - 1
        near = np.maximum(place, 0)
        inside: Mask = (place >= 0) & (polls.thread[near] == segments.thread)
        return inside & (polls.end[near] > segments.begin)

    def _ends_of_chains(self) -> tuple[Ints, Ints]:
        """(first, last) link of each segment's chain; 0 where there is none."""
        above = self.links.above
        root = np.arange(len(above))
        for _ in range(DEPTH):  # each round goes up one level
            parent = above[root] if len(root) else root
            root = np.where(parent >= 0, parent, root)
        last = np.maximum(self.segments.link, 0)
        return (root[last] if len(root) else last), last

    def _family(self) -> Ints:
        """The submitting processes and their descendants, with forked servers."""
        submitters = (
            set(self.evidence.threads.pid[np.unique(self.gaps.thread)].tolist()) if len(self.gaps) else set()
        )
        threads = self.evidence.threads
        made = {
            (int(threads.pid[parent]), int(pid))
            for pid, parent in zip(threads.pid.tolist(), threads.parent.tolist(), strict=True)
            if parent >= 0
        }
        for facts in self.evidence.facts.processes.values():
            made.add((int(facts.get("parent_pid", 0)), int(facts["pid"])))
        family = set(submitters)
        while True:
            more = {child for parent, child in made if parent in family} - family
            if not more:
                return np.array(sorted(family), np.int64)
            family |= more

    def related(self, chosen: Column) -> Mask:
        """Return True for chosen segments whose process shares a watched ancestor with the submitter's."""
        if self._roots is None:
            threads, facts = self.evidence.threads, self.evidence.facts.processes
            parent = {pid: int(one.get("parent_pid", 0)) for pid, one in facts.items()}
            maker = threads.pid[np.maximum(threads.parent, 0)]
            known = threads.parent >= 0
            parent |= dict(zip(threads.pid[known].tolist(), maker[known].tolist(), strict=True))
            self._roots = {}
            for pid in {*threads.pid.tolist(), *parent}:
                root, seen = pid, {pid}
                while parent.get(root) in parent and parent[root] not in seen and parent[root] != root:
                    root = parent[root]
                    seen.add(root)
                self._roots[pid] = root
        roots = self._roots
        submitter = self.evidence.threads.pid[self.gaps.thread[self.segments.gap[chosen]]]
        pairs = zip(self.pid[chosen].tolist(), submitter.tolist(), strict=True)
        return np.array([roots.get(pid, pid) == roots.get(one, one) for pid, one in pairs], np.bool_)

    def is_family(self, pid: int) -> bool:
        """True if a process enqueues GPU work, or descends from one that does."""
        return pid in self._descendants

    def steps_of(self, pid: int) -> Steps | None:
        """Return the steps of a process; without their operations, except for the busiest process."""
        if self.steps is not None and self.evidence.threads.pid[self.steps.thread] == pid:
            return self.steps
        if pid not in self._steps_of:
            found = find_steps(self.evidence, self.analysis.gpu.stretch, pid)
            self._steps_of[pid] = found.times() if found is not None else None
        return self._steps_of[pid]

    def within(self, name: str) -> Mask:
        """Return True for segments in a recorded operator of their thread whose name contains this."""
        found = np.zeros(self.size, np.bool_)
        activities, segments = self.evidence.activities, self.segments
        operators = activities.of(OPERATOR, RANGE)
        named = [number for number, text in enumerate(activities.texts) if name in text]
        operators = operators[np.isin(operators["name"], named)]
        for thread in np.unique(segments.thread[segments.thread >= 0]).tolist() if len(operators) else ():
            own = operators[operators["tid"] == self.evidence.threads.tid[thread]]
            rows = np.flatnonzero(segments.thread == thread)
            inside = union(own["begin"].astype(np.int64), own["end"].astype(np.int64))
            shared = covered(inside, segments.begin[rows], segments.end[rows])
            found[rows] = shared >= _INSIDE * np.maximum(self.ns[rows], 1)
        return found

    def once(self, name: str, make: Callable[[], Kept]) -> Kept:
        """Return a value, made at its first use, that several causes need."""
        if name not in self._kept:
            self._kept[name] = make()
        found: Kept = self._kept[name]
        return found

    def drop_operations(self) -> None:
        """Drops what only causes and what-ifs need: every operation of the steps and of the estimates."""
        self.steps = self.steps.times() if self.steps is not None else None
        none = np.zeros(0, np.int64)
        estimates = (
            replace(one, queue=one.queue.take(none), duration_ns=one.duration_ns[none])
            for one in self.analysis.estimates
        )
        self.analysis = replace(self.analysis, estimates=tuple(estimates))

    @property
    def cpus(self) -> int:
        """Number of CPUs of the machine; 0 if unknown."""
        return int(section(self.evidence.header, "machine").get("cpus") or 0)

    def helpers(self) -> Ints:
        """Return descendants that work for submitting processes, as loader workers: by repeated wakeups."""
        slices = self.evidence.slices
        feeders = self.evidence.threads.pid[self.gaps.thread] if len(self.gaps) else self.gaps.begin
        by_chance = OffFlag.WAKER_IRQ | OffFlag.WAKER_SOFTIRQ | OffFlag.BIRTH
        meant = (slices["flags"] & by_chance) == 0
        served = slices["waker_pid"][meant & np.isin(slices["pid"], feeders)]
        woken = slices["pid"][meant & np.isin(slices["waker_pid"], feeders)]
        known, times = np.unique(np.append(served, woken).astype(np.int64), return_counts=True)
        family = np.setdiff1d(self._descendants, feeders)
        return np.intersect1d(family, known[times >= REPEATED])

    def occupants(self, chosen: Column) -> list[tuple[str, float]]:
        """Return (name, share of the time) of CPU occupants while the chosen segments were queued.

        Largest first; in the rest to 1 the CPU was idle. Of a program that is started again and again each
        process has a small share: such processes of one name are one occupant.
        """
        own, facts = self.evidence.header.get("own_pid"), self.evidence.facts
        names = {0: "idle", own: f"gputop itself ({own})"}
        found, brief = list[tuple[str, float]](), dict[str, list[tuple[int, float]]]()
        for pid, share in self.occupant_shares(chosen).items():
            if pid in names or share >= _BRIEF:
                found.append((names.get(pid) or facts.process_title(pid), share))
            else:
                brief.setdefault(facts.brief_name(pid, pid), []).append((pid, share))
        for name, members in brief.items():
            many = f"{name or 'unnamed'} ({len(members)} processes)"
            title = many if members[1:] else facts.process_title(members[0][0])
            found.append((title, sum(share for _pid, share in members)))
        return sorted(found, key=lambda one: -one[1])

    def occupant_shares(self, chosen: Column) -> dict[int, float]:
        """Return these shares by process; of a thread without a known process, by thread."""
        by_process: dict[int, float] = {}
        for (pid, tid), part in self.thread_shares(chosen).items():
            by_process[pid or tid] = by_process.get(pid or tid, 0.0) + part
        return by_process

    def thread_shares(self, chosen: Column) -> dict[tuple[int, int], float]:
        """Return these shares by (process, thread); the process is 0 where unknown."""
        rows = np.flatnonzero(chosen & (self.segments.state == State.QUEUED) & (self.segments.slice >= 0))
        slices = self.evidence.slices
        item = self.segments.slice[rows]
        waits = np.zeros(len(rows), SEGMENT)
        waits["cpu"], waits["tid"] = slices["queue_cpu"][item], slices["tid"][item]
        waits["begin"], waits["end"] = self.segments.begin[rows], self.segments.end[rows]
        total = int((waits["end"] - waits["begin"]).sum())
        by_thread: dict[tuple[int, int], float] = {}
        if len(rows) and len(self.evidence.on_cpu):
            for (_tid, occupant, pid), ns in match(
                split(waits, self.evidence.moves), self.evidence.on_cpu
            ).items():
                by_thread[pid, occupant] = by_thread.get((pid, occupant), 0.0) + ns / total
        return by_thread

    def does(self, *states: State) -> Mask:
        """Return True for segments in one of these states."""
        return among(self.segments.state, states)

    def waits(self, *kinds: Wait) -> Mask:
        """Return True for segments asleep in one of these kinds of waits."""
        return self.does(State.BLOCKED) & among(self.wait, kinds)

    def inside(self, *groups: Group) -> Mask:
        """Return True for segments in a call of the submitter of these groups; ``OTHER``: between calls."""
        return among(self.group, groups)

    def faulting(self) -> Mask:
        """Return True on a CPU with page faults, at ``FAULT_NS``, for ``FAULTY`` of the time between waits.

        That time continues across preemptions.
        """
        slices, segments = self.evidence.slices, self.segments
        if not len(slices):
            return self.mask()
        key, row = self.evidence.key, slices["row"]
        first = np.append(True, row[1:] != row[:-1])
        before = np.where(first, self.evidence.threads.known[row], np.append(0, slices["end"][:-1]))
        kept = np.append(False, (slices["flags"][:-1] & OffFlag.QUEUED) != 0) & ~first
        group = np.cumsum(~kept) - 1
        length = np.maximum(slices["begin"] - before, 0)  # 0 where it is not known since when it ran
        faults, ran = (np.bincount(group, weights=one) for one in (slices["faults"] * (length > 0), length))
        place = np.searchsorted(
            key(row, slices["begin"]), key(np.maximum(segments.thread, 0), segments.end), side="left"
        )
        following, last = np.minimum(place, len(slices) - 1), np.maximum(place - 1, 0)
        known = (place < len(slices)) & (row[following] == segments.thread)
        # after its last preemption a thread does what it did before
        goes_on = ~known & (row[last] == segments.thread) & ((slices["flags"][last] & OffFlag.QUEUED) != 0)
        which = group[np.where(known, following, last)]
        faulty = faults[which] * FAULT_NS >= FAULTY * np.maximum(ran[which], 1)
        faulting: Mask = (known | goes_on) & faulty & self.does(State.RUN)
        return faulting

    def mask(self) -> Mask:
        """Return a mask without any segment."""
        return np.zeros(self.size, np.bool_)

    def gap_ns(self, chosen: Mask) -> Ints:
        """Return the chosen segments' time per gap."""
        sums = np.bincount(self.segments.gap[chosen], weights=self.ns[chosen], minlength=len(self.gaps))
        return sums.astype(np.int64)


def _gap_facts(analysis: Analysis) -> GapFacts:
    evidence, gaps = analysis.evidence, analysis.gaps
    calls = evidence.calls
    if not len(gaps):
        empty = np.zeros(0, np.int64)
        return GapFacts(empty, empty, empty, empty, empty, empty)
    drained_by, refilled_by = np.maximum(gaps.drained_by, 0), np.maximum(gaps.refilled_by, 0)
    roles = evidence.apis.role.take(calls["op"][drained_by], mode="clip")
    roles = np.where(gaps.drained_by >= 0, roles, Role.OTHER)
    moved_row = np.where(gaps.estimated, -1, _moved(evidence, drained_by, roles))
    # an estimated gap begins with the end of work, not with a wait
    read_row = np.where(gaps.estimated, -1, _reads(evidence, drained_by, roles))
    read_row = np.where(moved_row > read_row, -1, read_row)  # an earlier call waited for that read
    sends = (gaps.refilled_by >= 0) & (calls["direction"][refilled_by] == H2D)
    groups = evidence.apis.group.take(calls["op"][refilled_by], mode="clip")
    groups = np.where(gaps.refilled_by >= 0, groups, Group.COLLECTIVE)
    return GapFacts(
        read_bytes=np.where(read_row >= 0, calls["bytes"][np.maximum(read_row, 0)], -1),
        read_row=read_row,
        moved_row=moved_row,
        refill_group=groups,
        sent_bytes=np.where(sends & (groups == Group.COPY), calls["bytes"][refilled_by], -1),
        slack_ns=_slack(analysis),
    )


def _reads(evidence: Evidence, drained_by: Ints, roles: Column) -> Ints:
    """The copy to the host for which each draining call waited: itself, or one shortly before it."""
    calls = evidence.calls
    groups = evidence.group(calls)
    copies = (calls["direction"] == D2H) & (groups == Group.COPY)
    # with kernel times an asynchronous copy's call may have waited for the copy
    itself = (roles == Role.COPY_SYNC) | (roles == Role.ENQUEUE)
    found = np.where(itself & copies[drained_by], drained_by, -1)
    for back in range(1, COPY_BEFORE + 1):
        row = np.maximum(drained_by - back, 0)
        near = (drained_by >= back) & (calls["row"][row] == calls["row"][drained_by]) & copies[row]
        near[near] = _between(evidence, row[near], drained_by[near]) <= (NEXT_NS if back == 1 else READ_NS)
        near &= (
            (roles == Role.PROVE_DEVICE)
            | (roles == Role.PROVE_EVENT)
            | (calls["stream"][row] == calls["stream"][drained_by])
        )
        found = np.where((found < 0) & near, row, found)
    return found


def _between(evidence: Evidence, row: Ints, then: Ints) -> Ints:
    """Time from one call to a later one of its thread, without its time in the run queue."""
    calls = evidence.calls
    begin, end = calls["end"][row], calls["begin"][then]
    passed: Ints = end - begin
    late = np.flatnonzero(passed > READ_NS)
    passed[late] -= time_within(evidence, calls["row"][row[late]], begin[late], end[late]).queued
    return passed


def _moved(evidence: Evidence, drained_by: Ints, roles: Column) -> Ints:
    """The copy to the device for which each draining call waited: itself, or the call before it.

    A synchronisation at another line of the program does not belong to the copy.
    """
    calls = evidence.calls
    copies = (calls["direction"] == H2D) & (evidence.group(calls) == Group.COPY)
    row = np.maximum(drained_by - 1, 0)
    near = (roles == Role.PROVE_STREAM) & (drained_by >= 1) & copies[row]
    near &= (calls["row"][row] == calls["row"][drained_by]) & (
        calls["stream"][row] == calls["stream"][drained_by]
    )
    near[near] = _between(evidence, row[near], drained_by[near]) <= NEXT_NS
    apart = np.flatnonzero(near & (calls["stack"][row] != calls["stack"][drained_by]))
    both = line_numbers(evidence, np.append(calls["stack"][row[apart]], calls["stack"][drained_by[apart]]))
    copied, waited = both[: len(apart)], both[len(apart) :]
    near[apart] = (copied == waited) | (copied < 0) | (waited < 0)
    moved: Ints = np.where(
        (roles == Role.COPY_SYNC) & copies[drained_by], drained_by, np.where(near, row, -1)
    )
    return moved


def _slack(analysis: Analysis) -> Ints:
    """Time before each gap in which the GPU is not known to have had work."""
    gaps, streams = analysis.gaps, analysis.gpu.streams
    slack = np.zeros(len(gaps), np.int64)
    for device in np.unique(gaps.device).tolist():
        mine = np.flatnonzero(gaps.device == device)
        begin = gaps.begin[mine]
        latest = _last_before(analysis.gpu.pending(device)[1], begin)
        for stream in np.flatnonzero(streams.device == device).tolist():
            ends = streams.enqueue_end[streams.operations(stream)]
            latest = np.maximum(latest, _last_before(ends, begin))
        slack[mine] = np.where(latest > 0, begin - latest, 0)
    return slack


def _last_before(times: Ints, moment: Ints) -> Ints:
    if not len(times):
        return np.zeros(len(moment), np.int64)
    place = np.searchsorted(times, moment, side="right") - 1
    return np.where(place >= 0, times[np.maximum(place, 0)], 0)


# The waits on a segment's chain.


def any_on_the_way(scene: AttributionContext, chosen: Mask) -> Mask:
    """Return True for segments in one of these stays off the CPU, or with one on their chain."""
    segments, links = scene.segments, scene.links
    if not len(chosen):
        return scene.mask()
    own = segments.slice >= 0
    found: Mask = own & chosen[np.maximum(segments.slice, 0)]
    return found | links.behind(links.of_slices(chosen, 0), segments.link)


def led_by(
    scene: AttributionContext, waits: Callable[[frozenset[str]], bool], chosen: Mask | None = None
) -> Mask:
    """Return True for segments with a wait in certain Python code on their chain.

    Args:
        scene: The analysis.
        waits: Returns True for that code, by the files on the waiting thread's stack.
        chosen: The stays off the CPU that count; all of them by default.
    """
    stacks = scene.evidence.slices["stack"]
    found = stacks_within(scene.evidence, stacks, waits)
    if not len(found):
        return scene.mask()
    within = np.isin(stacks, found)
    return any_on_the_way(scene, within if chosen is None else within & chosen)


def in_loader(scene: AttributionContext) -> Mask:
    """Return True for segments with a wait for the next batch of PyTorch's DataLoader on their chain."""
    return led_by(scene, by_loader)

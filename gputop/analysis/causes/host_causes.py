"""C13 to C17 and C28: the submitting thread has no CPU, waits for a lock, or does other work."""

from __future__ import annotations

import numpy as np

from gputop.analysis.answer.report import DiagnosisKind, Finding, Level, Link, Range
from gputop.analysis.causes.cause import (
    LEAST_NS,
    LEAST_SHARE,
    AboutCalls,
    Cause,
    CauseMatch,
    assessed,
    occupants,
    within,
)
from gputop.analysis.causes.drains import read_between, source_of
from gputop.analysis.causes.launch_sites import long_work, not_waited, own_code, own_work
from gputop.analysis.causes.process_causes import share, who
from gputop.analysis.chains.attribution_context import BIG_COPY, SCALAR_BYTES, AttributionContext
from gputop.analysis.chains.chain import State
from gputop.analysis.chains.polling import Futex
from gputop.analysis.chains.roles import loader_helpers, others
from gputop.analysis.chains.thread_places import hottest
from gputop.analysis.evidence.api_classes import Group, Role
from gputop.analysis.evidence.blocking import WORDS, Wait
from gputop.analysis.evidence.columns import Ints, Mask, among, covered, union
from gputop.analysis.proofs.proofs import RETURN_NS
from gputop.engine.calls.stack_table import Line
from gputop.format import format_bytes, format_ns
from probes.code.source_files import is_library

MOSTLY = 0.5  # of the time, for the threads that had the CPU to be named


def _line(claim: CauseMatch) -> Line | None:
    """Return where the threads of its own process run that have its CPU."""
    if own_threads(claim) is None:
        return None
    scene, segments = claim.scene, claim.scene.segments
    places, threads = scene.evidence.places, scene.evidence.threads
    rows = np.flatnonzero(claim.segments)
    merged = union(segments.begin[rows], segments.end[rows])
    if not len(places) or not len(merged[0]):
        return None
    takers = [tid for pid, tid in scene.thread_shares(claim.segments) if pid == claim.pid]
    at = np.searchsorted(merged[0], places["time"], side="right") - 1
    met = (at >= 0) & (places["time"] < merged[1][np.maximum(at, 0)]) & np.isin(places["tid"], takers)
    met &= ~np.isin(places["tid"], threads.tid[np.unique(scene.gaps.thread[claim.gaps])])
    hot = hottest(scene, *(column.tolist() for column in np.unique(places["stack"][met], return_counts=True)))
    return hot.line if hot is not None and not is_library(hot.line.file) else None


def crowded_out(scene: AttributionContext) -> Mask:
    """Return the holders of a process's locks that mostly have no CPU: other threads of it have it."""
    behind = others(scene) & scene.same_process & (scene.futex != Futex.UNKNOWN)
    queued = behind & scene.does(State.QUEUED)
    found = scene.mask()
    for pid in np.unique(scene.pid[queued]).tolist():
        held, mine = behind & (scene.pid == pid), queued & (scene.pid == pid)
        starved = scene.ns[mine].sum() > MOSTLY * scene.ns[held].sum()
        if starved and scene.occupant_shares(mine).get(pid, 0.0) > MOSTLY:
            found |= mine
    return found


def own_threads(claim: CauseMatch) -> tuple[int, str] | None:
    """Return (number of threads of its own process that had its CPU, the longest), if they mostly had it."""
    scene = claim.scene
    shares = scene.thread_shares(claim.segments)
    own = {tid: part for (pid, tid), part in shares.items() if pid == claim.pid}
    if sum(own.values()) <= MOSTLY * sum(shares.values()):
        return None
    most = max(own, key=lambda tid: own[tid])
    return len(own), scene.evidence.facts.thread_title(most)


def _title(claim: CauseMatch) -> str:
    own = own_threads(claim)
    if own is None:
        return PREEMPTED.title
    count, most = own
    cpus = f" on {claim.scene.cpus} CPUs" if claim.scene.cpus else ""
    if count == 1:
        return f"thread {most} of its own process takes the submitting thread's CPU"
    return f"{count} threads of its own process{cpus} take the submitting thread's CPU, most {most}"


def _advise_preempted(claim: CauseMatch) -> tuple[str, ...]:
    scene = claim.scene
    if own_threads(claim) is not None:
        return (
            "its process has more threads that want a CPU than it has CPUs: a smaller pool (OMP_NUM_THREADS"
            f"{', torch.set_num_threads' if claim.torch else ''}, fewer threads), more CPUs, "
            "or that work in a process with CPUs of its own",
        )
    advice = f"{occupants(claim)}keep others off its CPU with taskset or nice"
    if len(loader_helpers(scene)):
        advice += ", or run fewer workers than CPUs (num_workers), with torch.set_num_threads(1) in each"
    return (advice,)


PREEMPTED = Cause(
    "C13",
    "the submitting thread is starved of CPU",
    # so is the holder of a lock that it waits for
    lambda scene, free: free & scene.does(State.QUEUED) & (scene.own | crowded_out(scene)),
    _advise_preempted,
    titled=_title,
    at=_line,
    kind=DiagnosisKind.CPU,
    family="P",
    rank=50,
)

THROTTLE = Cause(
    "C14",
    "throttled: the CPU quota of the cgroup is used up",
    lambda scene, free: free & scene.throttled & scene.does(State.BLOCKED),
    lambda claim: (
        "the cgroup's CPU quota runs out (cpu.max; cpu.cfs_quota_us in cgroup v1): raise it, or use "
        f"fewer threads (OMP_NUM_THREADS{', num_workers' if claim.torch else ''}) so that it lasts",
    ),
    kind=DiagnosisKind.CPU,
    family="P",
    rank=10,
)

# C15: a wait for the GPU returns after the GPU is done.


def late_spins(scene: AttributionContext, span_ns: int) -> list[Finding]:
    """Return a finding per process whose waits return right after a preemption, in which the work ended."""
    evidence, delays = scene.evidence, scene.analysis.gpu.delays
    calls = evidence.calls
    roles = evidence.role(calls)
    hidden = calls["end"] - delays.surely_waiting
    # a wait that slept knows when it was woken: its late return is a gap of its own
    spun = (delays.completed == calls["end"]) & (hidden > 0)
    # where more work is queued behind the wait, the GPU went on
    spun[np.setdiff1d(np.flatnonzero(spun), scene.gaps.drained_by[~scene.gaps.estimated])] = False
    rows = within(scene, np.flatnonzero(spun & (roles >= Role.PROVE_DEVICE) & (roles <= Role.PROVE_EVENT)))
    found = []
    for pid in np.unique(calls["pid"][rows]).tolist():
        mine = rows[calls["pid"][rows] == pid]
        total = int(hidden[mine].sum())
        if len(mine) >= 3 and total >= max(LEAST_SHARE * span_ns, LEAST_NS):
            found.append(_finding(scene, mine, hidden[mine], total))
    return found


def _finding(scene: AttributionContext, rows: Ints, hidden: Ints, total: int) -> Finding:
    about = AboutCalls.of(scene, rows, hidden)
    return assessed(
        scene,
        LATE_RETURN,
        about,
        title="late wakeup after a sync (upper bound)",
        level=Level.STRONG,
        kind="idle",
        loss=Range(0, total),
        chain=(
            Link("gpu", 0, 0, "finished before the preempted thread could see it", total, len(rows)),
            about.link("cuda", f"{about.where} spins", total),
            about.link("system", "preempted, and back just before it returned", total),
        ),
        evidence=(
            f"{len(rows)} waits returned within {format_ns(RETURN_NS)} after a preemption (median "
            f"{format_ns(float(np.median(hidden)))})",
        ),
        advice=(
            "keep others off the CPU of the thread that waits (taskset, nice), or let it sleep in the wait "
            "(cudaDeviceScheduleBlockingSync)",
        ),
    )


LATE_RETURN = Cause(
    "C15",
    "late wakeup after a sync",
    lambda scene, free: free & scene.own & scene.in_drain & scene.does(State.QUEUED),
    lambda claim: (
        "the GPU had finished, but the waiting thread got no CPU at once: "
        f"{occupants(claim)}keep others off its CPU (taskset, nice), or let it spin "
        "(cudaDeviceScheduleSpin)",
    ),
    assess=late_spins,
    kind=DiagnosisKind.CPU,
    family="P",
    rank=40,
)

# C16: another thread of the process holds a lock that the submitting thread waits for.

# times as long as for the GIL its waiter may wait for a CPU: up to 1.4 where other users of the GIL have the
# CPU (stories gil-short, gil-mixed), 5.4 where threads without the GIL have it (crowd-zip)
QUEUED_AT_GIL = 2.5
KEPT = 0.9  # of the time in which it is held, for which others must wait for it


def _lock(scene: AttributionContext, free: Mask) -> Mask:
    locked = scene.same_process & (scene.futex != Futex.UNKNOWN)
    behind: Mask = others(scene) & locked & scene.does(State.RUN, State.QUEUED, State.BLOCKED)
    return free & ((behind & ~crowded_out(scene)) | _keeps_it(scene) | _at_gil(scene))


def _at_gil(scene: AttributionContext) -> Mask:
    """Return the submitter's own waits for the GIL, those by a time-out included, until it has a CPU again.

    Without the threads that hold the GIL it would not have left its CPU. Where it waits for a CPU for much
    longer than for the GIL (``QUEUED_AT_GIL``), threads without the GIL have the CPU: that is no lock.
    """
    at = _in_gil_wait(scene)
    asleep, queued = at & scene.does(State.BLOCKED), at & scene.does(State.QUEUED)
    behind = asleep | (others(scene) & scene.same_process & (scene.futex == Futex.GIL))
    behind &= scene.does(State.RUN, State.BLOCKED)
    submitter = scene.evidence.threads.pid[scene.gaps.thread[scene.segments.gap]]
    for pid in np.unique(submitter[queued]).tolist():
        mine = submitter == pid
        if scene.ns[queued & mine].sum() < QUEUED_AT_GIL * scene.ns[behind & mine].sum():
            asleep |= queued & mine
    return asleep


def _in_gil_wait(scene: AttributionContext) -> Mask:
    """Return the pieces of the submitter's own waits for the GIL."""
    if not len(scene.locks):
        return scene.mask()
    at_gil = scene.locks[np.maximum(scene.segments.slice, 0)] == Futex.GIL
    found: Mask = scene.own & (scene.segments.slice >= 0) & at_gil
    return found


def _keeps_it(scene: AttributionContext) -> Mask:
    """Return where the submitter holds a lock for which others wait: it sleeps, or runs Python with the GIL.

    The lock is the one that it releases when they are woken. Threads that submit work count as well: without
    the lock they would submit meanwhile.
    """
    segments, slices, threads = scene.segments, scene.evidence.slices, scene.evidence.threads
    asleep = scene.own & scene.waits(Wait.SLEEP)
    runs = scene.own & scene.does(State.RUN, State.QUEUED) & scene.inside(Group.OTHER)
    found = scene.mask()
    submitters = np.unique(scene.gaps.thread)
    giving = np.isin(slices["row"], submitters)
    locks = np.flatnonzero(giving & (scene.locks == Futex.LOCK))
    gil = np.flatnonzero(giving & (scene.locks == Futex.GIL))
    for thread in submitters.tolist():
        mine = segments.thread == thread
        same = slices["pid"] == threads.pid[thread]
        behind = locks[slices["waker_tid"][locks] == threads.tid[thread]]
        others = gil[same[gil] & (slices["row"][gil] != thread)]
        for chosen, waits in ((asleep, behind), (runs, others)):
            rows = np.flatnonzero(chosen & mine)
            if len(rows) and len(waits):
                merged = union(slices["begin"][waits], slices["end"][waits])
                kept = covered(merged, segments.begin[rows], segments.end[rows])
                found[rows] |= kept >= KEPT * scene.ns[rows]
    return found


def is_gil(claim: CauseMatch) -> bool:
    """Return True if most of the time is spent behind CPython's own lock, or with it."""
    scene = claim.scene
    own = (scene.own & scene.does(State.RUN, State.QUEUED)) | _in_gil_wait(scene)
    return share(claim, (scene.futex == Futex.GIL) | own) > 0.5


def _holder_does(claim: CauseMatch) -> str:
    scene = claim.scene
    asleep = claim.segments & scene.does(State.BLOCKED) & ~_in_gil_wait(scene)
    if 2 * int(scene.ns[asleep].sum()) > claim.ns:
        usual = Wait(int(np.argmax(np.bincount(scene.wait[asleep], weights=scene.ns[asleep]))))
        return "sleeps" if usual is Wait.SLEEP else f"is blocked {WORDS[usual]}"
    return "has no CPU" if share(claim, scene.does(State.QUEUED)) > 0.5 else "computes"


def _evidence_lines(claim: CauseMatch) -> tuple[str, ...]:
    if is_gil(claim):
        return ("the GIL: threads that run Python wait at one condition variable in turn",)
    return ("a lock: threads that end a wait for it wait for it at other times",)


def _advise(claim: CauseMatch) -> tuple[str, ...]:
    if is_gil(claim):
        return (
            "threads of one interpreter take turns: move that Python work to a process, or into code that "
            "releases the GIL (NumPy on large arrays)",
        )
    if _holder_does(claim) == "sleeps":
        return ("its holder sleeps with the lock in its hands: release the lock before the sleep",)
    return ("hold the lock for a shorter time: work and wait outside of it, or use a lock for each part",)


LOCK = Cause(
    "C16",
    "waits for a lock of its process",
    _lock,
    _advise,
    # known by its address and its 5 ms, or by threads that wait in turn: a pair of events may look the same
    lambda _claim: Level.STRONG,
    culprit="end",
    frees_cpu=True,
    titled=lambda claim: (
        f"waits for {'the GIL' if is_gil(claim) else 'a lock'}, held by {who(claim)}, "
        f"which {_holder_does(claim)}"
    ),
    evidence=_evidence_lines,
    kind=DiagnosisKind.HOST,
    family="L",
    rank=24,
)

# C17: the submitting thread stalls on page faults or on its address space.

MEMORY = Cause(
    "C17",
    "the submitting thread stalls on page faults",
    lambda scene, free: free & scene.own & scene.waits(Wait.FAULT, Wait.MEMORY) & scene.inside(Group.OTHER),
    lambda _claim: (
        "it waits for pages, or for other threads that change the address space (mmap, munmap, free of large "
        "blocks): load files before the loop, reuse buffers, MALLOC_TRIM_THRESHOLD_, mlock",
    ),
    culprit="waiter",
    kind=DiagnosisKind.HOST,
    family="K",
    rank=150,
)

# C28: between two launches the submitting thread does a millisecond and more of other work.

_GIVING = (Group.LAUNCH, Group.SET, Group.GRAPH, Group.COLLECTIVE)
OUTWAITS = 4  # times as long as the wait before it: without the wait, a fifth of the time is won at most
# the same for work that samples show: without it as much is won as without the wait. It may be on the data
# that was read; a synchronisation brings none
AS_LONG, AS_LONG_UNREAD = 0.75, 0.2


def _other_work(scene: AttributionContext, free: Mask) -> Mask:
    """Return own work that no wait explains, long or by samples; a read may bring the data for the work."""
    source = source_of(scene)
    works = scene.gap_ns(own_work(scene))
    waited = _waited(scene, source)
    own = own_code(scene).own
    alone = (source < 0) | not_waited(scene) | (works >= OUTWAITS * waited)
    alone |= own & (works >= np.where(read_between(scene) >= 0, AS_LONG, AS_LONG_UNREAD) * waited)
    alone &= (source < 0) | (source == np.arange(len(source)))  # within a loop of reads it is theirs
    alone |= scene.gap_facts.sent_bytes >= BIG_COPY  # it makes what it sends, and not of a scalar alone
    alone &= (long_work(scene) | own) & (read_between(scene) <= SCALAR_BYTES)
    return free & own_work(scene) & alone[scene.segments.gap]


def _waited(scene: AttributionContext, source: Ints) -> Ints:
    """Return how long the thread had waited since it last submitted, when each gap's queue was drained, ns.

    Of a wait that polls, and of a thread that only waits, that is not known, and counts as long.
    """
    calls = scene.evidence.calls
    if not len(calls):
        return np.zeros(len(source), np.int64)
    groups = scene.evidence.group(calls)
    waits = among(groups, (Group.SYNC, Group.COPY))
    total = np.cumsum(np.where(waits, calls["end"] - calls["begin"], 0))
    enqueues = among(groups, _GIVING)
    gave = np.maximum.accumulate(np.where(enqueues, np.arange(len(calls)), -1))
    wait = np.maximum(scene.gaps.drained_by[np.maximum(source, 0)], 0)
    since = np.maximum(gave[wait], 0)
    known = (gave[wait] >= 0) & (calls["row"][since] == calls["row"][wait]) & (groups[wait] != Group.QUERY)
    return np.where(known, total[wait] - total[since], np.iinfo(np.int64).max // OUTWAITS)


def _other_work_title(claim: CauseMatch) -> str:
    sent = claim.sent_bytes
    if sent < BIG_COPY:
        return OTHER_WORK.title
    return f"host work before each copy of {format_bytes(sent)} to the GPU"


def _level_of_other_work(claim: CauseMatch) -> Level:
    """Return proved for long work, since no launch takes a millisecond; shorter work is known by samples."""
    long = long_work(claim.scene)[claim.scene.segments.gap]
    return Level.PROVED if share(claim, long) > 0.5 else Level.STRONG


def _other_work_lines(claim: CauseMatch) -> tuple[str, ...]:
    """Return where samples met the thread, and its pace."""
    found = own_code(claim.scene)
    rows = claim.gaps[found.own[claim.gaps]]
    if not len(rows):
        return ()
    usual, pace = float(np.median(found.works_ns[rows])), int(np.median(found.pace_ns[rows]))
    met, own = int(found.met[rows].max()), int(found.met_own[rows].max())
    where = f"{own} of {met} samples there are in no framework's code"
    if not pace:
        return (where,)
    return (f"{where}; {format_ns(usual)} of work, and {format_ns(pace)} from one launch to the next",)


def _other_work_advise(claim: CauseMatch) -> tuple[str, ...]:
    usual = claim.usual_ns
    if claim.sent_bytes >= BIG_COPY:
        return (
            f"{format_ns(usual)} of host work come before each copy: if it does not depend on what the GPU "
            "has just computed, let a worker process prepare it while the GPU works on the step before",
            "else do that work on the GPU, or make it faster",
        )
    advice = (
        f"the submitting thread does {format_ns(usual)} of other work between two launches: move it to "
        "another process, do it less often, or do it after the launches of the next step"
    )
    waits = ~not_waited(claim.scene)[claim.gaps]
    if waits.mean() > 0.5 and not claim.scene.estimated[claim.segments].all():
        advice += "; without the wait for the GPU before it, the GPU would work meanwhile"
    return (advice,)


OTHER_WORK = Cause(
    "C28",
    "host work between launches",
    _other_work,
    _other_work_advise,
    _level_of_other_work,
    culprit="refilled_by",
    titled=_other_work_title,
    evidence=_other_work_lines,
    # a gap that is long once in such a loop is no recurring stall
    beside=frozenset({"C01", "C03", "C06", "C27"}),
    kind=DiagnosisKind.HOST,
    family="H",
    rank=195,
)

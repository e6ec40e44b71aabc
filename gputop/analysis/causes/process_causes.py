"""C29 to C31, C33 and C37: the GPU waits for another thread or process."""

from __future__ import annotations

import numpy as np

from gputop.analysis.answer.report import DiagnosisKind, Level
from gputop.analysis.causes.cause import Cause, CauseMatch, ends_of, occupants_of
from gputop.analysis.chains.attribution_context import AttributionContext, in_loader
from gputop.analysis.chains.call_forms import by_loader, by_start, how_often
from gputop.analysis.chains.chain import State
from gputop.analysis.chains.polling import Futex
from gputop.analysis.chains.roles import (
    Peer,
    births_in_gaps,
    born_of,
    most_at_a_time,
    others,
    peers,
    process_title,
    thread_title,
)
from gputop.analysis.chains.thread_places import gaps_in_code, sampled
from gputop.analysis.evidence.api_classes import Group
from gputop.analysis.evidence.blocking import WORDS, Wait
from gputop.analysis.evidence.columns import Ints, Mask

HALF, LEAST_SAMPLES = 0.5, 5  # of the samples, if they are so many, that meet it where it waits for others
TRIFLE = 0.05  # of the time: whose part is smaller is not counted
MOSTLY = 0.8  # of the time is one process's, for it to be the one that is named


def behind_other(scene: AttributionContext) -> Mask:
    """Return the segments on other threads than the submitter that are no loader's and behind no lock."""
    locked = scene.same_process & (scene.futex != Futex.UNKNOWN)
    behind: Mask = others(scene) & ~locked
    return behind


def _exchange(scene: AttributionContext) -> Mask:
    """Return the submitter's time on a CPU in gaps in which it waits for others, if samples meet it there.

    Sending and receiving cost CPU time of its own: where it mostly runs the function in which it waits for
    the others, all of that time is the exchange.
    """
    runs = scene.own & scene.does(State.RUN) & scene.inside(Group.OTHER)
    behind = behind_other(scene) & ~scene.same_process & (scene.segments.link >= 0)
    if not behind.any():
        return scene.mask()
    stacks = scene.evidence.facts.stacks
    waits = scene.links.of_slices(scene.evidence.slices["stack"], 0)[scene.first_link[behind]]

    def function(stack: int) -> tuple[str, str] | None:
        line = stacks.line(stack)
        return None if line is None else (line.file, line.function.partition(".<locals>")[0])

    functions = {function(number) for number in np.unique(waits).tolist()} - {None}
    found = scene.mask()
    for thread in np.unique(scene.segments.thread[runs]).tolist() if functions else ():
        rows = np.flatnonzero(runs & (scene.segments.thread == thread))
        met = [(function(number), count) for number, count in sampled(scene, rows)]
        total = sum(count for where, count in met if where is not None)
        within = sum(count for where, count in met if where in functions)
        if total >= LEAST_SAMPLES and within > HALF * total:
            found[rows] = True
    return found


def level_of_chain(claim: CauseMatch) -> Level:
    """Return the level: wakeups are recorded, the thread that is polled for is inferred."""
    scene = claim.scene
    rows = np.flatnonzero(claim.segments)
    if share(claim, scene.own) > HALF:  # of messages, by samples
        return Level.STRONG
    polled = scene.polled_for[rows]
    if 2 * int(scene.ns[rows][polled].sum()) < claim.ns:
        return Level.PROVED
    return Level.STRONG if scene.related(rows[polled]).mean() >= MOSTLY else Level.HINT


def who(claim: CauseMatch) -> str:
    """Return ``process front.py (21613)``, ``thread x (812) of its process``, ``8 processes, most for …``."""
    scene, rows = claim.scene, ends_of(claim)
    ns = scene.ns[rows]
    threads = scene.segments.thread[rows]
    pid, share_of_it, several = _main(scene.pid[rows], ns)
    if share_of_it < MOSTLY:
        return f"{several} processes, most for {process_title(scene, pid)}"
    if pid != claim.pid:
        return f"process {process_title(scene, pid)}"
    here = scene.pid[rows] == pid
    thread, share_of_it, several = _main(threads[here], ns[here])
    if share_of_it < MOSTLY:
        return f"{several} threads of its process, most for {thread_title(scene, thread)}"
    return f"thread {thread_title(scene, thread)} of its process"


def _main(numbers: Ints, ns: Ints) -> tuple[int, float, int]:
    """Return (the number with most of the time, its share, how many have more than a trifle)."""
    names, which = np.unique(numbers, return_inverse=True)
    shares = np.bincount(which.reshape(-1), weights=ns) / max(int(ns.sum()), 1)
    return int(names[np.argmax(shares)]), float(shares.max()), int(np.count_nonzero(shares >= TRIFLE))


def share(claim: CauseMatch, chosen: Mask) -> float:
    """Return the chosen share of a match's time."""
    return float(claim.scene.ns[claim.segments & chosen].sum() / max(claim.ns, 1))


def _title(claim: CauseMatch) -> str:
    several = who(claim).split(" ", 1)[0].isdigit()
    starved = share(claim, claim.scene.does(State.QUEUED)) > 0.5
    does = ("have no CPU" if several else "has no CPU") if starved else "compute" if several else "computes"
    polls = 2 * share(claim, claim.scene.polled_for) > 1
    return f"{'polls' if polls else 'waits'} for {who(claim)}, which {does}"


def _title_disk(claim: CauseMatch) -> str:
    pages = share(claim, claim.scene.waits(Wait.FAULT, Wait.MEMORY)) > 0.5
    return f"waits for {who(claim)}, blocked {'by page faults' if pages else 'by the disk'}"


def _title_asleep(claim: CauseMatch) -> str:
    waits, ns = claim.scene.wait[claim.segments], claim.scene.ns[claim.segments]
    kind = Wait(int(np.argmax(np.bincount(waits, weights=ns))))
    return f"waits for {who(claim)}, {'which sleeps' if kind is Wait.SLEEP else f'blocked {WORDS[kind]}'}"


def _advise(claim: CauseMatch) -> tuple[str, ...]:
    scene = claim.scene
    apart = "let it prepare the next answer while the GPU works, or several at once, or make it faster"
    if (peers(scene)[claim.segments] == Peer.THREAD).all():
        apart = "let it work ahead of the thread that launches, or in a process of its own, or make it faster"
    advice = [f"the GPU gets work only when {who(claim)} is done: {apart}"]
    starved = share(claim, scene.does(State.QUEUED))
    if starved > 0.2:
        advice.append(
            f"for {100 * starved:.0f} % of this time it was runnable and had no CPU"
            f"{occupants_of(claim)}: give it one (fewer threads, taskset, nice)"
        )
    return tuple(advice)


def _evidence_lines(claim: CauseMatch) -> tuple[str, ...]:
    if 2 * share(claim, claim.scene.polled_for) <= 1:
        return ()
    return ("which thread it polls for is inferred: that one works meanwhile, and stops when the poll ends",)


WORKS = Cause(
    "C29",
    "waits for another thread or process",
    lambda scene, free: (
        free & ((behind_other(scene) & scene.does(State.RUN, State.QUEUED)) | _exchange(scene))
    ),
    _advise,
    level_of_chain,
    culprit="end",
    titled=_title,
    evidence=_evidence_lines,
    exchanges=True,
    kind=DiagnosisKind.HOST,
    family="H",
    rank=132,
)
DISK = Cause(
    "C30",
    "waits for another thread or process, which waits for the disk",
    lambda scene, free: (
        free & behind_other(scene) & scene.waits(Wait.DISK, Wait.READ, Wait.FAULT, Wait.MEMORY)
    ),
    lambda claim: (
        f"{who(claim)} reads or writes a file while the GPU waits for it: keep the data in memory, read "
        "ahead, or write after the answer",
    ),
    level_of_chain,
    culprit="end",
    titled=_title_disk,
    kind=DiagnosisKind.HOST,
    family="K",
    rank=131,
)
ASLEEP = Cause(
    "C31",
    "waits for another thread or process, which sleeps",
    lambda scene, free: free & behind_other(scene) & scene.does(State.BLOCKED),
    lambda claim: (f"{who(claim)} is asleep while the GPU waits for it: shorten or remove that wait",),
    level_of_chain,
    culprit="end",
    titled=_title_asleep,
    kind=DiagnosisKind.HOST,
    family="H",
    rank=133,
)

# C33 and C37: processes are started in the loop, and the GPU waits until they are ready or done.

LEAST_GAPS = 3  # processes are started in at least so many: fewer are start-up
MOSTLY_STARTED = 0.5  # of a gap that a start takes: then the rest of it belongs to it, too


def _starting(scene: AttributionContext, free: Mask, wanted: Mask) -> Mask:
    """Return wanted pieces from the first birth in a gap until its last child was done or delivered.

    A child that has ended, or was not recorded at first, is in no state that other causes claim.
    """
    births = births_in_gaps(scene)
    if np.count_nonzero(births.count) < LEAST_GAPS:
        return scene.mask()
    segments, gaps = scene.segments, scene.gaps
    gap = segments.gap
    child = np.isin(scene.pid, births.pids)
    last = np.zeros(len(gaps), np.int64)
    np.maximum.at(last, gap[child], segments.end[child])
    first = np.where(births.count > 0, births.first, gaps.end)
    np.minimum.at(first, gap[child], segments.begin[child])  # those of before end
    last = np.maximum(last, births.last)
    waits = (births.count > 0) & (last > births.first)
    whole = waits & (last - first >= MOSTLY_STARTED * (gaps.end - gaps.begin))
    # a fork takes its time before the child is there, and the end of the children before as well
    whole |= (births.count > 0) & gaps_in_code(scene, by_start)
    within = (segments.begin >= births.first[gap]) & (segments.end <= last[gap])
    chosen = whole[gap] | (waits[gap] & (within | child))
    starved = scene.own & scene.does(State.QUEUED)
    return wanted & (free | (child & scene.does(State.UNKNOWN))) & chosen & ~starved


def _of_loader(scene: AttributionContext) -> Mask:
    """Return the pieces of gaps of processes that mostly start others while they wait for a DataLoader."""
    if not len(scene.gaps):
        return scene.mask()
    births = births_in_gaps(scene).count > 0
    loads = births & ((scene.gap_ns(in_loader(scene)) > 0) | gaps_in_code(scene, by_loader))
    owner = scene.evidence.threads.pid[scene.gaps.thread]
    _pids, of_each = np.unique(owner, return_inverse=True)
    of_each = of_each.reshape(-1)
    mostly = 2 * np.bincount(of_each, weights=loads) > np.bincount(of_each, weights=births)
    return mostly[of_each][scene.segments.gap]


def _title_of_started(claim: CauseMatch) -> str:
    count = _at_a_time(claim)
    what = "a process is" if count == 1 else f"{count} processes are"
    return f"{what} started {how_often(claim.times)} and waited for"


def _at_a_time(claim: CauseMatch) -> int:
    births = births_in_gaps(claim.scene)
    return max(most_at_a_time(claim.scene, born_of(claim.gaps, births)), 1)


def _births_lines(claim: CauseMatch) -> tuple[str, ...]:
    births = births_in_gaps(claim.scene)
    count = int(births.count[claim.gaps].sum())
    return (f"{count} processes were born in {len(claim.gaps)} gaps, {_at_a_time(claim)} at a time",)


WORKERS = Cause(
    "C33",
    "DataLoader workers are started anew every epoch",
    lambda scene, free: _starting(scene, free, _of_loader(scene)),
    lambda _claim: (
        "each epoch starts the workers again, which import and load before their first batch: "
        "persistent_workers=True keeps them",
        "or let one loader go through several epochs, by a sampler that repeats",
    ),
    culprit="waiter",
    evidence=_births_lines,
    kind=DiagnosisKind.INPUT,
    family="D",
    rank=16,
)
STARTED = Cause(
    "C37",
    "processes are started in the loop",
    lambda scene, free: _starting(scene, free, ~_of_loader(scene)),
    lambda claim: (
        f"a process is started {claim.per_step()}, and the GPU waits until it is ready or done: start it "
        "once before the loop and give it work through a pipe or queue, or do the work in the process itself",
    ),
    culprit="waiter",
    titled=_title_of_started,
    evidence=_births_lines,
    kind=DiagnosisKind.HOST,
    family="H",
    rank=18,
)

"""Wakers of stays off the CPU, futexes that are locks, threads that poll."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from gputop.analysis.evidence.blocking import OWN, REPEATED, Wait, is_yield
from gputop.analysis.evidence.call_context import by_text, stacks_where
from gputop.analysis.evidence.columns import Ints, Mask, Tabular, among, covered, union
from gputop.analysis.evidence.evidence import Evidence
from gputop.engine.calls.stack_table import Line
from probes.schema import NO_SYSCALL, OffFlag

LEAST_LOOKS = 3  # fewer yields or sleeps in a row are no polling
LOOK_NS = 300_000  # CPU time between two sleeps of a polling thread, at most
SLEEP_NS = 50_000_000  # longer sleeps are no polling
LONG_NS = 1_000_000  # length from which on a stretch without samples may be polling
MOSTLY, LEAST_SAMPLES = 0.7, 5  # least share of polling samples between calls for that, and number
SOMETIMES = 0.2  # of a function's samples in sched_yield, from which on all of it is a polling loop
LEAST_COUNTED, EQUALLY = 10, 0.95  # stretches of a thread, and the share with equally many sleeps
STOPS_NS = 2_000_000  # a polled thread stops within this time after the end of the polling
WORKS = 0.5  # of the time of polling, in which the polled thread must be at work
OFTEN = 0.5  # of the polls, in which that must hold
LEAST_POLLS = 3
WAKES = 0.1  # of the polls: with more wakeups than this the two threads are connected by these
_POLLERS, _OTHERS = 4, 64  # threads compared: those that poll for longest, and that stop most often
NO_TARGET = -1


@dataclass(frozen=True, slots=True)
class Polls(Tabular):
    """A row for each stretch in which a thread polls, by thread and begin."""

    thread: Ints  # row of the thread that polls
    # begin, end: the stretch
    begin: Ints
    end: Ints
    target: Ints  # row of the thread for which it presumably polls; ``NO_TARGET`` where unknown
    stack: npt.NDArray[np.uint64]  # a stack of the polling loop; 0 where unknown

    def __len__(self) -> int:
        return len(self.thread)


def find_polls(evidence: Evidence) -> Polls:
    """Return the polling stretches of all threads."""
    slices = evidence.slices
    flags, kind = slices["flags"], slices["wait"]
    looks = (kind == Wait.YIELD) & ((flags & OffFlag.QUEUED) != 0)
    asleep = (kind == Wait.SLEEP) & ((flags & OffFlag.WAKER_IRQ) != 0)
    looks = _outside_calls(evidence, looks | (asleep & (slices["end"] - slices["begin"] <= SLEEP_NS)))
    found = [*_by_sleeping(evidence, looks), *_by_yielding(evidence, looks)]
    polling = {thread for one in found for thread in np.unique(one[0]).tolist()}
    spinning = _by_spinning(evidence, polling)
    found += spinning
    if not found:
        none = np.zeros(0, np.int64)
        return Polls(none, none, none, none, none.astype(np.uint64))
    thread, begin, end, stack = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.lexsort((begin, thread))
    thread, begin, end = thread[order].astype(np.int64), begin[order], end[order]
    rest = ((flags & OffFlag.QUEUED) == 0) | looks  # runnable counts as at work
    target = _targets(evidence, rest, thread, begin, end)
    spins = np.isin(thread, [int(one[0][0]) for one in spinning])
    kept = ~spins | _found(evidence, rest, thread, target, begin, end)
    return Polls(thread, begin, end, target, stack[order]).take(kept)


_Found = tuple[Ints, Ints, Ints, npt.NDArray[np.uint64]]


def _outside_calls(evidence: Evidence, chosen: Mask) -> Mask:
    """The stays outside of CUDA calls of their thread: a call that yields or sleeps waits for the GPU."""
    calls, slices, rows = evidence.calls, evidence.slices, np.flatnonzero(chosen)
    if len(calls) and len(rows):
        order = evidence.call_begins
        thread, begin = slices["row"][rows], slices["begin"][rows]
        place = np.maximum(np.searchsorted(order, evidence.key(thread, begin), side="right") - 1, 0)
        inside = (calls["row"][place] == thread) & (calls["begin"][place] <= begin)
        chosen = chosen.copy()
        chosen[rows[inside & (calls["end"][place] > begin)]] = False
    return chosen


def _by_sleeping(evidence: Evidence, looks: Mask) -> list[_Found]:
    """Rows of short sleeps with next to nothing between them."""
    slices = evidence.slices
    asleep = looks & (slices["wait"] == Wait.SLEEP)
    rows = np.flatnonzero(asleep)
    if len(rows) < LEAST_LOOKS:
        return []
    preempted = ((slices["flags"] & OffFlag.QUEUED) != 0) & ~asleep
    away = np.cumsum(np.where(preempted, slices["end"] - slices["begin"], 0))
    before, after = rows[:-1], rows[1:]
    ran = slices["begin"][after] - slices["end"][before] - (away[after] - away[before])
    other = np.cumsum(~asleep & ~preempted)  # a wait of another kind between two looks ends the polling
    apart = (slices["row"][before] != slices["row"][after]) | (ran > LOOK_NS)
    apart |= other[before] != other[after]
    calls = evidence.calls
    if len(calls):
        order = evidence.call_begins
        low = np.searchsorted(order, evidence.key(slices["row"][before], slices["end"][before]), side="left")
        high = np.searchsorted(order, evidence.key(slices["row"][after], slices["begin"][after]), side="left")
        apart |= high > low
    first = np.flatnonzero(np.append(True, apart))
    last = np.append(first[1:], len(rows)) - 1
    long = last - first + 1 >= LEAST_LOOKS
    long &= ~_counted(slices["row"][rows[first]], last - first + 1)
    first, last = rows[first[long]], rows[last[long]]
    stack = slices["stack"][last].astype(np.uint64)
    return [(slices["row"][first].astype(np.int64), slices["begin"][first], slices["end"][last], stack)]


def _counted(thread: Ints, looks: Ints) -> Mask:
    """True for threads that sleep equally often each time, which polling does not."""
    counted = np.zeros(len(thread), np.bool_)
    for number in np.unique(thread).tolist():
        mine = thread == number
        usual = looks[mine] == np.median(looks[mine])
        counted[mine] = np.count_nonzero(mine) >= LEAST_COUNTED and usual.mean() >= EQUALLY
    return counted


def _by_yielding(evidence: Evidence, looks: Mask) -> list[_Found]:
    """Stretches between two calls or waits of threads with samples in ``sched_yield``."""
    slices, places, threads = evidence.slices, evidence.places, evidence.threads
    yields = looks & (slices["wait"] == Wait.YIELD)
    met = is_yield(places["syscall"], evidence.header)
    tids = np.unique(np.append(slices["tid"][yields].astype(np.int64), places["tid"][met]))
    found = []
    for tid, thread in zip(tids.tolist(), threads.row(tids).tolist(), strict=True):
        if thread >= 0:
            found += _of_thread(evidence, yields, met, thread, tid)
    return found


def _between(evidence: Evidence, thread: int, waits: Ints) -> tuple[Ints, Ints]:
    """(begin, end) of the stretches between calls and these waits of a thread."""
    slices, calls = evidence.slices, evidence.calls
    low, high = np.searchsorted(calls["row"], [thread, thread + 1])
    begin, end = union(
        np.append(slices["begin"][waits], calls["begin"][low:high]),
        np.append(slices["end"][waits], np.maximum(calls["end"][low:high], calls["begin"][low:high] + 1)),
    )
    return end[:-1], begin[1:]


def _of_thread(evidence: Evidence, yields: Mask, met: Mask, thread: int, tid: int) -> list[_Found]:
    slices, places = evidence.slices, evidence.places
    rows = np.arange(*np.searchsorted(slices["row"], [thread, thread + 1]))
    yielding = yields[rows]
    begin, end = _between(evidence, thread, rows[((slices["flags"][rows] & OffFlag.QUEUED) == 0) & ~yielding])
    if not len(begin):
        return []
    mine = np.flatnonzero(places["tid"] == tid)
    time, stack = places["time"][mine], places["stack"][mine]
    functions = [evidence.facts.stacks.line(number) for number in stack.tolist()]
    names = np.array([hash((line.file, line.function)) if line else 0 for line in functions], np.int64)
    loop = met[mine].copy()
    for name in np.unique(names[loop & (names != 0)]).tolist():
        if met[mine][names == name].mean() >= SOMETIMES:
            loop |= names == name
    at = np.searchsorted(begin, time, side="right") - 1
    between = (at >= 0) & (time < end[np.maximum(at, 0)])
    looked = np.bincount(at[between & loop], minlength=len(begin))
    other = np.bincount(at[between & ~loop], minlength=len(begin))
    switched = np.searchsorted(begin, slices["begin"][rows[yielding]], side="right") - 1
    inside = (switched >= 0) & (slices["begin"][rows[yielding]] < end[np.maximum(switched, 0)])
    gave = np.bincount(switched[inside], minlength=len(begin))
    polls = (looked > other) | ((gave >= LEAST_LOOKS) & (other == 0))
    if looked.sum() + other.sum() >= LEAST_SAMPLES and looked.sum() >= MOSTLY * (looked.sum() + other.sum()):
        polls |= (other == 0) & (end - begin >= LONG_NS)
    polls &= end > begin
    chosen = np.flatnonzero(polls)
    usual, counts = np.unique(stack[loop], return_counts=True)
    number = usual[np.argmax(counts)] if len(usual) else 0
    one = np.full(len(chosen), thread, np.int64)
    return [(one, begin[chosen], end[chosen], np.full(len(chosen), number, np.uint64))]


def _by_spinning(evidence: Evidence, polling: set[int]) -> list[_Found]:
    """Stretches between two calls of submitters that run one function there.

    ``polling``: threads that poll in another way.
    """
    places, threads, calls = evidence.places, evidence.threads, evidence.calls
    if not len(places) or not len(calls):
        return []
    tids, counts = np.unique(places["tid"], return_counts=True)
    giving = np.unique(calls["tid"])
    tids = tids[(counts >= LEAST_SAMPLES) & np.isin(tids, giving)]
    found = []
    for tid, thread in zip(tids.tolist(), threads.row(tids).tolist(), strict=True):
        if thread >= 0 and thread not in polling:
            found += _spins_of(evidence, thread, tid)
    return found


def _spins_of(evidence: Evidence, thread: int, tid: int) -> list[_Found]:
    """The stretches of one thread."""
    places, slices = evidence.places, evidence.slices
    waits = np.arange(*np.searchsorted(slices["row"], [thread, thread + 1]))
    begin, end = _between(evidence, thread, waits[(slices["flags"][waits] & OffFlag.QUEUED) == 0])
    long = end - begin >= LONG_NS
    begin, end = begin[long], end[long]
    mine = np.flatnonzero(places["tid"] == tid)
    at = np.searchsorted(begin, places["time"][mine], side="right") - 1
    between = (at >= 0) & (places["time"][mine] < end[np.maximum(at, 0)]) if len(end) else at >= 0
    mine, at = mine[between], at[between]
    if len(mine) < LEAST_SAMPLES or len(begin) < LEAST_POLLS:
        return []
    lines = [evidence.facts.stacks.line(number) for number in places["stack"][mine].tolist()]
    functions = [(line.file, line.function) if line is not None else None for line in lines]
    usual = Counter(filter(None, functions)).most_common(1)
    loop = np.array([bool(usual) and one == usual[0][0] for one in functions], np.bool_)
    if loop.mean() < MOSTLY or (places["syscall"][mine] != NO_SYSCALL).mean() > 1 - MOSTLY:
        return []
    other = np.bincount(at[~loop], minlength=len(begin))
    chosen = np.flatnonzero(np.bincount(at[loop], minlength=len(begin)) >= other)
    number = places["stack"][mine][loop][0]
    one = np.full(len(chosen), thread, np.int64)
    return [(one, begin[chosen], end[chosen], np.full(len(chosen), number, np.uint64))]


def _found(evidence: Evidence, rest: Mask, thread: Ints, target: Ints, begin: Ints, end: Ints) -> Mask:
    """True for stretches that end with the stop of another process's thread, and without a wakeup.

    A thread that also stops again and again during the stretches stops at their end by chance.
    """
    slices, pids = evidence.slices, evidence.threads.pid
    found = np.zeros(len(thread), np.bool_)
    for one in np.unique(thread[target != NO_TARGET]).tolist():
        mine = (thread == one) & (target != NO_TARGET)
        whom = int(target[mine][0])
        other = int(pids[whom])
        wakes = (slices["pid"] == pids[one]) & (slices["waker_pid"] == other)
        wakes |= (slices["pid"] == other) & (slices["waker_pid"] == pids[one])
        if other == pids[one] or np.count_nonzero(wakes) >= WAKES * np.count_nonzero(mine):
            continue
        rests = slices["begin"][rest & (slices["row"] == whom)]
        margin = (end - begin)[mine] // 5
        first, last = begin[mine] + margin, end[mine] - margin
        once = np.searchsorted(rests, first) == np.searchsorted(rests, last)
        if ((last - first) * once).sum() >= OFTEN * (last - first).sum():
            found |= mine
    return found


def _targets(evidence: Evidence, rest: Mask, thread: Ints, begin: Ints, end: Ints) -> Ints:
    """The polled thread of each stretch: at work for most of the stretches, and done when they end.

    ``rest``: stays off the CPU of threads that are not runnable.
    """
    target = np.full(len(thread), NO_TARGET, np.int64)
    pollers, times = np.unique(thread, return_counts=True)
    spent = np.bincount(thread, weights=end - begin)[pollers]
    pollers = pollers[times >= LEAST_POLLS][np.argsort(-spent[times >= LEAST_POLLS])][:_POLLERS]
    slices = evidence.slices
    numbers = np.bincount(slices["row"][rest], minlength=len(evidence.threads.tid))
    others = np.argsort(-numbers, kind="stable")[:_OTHERS]
    others = others[numbers[others] >= LEAST_POLLS]
    best = {int(poller): (OFTEN, NO_TARGET) for poller in pollers}
    for other in others.tolist() if len(pollers) else ():
        low, high = np.searchsorted(slices["row"], [other, other + 1])
        rows = np.arange(low, high)[rest[low:high]]
        for poller in pollers[pollers != other].tolist():
            mine = thread == poller
            often = _answers(evidence, rows, other, begin[mine], end[mine])
            best[poller] = max(best[poller], (often, other))
    for poller, (_often, other) in best.items():
        target[thread == poller] = other
    return target


def _answers(evidence: Evidence, rows: Ints, other: int, begin: Ints, end: Ints) -> float:
    """The share of the stretches' time in which a thread is at work until their end, where it stops.

    ``rows``: its stays off the CPU in which it is not runnable.
    """
    slices, threads = evidence.slices, evidence.threads
    seen = (begin >= threads.known[other]) & (end <= threads.ended[other])
    away = union(slices["begin"][rows], slices["end"][rows])
    works = (end - begin) - covered(away, begin, end) >= WORKS * (end - begin)
    place = np.searchsorted(slices["begin"][rows], end - (end - begin) // 10, side="left")
    at = slices["begin"][rows[np.minimum(place, len(rows) - 1)]]
    stops = (place < len(rows)) & (at <= end + STOPS_NS)
    return float(((end - begin) * (seen & works & stops)).sum() / max((end - begin).sum(), 1))


# Futexes: locks that threads hold, and the GIL of CPython.

INTERVAL_NS = (4_900_000, 6_500_000)  # of the GIL: 5 ms, and a late timer
LEAST_WAITS = 3  # fewer are chance
NEAR = 6  # bits: the words of a condition variable lie side by side
PAIR = 3  # bits: the words of glibc's two groups of waiters are adjacent
# range of the words of a condition variable and its mutex, relative to that pair: glibc 2.25 to 2.41
_OF_CONDITION = (-24, 20)
LEAST_PLACES = 2  # waits for the GIL come from all Python code, for a barrier from one line
_ACQUIRES = re.compile(r"^\s*(?:async\s+)?with\b|\.acquire\(")
_QUEUES = ("/threading.py", "/queue.py", "/concurrent/futures/", "/multiprocessing/", "/asyncio/")


class Futex(IntEnum):
    """The kind of a futex."""

    UNKNOWN = 0  # a queue, a condition, a thread's end; or a lock that is not known as one
    LOCK = 1
    GIL = 2


def find_locks(evidence: Evidence) -> Ints:
    """Return the ``Futex`` of each stay off the CPU."""
    slices = evidence.slices
    kinds = np.zeros(len(slices), np.int64)
    waits = (slices["wait"] == Wait.LOCK) & (slices["descriptor"] > 0)
    rows = np.flatnonzero(waits & ((slices["flags"] & OffFlag.QUEUED) == 0))
    if len(rows) < LEAST_WAITS:
        return kinds
    place = slices["pid"][rows].astype(np.int64) << 32 | slices["descriptor"][rows]
    held = _by_turns(evidence, rows, place) & ~_in_queue(evidence, rows)
    # or the source text acquires a lock, and a thread of the process ends the wait
    acquires = by_text(evidence, slices["stack"][rows], _ACQUIRES)
    held |= acquires & (slices["waker_pid"][rows] == slices["pid"][rows])
    length = slices["end"][rows] - slices["begin"][rows]
    timed = (slices["flags"][rows] & OffFlag.WAKER_IRQ) != 0
    timed &= (length >= INTERVAL_NS[0]) & (length <= INTERVAL_NS[1])
    near = place >> NEAR
    late, often = np.unique(near[timed], return_counts=True)
    interpreter = np.isin(near, late[often >= LEAST_WAITS]) & _by_turns(evidence, rows, near)
    interpreter |= _at_condition(evidence, rows, place)
    kinds[rows[held]] = Futex.LOCK
    kinds[rows[interpreter]] = Futex.GIL
    return kinds


def _by_turns(evidence: Evidence, rows: Ints, place: Ints) -> Mask:
    """True for stays at a futex whose wakers wait there, too, at other times."""
    slices = evidence.slices
    tid, waker = slices["tid"][rows].astype(np.int64), slices["waker_tid"][rows].astype(np.int64)
    _places, number = np.unique(place, return_inverse=True)
    number = number.reshape(-1)
    ended = np.isin(number << 32 | waker, np.unique(number << 32 | tid)) & (waker != tid)
    by_turns: Mask = (np.bincount(number[ended], minlength=len(_places)) >= LEAST_WAITS)[number]
    return by_turns


def _at_condition(evidence: Evidence, rows: Ints, place: Ints) -> Mask:
    """True for stays at the GIL, however short: a condition variable of threads that run Python in turns.

    Both of its words have waiters, most waits come from Python, from several lines, and wakers wait there,
    too. Locks of Python have one word; waiters of a native queue never wake others there.
    """
    pair, stacks = place >> PAIR, evidence.slices["stack"][rows]
    pairs, number = np.unique(pair, return_inverse=True)
    number = number.reshape(-1)
    size = len(pairs)
    lines = _python_lines(evidence, stacks)
    counts, known = np.bincount(number, minlength=size), np.bincount(number[lines >= 0], minlength=size)
    places = np.unique(number[lines >= 0] << 32 | lines[lines >= 0]) >> 32
    both = np.unique(number << 1 | (place >> (PAIR - 1) & 1)) >> 1
    chosen = (np.bincount(both, minlength=size) == 2) & (2 * known > counts)
    chosen &= np.bincount(places, minlength=size) >= LEAST_PLACES
    found = np.unique(pair[chosen[number] & _by_turns(evidence, rows, pair)]) << PAIR
    after = np.searchsorted(found + _OF_CONDITION[0], place, side="right") - 1
    at: Mask = (
        (after >= 0) & (place < found[np.maximum(after, 0)] + _OF_CONDITION[1]) if len(found) else pair < 0
    )
    return at


def _python_lines(evidence: Evidence, stacks: npt.NDArray[np.uint64]) -> Ints:
    """A number for the innermost line of Python of each stack; -1 where there is none."""
    numbers, which = np.unique(stacks, return_inverse=True)
    lines: dict[Line, int] = {}
    of_stack = np.full(len(numbers), -1, np.int64)
    for place, stack in enumerate(numbers.tolist()):
        frames = evidence.facts.stacks.frames(stack)
        innermost = next((one for one in frames if one.file and not one.is_native), None)
        if innermost is not None:
            of_stack[place] = lines.setdefault(innermost, len(lines))
    return of_stack[which.reshape(-1)]


def _in_queue(evidence: Evidence, rows: Ints) -> Mask:
    """True for waits of Python for a queue, a condition or a result, which use a new lock each time."""
    stacks, frames = evidence.slices["stack"][rows], evidence.facts.stacks.frames

    def waits(stack: int) -> bool:
        return any(part in frame.file for frame in frames(stack)[:1] for part in _QUEUES)

    return np.isin(stacks, stacks_where(stacks, waits))


# The waker of each stay off the CPU, and its time: the links of a chain.

# between two timed waits a thread checks its lock and sleeps again (the GIL's wait times out after 5 ms)
COALESCE_NS = 300_000
FLIGHT_NS = 1_000_000  # a wakeup across CPUs lasts microseconds, longer where the hypervisor uses that CPU
NO_WAKER, UNWATCHED = -1, -2


@dataclass(frozen=True, slots=True)
class Wakers:
    """A row for each stay off the CPU."""

    thread: Ints  # row of the thread that ended it; ``NO_WAKER``: unknown, ``UNWATCHED``: not a watched one
    own: Mask  # True if the wait is the thread's own: for the clock, the disk, a page
    queued: Ints  # when it was woken and ready to run; never within a row of waits for one event


def find_wakers(evidence: Evidence, begin_key: Ints) -> Wakers:
    """Return the wakers; ``begin_key``: the keys of the stays' (thread, begin), in order."""
    slices = evidence.slices
    flags, tid = slices["flags"], slices["waker_tid"]
    direct = np.where(tid == 0, NO_WAKER, evidence.threads.row(tid))
    direct = np.where((direct == NO_WAKER) & (tid != 0), UNWATCHED, direct)
    ending = _ending_rows(evidence)
    by_clock = ((flags & OffFlag.WAKER_IRQ) != 0)[ending]
    kind = slices["wait"]
    repeated = ending != np.arange(len(slices))
    own = by_clock | ((flags & OffFlag.IOWAIT) != 0) | among(kind, OWN)
    own &= repeated | ((flags & OffFlag.WAKE_MISSED) == 0)
    own |= (flags & (OffFlag.BIRTH | OffFlag.THROTTLED)) != 0
    queued = np.where(own, slices["queued"], _sent(evidence, direct, begin_key))
    # a thread that checks and sleeps again had no use for a CPU
    queued = np.where(repeated, slices["end"], queued)
    return Wakers(direct[ending], own, queued)


def _ending_rows(evidence: Evidence) -> Ints:
    """The row with the waker of each stay: its own, or the last of a row of waits for one event.

    A thread that repeats a wait at once had not got the event: the wait timed out, and the waker of the last
        one
    ends them all. A wait with an unknown end (the kernel hides some interrupts from tracing) counts likewise.
    """
    slices = evidence.slices
    flags, kind = slices["flags"], slices["wait"]
    result = np.arange(len(slices))
    ready = (flags & (OffFlag.QUEUED | OffFlag.BIRTH)) != 0  # these stays are no waits
    waits = np.flatnonzero(~ready)
    if len(waits) < 2:
        return result
    this, following = waits[:-1], waits[1:]
    preempted = np.cumsum(np.where(ready, slices["end"] - slices["begin"], 0))
    ran = slices["begin"][following] - slices["end"][this] - (preempted[following] - preempted[this])
    again = (slices["row"][following] == slices["row"][this]) & (ran <= COALESCE_NS)
    again &= slices["syscall"][following] == slices["syscall"][this]
    again &= (flags[this] & (OffFlag.WAKER_IRQ | OffFlag.WAKE_MISSED)) != 0
    again &= among(kind[this], REPEATED)
    again &= ~_called_between(evidence, this, following)
    last = np.where(np.append(again, False), len(waits) - 1, np.arange(len(waits)))
    result[waits] = waits[np.minimum.accumulate(last[::-1])[::-1]]
    return result


def _called_between(evidence: Evidence, this: Ints, following: Ints) -> Mask:
    """True where the thread made a CUDA call between two stays: the second waits for another event."""
    slices, order = evidence.slices, evidence.call_begins
    thread = slices["row"]
    low = np.searchsorted(order, evidence.key(thread[this], slices["end"][this]))
    high = np.searchsorted(order, evidence.key(thread[following], slices["begin"][following]))
    called: Mask = high > low
    return called


def _sent(evidence: Evidence, waker: Ints, begin_key: Ints) -> Ints:
    """When each thread was woken, at the latest.

    It is in a run queue only when its CPU has handled the wakeup. A waker that left its own CPU before had
    sent the wakeup by then.
    """
    slices = evidence.slices
    queued = slices["queued"]
    place = np.searchsorted(begin_key, evidence.key(np.maximum(waker, 0), queued), side="left") - 1
    left = np.maximum(place, 0)
    away = (waker >= 0) & (place >= 0) & (slices["row"][left] == waker) & (slices["end"][left] >= queued)
    away &= queued - slices["begin"][left] <= FLIGHT_NS
    sent: Ints = np.where(away, np.maximum(slices["begin"][left], slices["begin"]), queued)
    return sent

"""Futexes: which are locks that threads hold, and which is the GIL of CPython.

A futex is a lock, a condition or a queue. The kernel tells its address (the lower half): an address for which
threads wait that at other times are those who end the waits of others is a lock, since the one who puts
something into a queue does not wait for it. Who holds a lock most of the time never waits for it: there the
line that waits tells, where it is Python: ``with lock:``. The GIL is the lock whose waits time out every 5 ms
and are taken up again (``take_gil`` in CPython's ceval_gil.c, ``sys.setswitchinterval``).
"""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np

from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.ranges import Ints, Mask
from gputop.explain.evidence.sourcetext import text_of
from gputop.explain.evidence.waits import Wait
from probes.code.source_files import is_library
from probes.schema import OffFlag

INTERVAL_NS = (4_900_000, 6_500_000)  # of the GIL: 5 ms, and a late timer
LEAST_WAITS = 3  # fewer are chance
NEAR = 6  # bits: the words of a condition variable lie side by side
_TAKES = re.compile(r"^\s*(?:async\s+)?with\b|\.acquire\(")
_QUEUES = ("/threading.py", "/queue.py", "/concurrent/futures/", "/multiprocessing/", "/asyncio/")


class Futex(IntEnum):
    """What a thread waits for in a futex."""

    UNKNOWN = 0  # a queue, a condition, a thread's end; or a lock that was not seen to be one
    LOCK = 1
    GIL = 2


def find_locks(evidence: Evidence) -> Ints:
    """The ``Futex`` of each stay off the CPU."""
    slices = evidence.slices
    kinds = np.zeros(len(slices), np.int64)
    waits = (slices["wait"] == Wait.LOCK) & (slices["descriptor"] > 0)
    rows = np.flatnonzero(waits & ((slices["flags"] & OffFlag.QUEUED) == 0))
    if len(rows) < LEAST_WAITS:
        return kinds
    place = slices["pid"][rows].astype(np.int64) << 32 | slices["descriptor"][rows]
    held = (_by_turns(evidence, rows, place) & ~_in_queue(evidence, rows)) | _takes_lock(evidence, rows)
    length = slices["end"][rows] - slices["begin"][rows]
    timed = (slices["flags"][rows] & OffFlag.WAKER_IRQ) != 0
    timed &= (length >= INTERVAL_NS[0]) & (length <= INTERVAL_NS[1])
    near = place >> NEAR
    late, often = np.unique(near[timed], return_counts=True)
    interpreter = np.isin(near, late[often >= LEAST_WAITS]) & _by_turns(evidence, rows, near)
    kinds[rows[held]] = Futex.LOCK
    kinds[rows[interpreter]] = Futex.GIL
    return kinds


def _by_turns(evidence: Evidence, rows: Ints, place: Ints) -> Mask:
    """Stays at a place where those who end a wait wait at other times."""
    slices = evidence.slices
    tid, waker = slices["tid"][rows].astype(np.int64), slices["waker_tid"][rows].astype(np.int64)
    _places, number = np.unique(place, return_inverse=True)
    number = number.reshape(-1)
    ended = np.isin(number << 32 | waker, np.unique(number << 32 | tid)) & (waker != tid)
    by_turns: Mask = (np.bincount(number[ended], minlength=len(_places)) >= LEAST_WAITS)[number]
    return by_turns


def _takes_lock(evidence: Evidence, rows: Ints) -> Mask:
    """Stays whose innermost line takes a lock, by its text; threads of the process end them."""
    stacks = evidence.slices["stack"][rows]
    numbers, which = np.unique(stacks, return_inverse=True)
    taking = np.zeros(len(numbers), np.bool_)
    for place, stack in enumerate(numbers.tolist()):
        innermost = next(iter(evidence.facts.stacks.frames(stack)), None)
        taking[place] = (
            innermost is not None
            and not is_library(innermost.file)
            and _TAKES.search(text_of(evidence, innermost)) is not None
        )
    own = evidence.slices["waker_pid"][rows] == evidence.slices["pid"][rows]
    takes: Mask = taking[which.reshape(-1)] & own
    return takes


def _in_queue(evidence: Evidence, rows: Ints) -> Mask:
    """Stays whose Python stack waits for a queue, a condition or a result: with locks made anew each time."""
    stacks = evidence.slices["stack"][rows]
    numbers, which = np.unique(stacks, return_inverse=True)
    within = np.zeros(len(numbers), np.bool_)
    for place, stack in enumerate(numbers.tolist()):
        innermost = next(iter(evidence.facts.stacks.frames(stack)), None)
        within[place] = innermost is not None and any(part in innermost.file for part in _QUEUES)
    in_queue: Mask = within[which.reshape(-1)]
    return in_queue

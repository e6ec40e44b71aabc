"""Who ended each stay off the CPU, and when: what a chain follows from one thread to the next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.ranges import Ints, Mask
from gputop.explain.evidence.waits import OWN, REPEATED
from probes.schema import OffFlag

# between two timed waits a thread looks at its lock and sleeps again (the GIL's wait times out after 5 ms)
COALESCE_NS = 300_000
FLIGHT_NS = 1_000_000  # a wakeup across CPUs takes microseconds, more where the host has taken that CPU away
NOBODY, UNWATCHED = -1, -2


@dataclass(frozen=True, slots=True)
class Wakers:
    """A row for each stay off the CPU.

    Attributes:
        thread: Row of the thread that ended it; ``NOBODY``: not known, ``UNWATCHED``: not a watched one.
        own: Whether the wait is the thread's own: for the clock, the disk, a page.
        queued: When it was ready to go on, counted from the moment it was woken; never within a row of waits
            for one thing.
    """

    thread: Ints
    own: Mask
    queued: Ints


def find_wakers(evidence: Evidence, begin_key: Ints) -> Wakers:
    """Takes the stays' (thread, begin) as numbers, in their order."""
    slices = evidence.slices
    flags, tid = slices["flags"], slices["waker_tid"]
    direct = np.where(tid == 0, NOBODY, evidence.threads.row(tid))
    direct = np.where((direct == NOBODY) & (tid != 0), UNWATCHED, direct)
    tells = _tells(evidence)
    by_clock = ((flags & OffFlag.WAKER_IRQ) != 0)[tells]
    kind = slices["wait"]
    repeated = tells != np.arange(len(slices))
    own = by_clock | ((flags & OffFlag.IOWAIT) != 0) | np.isin(kind, [int(wait) for wait in OWN])
    own &= repeated | ((flags & OffFlag.WAKE_MISSED) == 0)
    own |= (flags & (OffFlag.BIRTH | OffFlag.THROTTLED)) != 0
    queued = np.where(own, slices["queued"], _sent(evidence, direct, begin_key))
    # who looks once more and sleeps again had nothing to run for: a CPU would not have ended its wait
    queued = np.where(repeated, slices["end"], queued)
    return Wakers(direct[tells], own, queued)


def _tells(evidence: Evidence) -> Ints:
    """The row that tells who ended each stay: its own, or the last of a row of waits for one thing.

    A thread that looks at what it waits for and takes the same wait up again has not got it: the wait ended
    by its time-out, and whoever ends the last one ends them all. Where nobody saw how one ended (the kernel
    hides some interrupts from tracing), what comes after it says the same.
    """
    slices = evidence.slices
    flags, kind = slices["flags"], slices["wait"]
    tells = np.arange(len(slices))
    ready = (flags & (OffFlag.QUEUED | OffFlag.BIRTH)) != 0  # these stays are no waits
    waits = np.flatnonzero(~ready)
    if len(waits) < 2:
        return tells
    this, following = waits[:-1], waits[1:]
    preempted = np.cumsum(np.where(ready, slices["end"] - slices["begin"], 0))
    ran = slices["begin"][following] - slices["end"][this] - (preempted[following] - preempted[this])
    again = (slices["row"][following] == slices["row"][this]) & (ran <= COALESCE_NS)
    again &= slices["syscall"][following] == slices["syscall"][this]
    again &= (flags[this] & (OffFlag.WAKER_IRQ | OffFlag.WAKE_MISSED)) != 0
    again &= np.isin(kind[this], [int(wait) for wait in REPEATED])
    last = np.where(np.append(again, False), len(waits) - 1, np.arange(len(waits)))
    tells[waits] = waits[np.minimum.accumulate(last[::-1])[::-1]]
    return tells


def _sent(evidence: Evidence, waker: Ints, begin_key: Ints) -> Ints:
    """When each thread was woken, at the latest.

    It is in a run queue only when the other CPU has taken the wakeup in. Who wakes is on a CPU: where the
    waker has left its own before that, the wakeup was on its way since then.
    """
    slices = evidence.slices
    queued = slices["queued"]
    place = np.searchsorted(begin_key, evidence.key(np.maximum(waker, 0), queued), side="left") - 1
    left = np.maximum(place, 0)
    away = (waker >= 0) & (place >= 0) & (slices["row"][left] == waker) & (slices["end"][left] >= queued)
    away &= queued - slices["begin"][left] <= FLIGHT_NS
    sent: Ints = np.where(away, np.maximum(slices["begin"][left], slices["begin"]), queued)
    return sent

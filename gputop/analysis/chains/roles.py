"""Roles of threads and processes relative to the submitter; ranks with common collectives."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from gputop.analysis.chains.attribution_context import AttributionContext, in_loader
from gputop.analysis.chains.call_forms import by_loader
from gputop.analysis.evidence.api_classes import Group, Role
from gputop.analysis.evidence.call_context import stacks_within
from gputop.analysis.evidence.columns import Ints, Mask, among
from gputop.analysis.proofs.gaps import first_shown

# names that PyTorch gives its threads and processes (torch.multiprocessing._set_thread_name, setThreadName)
WORKER, PINNING, AUTOGRAD = "pt_data_worker", "pt_data_pin", "pt_autograd"


class Peer(IntEnum):
    """The role of a thread."""

    SUBMITTER = 0
    LOADER = 1  # a worker of PyTorch's DataLoader, by its name or the frames on the chain
    PINNING = 2  # the thread of PyTorch's DataLoader that pins batches
    AUTOGRAD = 3  # a thread in which PyTorch runs backward()
    THREAD = 4  # another thread of the process
    CHILD = 5  # a process that descends from it
    PROCESS = 6  # another process of this machine
    UNKNOWN = 7


WORDS: dict[Peer, str] = {
    Peer.SUBMITTER: "submitter",
    Peer.LOADER: "loader",
    Peer.PINNING: "pinning",
    Peer.AUTOGRAD: "autograd",
    Peer.THREAD: "thread",
    Peer.CHILD: "child",
    Peer.PROCESS: "process",
    Peer.UNKNOWN: "unknown",
}


def peers(scene: AttributionContext) -> Ints:
    """Return the ``Peer`` of each segment's thread."""
    return scene.once("peers", lambda: _peers(scene))


def _peers(scene: AttributionContext) -> Ints:
    segments, threads = scene.segments, scene.evidence.threads
    watched = segments.thread >= 0
    found = np.full(scene.size, int(Peer.PROCESS), np.int64)
    found[~watched] = Peer.UNKNOWN
    found[watched & scene.family] = Peer.CHILD
    found[watched & scene.same_process] = Peer.THREAD
    named = {number: _named(scene, tid) for number, tid in enumerate(threads.tid.tolist())}
    for peer in (Peer.PINNING, Peer.AUTOGRAD, Peer.LOADER):
        those = [number for number, one in named.items() if one is peer]
        found[watched & np.isin(segments.thread, those)] = peer
    loading = in_loader(scene) & watched & ~scene.own
    found[loading & (found != Peer.PINNING)] = Peer.LOADER
    found[scene.own] = Peer.SUBMITTER
    return found


def peer_of(scene: AttributionContext, submitter: int, thread: int) -> Peer:
    """Return the role of one thread relative to the submitter."""
    threads = scene.evidence.threads
    named = _named(scene, int(threads.tid[thread]))
    if named is not None:
        return named
    if threads.pid[thread] == threads.pid[submitter]:
        return Peer.THREAD
    return Peer.CHILD if scene.is_family(int(threads.pid[thread])) else Peer.PROCESS


def _named(scene: AttributionContext, tid: int) -> Peer | None:
    name = scene.evidence.facts.thread_name(tid)
    starts = {WORKER: Peer.LOADER, PINNING: Peer.PINNING, AUTOGRAD: Peer.AUTOGRAD}
    return next((peer for start, peer in starts.items() if name.startswith(start)), None)


def of_loader(scene: AttributionContext) -> Mask:
    """Return True for segments on a thread of PyTorch's DataLoader."""
    return among(peers(scene), (Peer.LOADER, Peer.PINNING))


def others(scene: AttributionContext) -> Mask:
    """Return True for segments on threads other than the submitter and those of a DataLoader."""
    watched: Mask = scene.segments.thread >= 0
    return watched & ~scene.own & ~of_loader(scene)


def loader_helpers(scene: AttributionContext) -> Ints:
    """Return processes that work for the DataLoader of a submitting process."""
    helpers = scene.helpers()
    if not len(helpers):
        return helpers
    found = {int(pid) for pid in np.unique(scene.pid[of_loader(scene)])}
    evidence = scene.evidence
    tids = evidence.threads.tid
    inside = stacks_within(evidence, evidence.places["stack"], by_loader)
    met = np.unique(evidence.places["tid"][np.isin(evidence.places["stack"], inside)])
    found |= set(evidence.threads.pid[np.isin(tids, met)].tolist())
    found |= {
        int(pid)
        for pid, tid in zip(evidence.threads.pid.tolist(), tids.tolist(), strict=True)
        if _named(scene, tid) is Peer.LOADER
    }
    return np.intersect1d(helpers, np.array(sorted(found), np.int64))


def process_title(scene: AttributionContext, pid: int) -> str:
    """Return ``front.py (21613)``: a process's script where that is recorded, else its name."""
    facts = scene.evidence.facts
    script = _script(str(facts.processes.get(pid, {}).get("command") or ""))
    name = facts.thread_name(pid, pid)
    if script or name != str(pid):
        return f"{script or name} ({pid})"
    return facts.process_title(pid)


def _script(command: str) -> str:
    """The script in a Python command line; "" for none."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    if not words or not words[0].rpartition("/")[2].startswith("python"):
        return ""
    for word in words[1:]:
        if word.endswith(".py"):
            return word.rpartition("/")[2]
        if word in ("-c", "-m") or not word.startswith("-"):
            return ""
    return ""


def thread_title(scene: AttributionContext, thread: int) -> str:
    """Return ``prefetcher (812)``: a thread's name and number."""
    tid = int(scene.evidence.threads.tid[thread])
    return scene.evidence.facts.thread_title(tid)


# Processes that a program starts while its GPU is idle, and how many live at once.


@dataclass(frozen=True, slots=True)
class Births:
    """Processes started in gaps; one row per gap."""

    count: Ints  # processes that the gap's process started in it
    # first, last: births of the first and the last of them; 0 without any
    first: Ints
    last: Ints
    pids: Ints  # all of them, of all gaps
    gap: Ints  # the gap of each of ``pids``


def births_in_gaps(scene: AttributionContext) -> Births:
    """Return the births of processes in each gap."""
    threads, gaps = scene.evidence.threads, scene.gaps
    size = len(gaps)
    count, first, last = (np.zeros(size, np.int64) for _ in range(3))
    parent = np.maximum(threads.parent, 0)
    born = np.flatnonzero((threads.tid == threads.pid) & (threads.parent >= 0))
    born = born[threads.pid[parent[born]] != threads.pid[born]]
    if not size or not len(born):
        empty = np.zeros(0, np.int64)
        return Births(count, first, last, empty, empty)
    owner = threads.pid[gaps.thread]
    pids, of = [], []
    for pid in np.unique(owner).tolist():
        own = np.flatnonzero(owner == pid)
        own = own[np.argsort(gaps.begin[own], kind="stable")]
        mine = born[threads.pid[parent[born]] == pid]
        time = threads.known[mine]
        place = np.searchsorted(gaps.begin[own], time, side="right") - 1
        row = own[np.maximum(place, 0)]
        inside = (place >= 0) & (gaps.end[row] > time)
        row, time = row[inside], time[inside]
        np.add.at(count, row, 1)
        order = np.argsort(time, kind="stable")
        last[row[order]] = time[order]
        first[row[order[::-1]]] = time[order[::-1]]
        pids.append(threads.pid[mine[inside]])
        of.append(row)
    return Births(count, first, last, np.concatenate(pids), np.concatenate(of))


def born_of(gaps: Ints, births: Births) -> Ints:
    """Return the processes born in some gaps."""
    return births.pids[np.isin(births.gap, gaps)]


def most_at_a_time(scene: AttributionContext, pids: Ints) -> int:
    """Return how many of these processes lived at one time, at most."""
    threads = scene.evidence.threads
    rows = np.flatnonzero(np.isin(threads.pid, pids) & (threads.tid == threads.pid))
    if not len(rows):
        return len(pids)
    times = np.concatenate([threads.known[rows], threads.ended[rows]])
    steps = np.concatenate([np.ones(len(rows), np.int64), -np.ones(len(rows), np.int64)])
    order = np.lexsort((steps, times))
    return int(np.cumsum(steps[order]).max())


# Ranks on this machine: threads with common collectives; the calls of each collective.

FEWEST: Final = 3  # collectives; with fewer nothing is reported
ALIKE: Final = 0.9  # two threads whose collectives agree this far are ranks of one job
_REACH: Final = 16  # collectives by which ranks may be apart at the begin of a stretch
_UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class Meetings:
    """The collectives that all ranks called."""

    rows: Ints  # rows of calls; a row per rank, a column per collective
    # True if the calls of a collective are known: counted from the first one on, or by their common end. Else
    # they are joined by their order in the stretch
    matched: bool


def meetings(scene: AttributionContext) -> Meetings | None:
    """Return the collectives of a job with several ranks on this machine; None without such a job.

    A stretch may begin between the calls of two ranks: the first call of one is then the second of the other.
    A collective ends for all ranks at one moment, so calls are joined by the proved end of their work. Their
    order is enough only where all calls of all ranks are recorded from the first one on.
    """
    evidence = scene.evidence
    calls = evidence.calls
    low, high = scene.analysis.gpu.stretch
    rows = np.flatnonzero(evidence.group(calls) == Group.COLLECTIVE)
    if len(rows) < 2 * FEWEST:
        return None
    inside = (calls["begin"][rows] >= low) & (calls["end"][rows] <= high) & (calls["ret"][rows] == 0)
    rows = rows[inside & (evidence.role(calls)[rows] != Role.BRACKET)]
    threads = [rows[calls["row"][rows] == thread] for thread in np.unique(calls["row"][rows]).tolist()]
    threads.sort(key=len, reverse=True)
    if len(threads) < 2:
        return None
    whole = low <= int(evidence.header.get("start_ns", evidence.start_ns))
    pids = {int(evidence.calls["pid"][own[0]]) for own in threads}
    counted = whole and pids <= evidence.complete and not evidence.lost_events
    done = np.full(len(calls["row"]), _UNKNOWN, np.int64)
    if not counted:
        shown = first_shown(scene.analysis.gpu, rows)
        done[rows] = np.where(shown >= 0, calls["end"][shown], _UNKNOWN)
    shifts, matched = [0], True
    ranks = [threads[0]]
    for own in threads[1:]:
        found = _shift(scene, ranks[0], own, done, reach=0 if counted else _REACH)
        if found is None:
            continue
        ranks.append(own)
        shifts.append(found[0])
        matched = matched and (counted or found[1])
    if len(ranks) < 2:
        return None
    return Meetings(_columns(ranks, shifts), matched)


def _shift(
    scene: AttributionContext, first: Ints, own: Ints, done: Ints, *, reach: int
) -> tuple[int, bool] | None:
    """(number of collectives by which ``own`` begins later than ``first``, True if by their ends).

    None where the two have other collectives. Without ends the smallest shift at which they are alike.
    """
    calls = scene.evidence.calls
    best: tuple[int, bool] | None = None
    apart = np.inf
    for shift in sorted(range(-reach, reach + 1), key=abs):
        ours, theirs = first[max(shift, 0) :], own[max(-shift, 0) :]
        size = min(len(ours), len(theirs))
        if size < max(ALIKE * len(first) - abs(shift), 1):
            continue
        ours, theirs = ours[:size], theirs[:size]
        same = calls["op"][ours] == calls["op"][theirs]
        same &= calls["bytes"][ours] == calls["bytes"][theirs]
        if same.mean() < ALIKE:
            continue
        known = (done[ours] != _UNKNOWN) & (done[theirs] != _UNKNOWN)
        if np.count_nonzero(known) >= FEWEST:
            # the mean: of ten collectives with one wait only one shows a shift by one
            ends = float(np.abs(done[ours] - done[theirs])[known].mean())
            if ends < apart:
                best, apart = (shift, True), ends
        elif best is None:
            best = shift, False
    return best


def _columns(ranks: Sequence[Ints], shifts: Sequence[int]) -> Ints:
    """The common collectives of all ranks, a row each."""
    # rank r's call i is the first rank's call i + shift
    low = max(shifts)
    ends = [len(own) + shift for own, shift in zip(ranks, shifts, strict=True)]
    high = max(min(ends), low)
    return np.stack([own[low - shift : high - shift] for own, shift in zip(ranks, shifts, strict=True)])

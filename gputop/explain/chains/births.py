"""Processes that a program starts while its GPU is idle, and how many live at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Ints


@dataclass(frozen=True, slots=True)
class Births:
    """One row per gap.

    Attributes:
        count: Processes that the gap's process started in it.
        first, last: When the first and the last of them were born; 0 without any.
        pids: All of them, of all gaps.
        gap: Of each of ``pids`` the gap.
    """

    count: Ints
    first: Ints
    last: Ints
    pids: Ints
    gap: Ints


def births_in_gaps(scene: Scene) -> Births:
    """The births of processes in each gap."""
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
    """The processes born in these gaps."""
    return births.pids[np.isin(births.gap, gaps)]


def most_at_a_time(scene: Scene, pids: Ints) -> int:
    """How many of these processes lived at one time, at most; one that was there before has no birth."""
    threads = scene.evidence.threads
    rows = np.flatnonzero(np.isin(threads.pid, pids) & (threads.tid == threads.pid))
    if not len(rows):
        return len(pids)
    times = np.concatenate([threads.known[rows], threads.ended[rows]])
    steps = np.concatenate([np.ones(len(rows), np.int64), -np.ones(len(rows), np.int64)])
    order = np.lexsort((steps, times))
    return int(np.cumsum(steps[order]).max())

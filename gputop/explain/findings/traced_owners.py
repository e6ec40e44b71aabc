"""Which cause each segment belongs to in a file that holds its kernels: by its rows, where no state is known.

What the launch's return leaves of a gap is nobody's on the host (C48; C50 where it is short and all of the
gap), or the way of a launch to the GPU. In
the rest the operator that the thread was in says it, then the call, then the wait that opened the gap.
"""

from __future__ import annotations

import numpy as np

from gputop.explain.causes import CATALOGUE
from gputop.explain.causes.c01_scalar_read import SCALAR
from gputop.explain.causes.c02_tensor_read import TENSOR
from gputop.explain.causes.c03_explicit_sync import EXPLICIT
from gputop.explain.causes.c04_pageable_copies import STAGED
from gputop.explain.causes.c06_launch_overhead import LAUNCHES
from gputop.explain.causes.c12_main_thread_input import PREPARED
from gputop.explain.causes.c20_device_memory import DEVICE_MEMORY
from gputop.explain.causes.c21_pinned_memory import HOST_MEMORY
from gputop.explain.causes.c22_graphs_code import GRAPHS
from gputop.explain.causes.c27_blocking_copy import BLOCKING
from gputop.explain.causes.c28_other_work import OTHER_WORK, OUTWAITS
from gputop.explain.causes.c48_queued import LATE_NS, QUEUED
from gputop.explain.causes.c49_loader_workers import LATE_WORKERS
from gputop.explain.causes.c50_short_kernels import BETWEEN_KERNELS
from gputop.explain.causes.cause import Cause
from gputop.explain.causes.own_work import LONG_NS
from gputop.explain.chains.scene import SCALAR_BYTES, Scene
from gputop.explain.chains.traced import returned
from gputop.explain.evidence.apiclass import H2D, Group, Role
from gputop.explain.evidence.ranges import Ints, Mask

_GIVING = (Group.LAUNCH, Group.SET, Group.GRAPH, Group.COPY, Group.COLLECTIVE)
_WAITING = (Group.SYNC, Group.COPY)
_INSIDE: dict[Group, Cause] = {
    Group.ALLOC: DEVICE_MEMORY,
    Group.FREE: DEVICE_MEMORY,
    Group.HOST: HOST_MEMORY,
    Group.GRAPH: GRAPHS,
    Group.MODULE: GRAPHS,
}


def traced_owners(scene: Scene) -> tuple[Ints, Mask]:
    """(the row of ``CATALOGUE`` of each segment, -1: none; which segments are settled by that)."""
    owner, settled = np.full(scene.size, -1, np.int64), scene.mask()
    traced = scene.analysis.traced
    if traced is None or not scene.size:
        return owner, settled

    def give(chosen: Mask, cause: Cause) -> None:
        nonlocal settled
        owner[chosen & ~settled] = CATALOGUE.index(cause)
        settled = settled | chosen

    calls, gaps, gap, segments = scene.evidence.calls, scene.gaps, scene.segments.gap, scene.segments
    back = returned(scene.evidence, gaps)
    left = segments.begin >= back[gap]
    host = segments.begin < back[gap]
    long_left = gaps.end - back > LATE_NS
    inside = traced.inside(segments)
    none = scene.mask()
    give(left & long_left[gap], QUEUED)
    short = left & ~settled
    # what follows is said of threads whose states are not known
    host &= scene.unrecorded
    settled = settled | short | inside.get("overhead", none)  # the profiler's own work is nobody's fault
    give(host & inside.get("workers", none), LATE_WORKERS)
    give(host & inside.get("alone", none), PREPARED)
    in_call = segments.call >= 0
    row = np.maximum(segments.call, 0)
    group = np.where(in_call, scene.group, Group.OTHER)
    gives = segments.call == gaps.refilled_by[gap]
    for one, cause in _INSIDE.items():
        give(host & in_call & (group == one) & ~gives, cause)
    long_call = calls["end"][row] - calls["begin"][row] >= LONG_NS
    give(host & gives & long_call & (group != Group.COPY), GRAPHS)
    give(host & gives & (group == Group.COPY) & (calls["direction"][row] == H2D) & long_call, STAGED)
    opened = _opened_by_wait(scene, gaps.end - gaps.begin)
    scalar, reads = inside.get("scalars", none), inside.get("reads", none)
    give(host & scalar, SCALAR)
    give(host & reads, TENSOR)
    # a wait within the gap that the GPU had nothing to do with any more, or that opened it
    waits = in_call & np.isin(group, [int(Group.SYNC)])
    waited = host & (waits | opened[gap])
    facts = scene.gap_facts
    give(waited & ((facts.read_bytes >= 0) & (facts.read_bytes <= SCALAR_BYTES))[gap], SCALAR)
    give(waited & (facts.read_bytes > SCALAR_BYTES)[gap], TENSOR)
    give(waited & (facts.moved_row >= 0)[gap], BLOCKING)
    give(waited, EXPLICIT)
    host_ns = back - gaps.begin
    give(host & (host_ns < LONG_NS)[gap], LAUNCHES)
    give(host, OTHER_WORK)
    # the way from a launch to the GPU goes with what was before it in the gap
    rest = _largest(scene, owner)
    rest = np.where(rest >= 0, rest, CATALOGUE.index(BETWEEN_KERNELS))
    owner[short] = rest[gap[short]]
    return owner, settled


def _opened_by_wait(scene: Scene, length: Ints) -> Mask:
    """Gaps that a wait for the GPU opened, unless far longer work is between it and the next launch."""
    gaps, evidence = scene.gaps, scene.evidence
    row = np.maximum(gaps.drained_by, 0)
    if not len(evidence.calls):
        return np.zeros(len(gaps), np.bool_)
    begin, end = evidence.calls["begin"][row], evidence.calls["end"][row]
    proves = np.isin(
        evidence.role_of(row), [Role.PROVE_DEVICE, Role.PROVE_STREAM, Role.PROVE_EVENT, Role.COPY_SYNC]
    )
    waits = (gaps.drained_by >= 0) & (proves | np.isin(evidence.group_of(row), [int(Group.COPY)]))
    waited = np.maximum(np.minimum(gaps.begin, end) - begin, 0)
    far: Mask = (length >= LONG_NS) & (length >= OUTWAITS * waited)
    return waits & ~far


def _largest(scene: Scene, owner: Ints) -> Ints:
    """Of each gap the cause that takes most of it; -1 where none does."""
    known = np.flatnonzero(owner >= 0)
    best = np.full(len(scene.gaps), -1, np.int64)
    most = np.zeros(len(scene.gaps), np.int64)
    for cause in np.unique(owner[known]).tolist():
        rows = known[owner[known] == cause]
        ns = np.bincount(scene.segments.gap[rows], weights=scene.ns[rows], minlength=len(best)).astype(
            np.int64
        )
        larger = ns > most
        best[larger], most[larger] = cause, ns[larger]
    return best

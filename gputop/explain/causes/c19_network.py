"""C19: the step waits for a peer that is not watched: another machine, or a process of this one."""

from __future__ import annotations

import numpy as np

from gputop.explain.answer.report import DiagnosisKind, Level
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.peer_causes import share
from gputop.explain.causes.registry import register
from gputop.explain.chains.chain import State
from gputop.explain.chains.lineage import any_on_the_way
from gputop.explain.chains.peers import process_title
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.descriptors import numbers_of
from gputop.explain.evidence.ranges import Ints, Mask
from gputop.explain.evidence.waits import Wait
from probes.proc.sockets import REMOTE
from probes.schema import OffFlag

FROM_PEERS = (Wait.SOCKET, Wait.DATA, Wait.READ, Wait.LOCK, Wait.CHILD)
MOSTLY = 0.5  # of the time one process's wakeups end, for it to be named


def _network(scene: Scene, free: Mask) -> Mask:
    by_device = free & scene.own & scene.waits(Wait.SOCKET)
    outside = scene.does(State.OUTSIDE) & np.isin(scene.wait, [int(kind) for kind in FROM_PEERS])
    return by_device | (free & outside)


def _wakers(claim: Claim) -> Ints:
    """The process that ended the last wait of each of its pieces; 0 where that may be chance."""
    scene, rows = claim.scene, np.flatnonzero(claim.segments)
    slices = scene.evidence.slices
    link = scene.segments.link[rows]
    item = np.where(link >= 0, scene.links.of_slices(np.arange(len(slices)), -1)[np.maximum(link, 0)], -1)
    known = item >= 0
    by_chance = OffFlag.WAKER_IRQ | OffFlag.WAKER_SOFTIRQ
    meant = known & ((slices["flags"][np.maximum(item, 0)] & by_chance) == 0)
    return np.where(meant, slices["waker_pid"][np.maximum(item, 0)], 0).astype(np.int64)


def _peer(claim: Claim) -> int:
    """The process that mostly ended the waits; 0 where it is not known."""
    if not len(claim.scene.links.slice):
        return 0
    pids, which = np.unique(_wakers(claim), return_inverse=True)
    spent = np.bincount(which.reshape(-1), weights=claim.scene.ns[claim.segments])
    return int(pids[np.argmax(spent)]) if spent.max() > MOSTLY * spent.sum() else 0


def _remote(claim: Claim) -> bool:
    """Whether the peer is known to be on another machine."""
    scene = claim.scene
    remote = np.isin(scene.evidence.slices["file"], numbers_of(scene.evidence.files, REMOTE))
    return share(claim, any_on_the_way(scene, remote)) > MOSTLY


def _title(claim: Claim) -> str:
    if _remote(claim):
        return "waits for another machine, over the network"
    pid = _peer(claim)
    if pid:
        return f"waits for process {process_title(claim.scene, pid)}, which is not watched"
    return NETWORK.title


def _advise(claim: Claim) -> tuple[str, ...]:
    advice = "request the next answer while the GPU works, several at once, or keep what does not change"
    pid = 0 if _remote(claim) else _peer(claim)
    if pid:
        return (f"to see what it does meanwhile, watch it as well: gputop --pid {claim.pid},{pid}", advice)
    return (advice,)


NETWORK = register(
    Cause(
        "C19",
        "waits for a peer that is not watched",
        _network,
        _advise,
        lambda claim: Level.PROVED if _remote(claim) or _peer(claim) else Level.STRONG,
        titled=_title,
        culprit="waiter",
        kind=DiagnosisKind.HOST,
        family="K",
        rank=30,
    )
)

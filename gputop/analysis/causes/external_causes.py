"""C18, C19, C26 and C32: the submitting thread waits for a disk, a peer, a request, or sleeps."""

from __future__ import annotations

import numpy as np

from gputop.analysis.answer.report import DiagnosisKind, Level
from gputop.analysis.causes.cause import Cause, CauseMatch
from gputop.analysis.causes.process_causes import share
from gputop.analysis.chains.attribution_context import AttributionContext, any_on_the_way, led_by
from gputop.analysis.chains.chain import State
from gputop.analysis.chains.polling import Futex
from gputop.analysis.chains.roles import Peer, peers, process_title
from gputop.analysis.chains.thread_places import file_samples, file_work
from gputop.analysis.evidence.api_classes import Group
from gputop.analysis.evidence.blocking import Wait, numbers_of
from gputop.analysis.evidence.columns import Ints, Mask, among
from gputop.format import format_ns
from probes.proc.sockets import ACCEPTED, LOCAL, REMOTE
from probes.schema import OffFlag

MOSTLY = 0.5  # of the time is one file's, for it to be named


def _disk(scene: AttributionContext, free: Mask) -> Mask:
    return free & ((scene.own & scene.waits(Wait.DISK, Wait.READ)) | file_work(scene))


def _level(claim: CauseMatch) -> Level:
    """Return proved for sleeps; CPU time in system calls on files is known by samples only."""
    return Level.STRONG if share(claim, claim.scene.does(State.RUN)) > MOSTLY else Level.PROVED


def _title(claim: CauseMatch) -> str:
    """Return the title, with the file that most of the time was spent on where that is known."""
    scene, rows = claim.scene, np.flatnonzero(claim.segments)
    names = scene.evidence.files
    spent = np.zeros(len(names))
    asleep = rows[scene.does(State.BLOCKED)[rows] & (scene.segments.slice[rows] >= 0)]
    np.add.at(spent, scene.evidence.slices["file"][scene.segments.slice[asleep]], scene.ns[asleep])
    runs = rows[scene.does(State.RUN)[rows]]
    _segment, met, within = file_samples(scene, runs)
    if within.any():
        each = scene.ns[runs].sum() / within.sum()  # a sample stands for so much
        np.add.at(spent, scene.evidence.places["file"][met[within]], each)
    blocked = scene.ns[asleep].sum() > MOSTLY * claim.ns
    does = "waits for the disk" if blocked else "reads or writes files"
    name = names[int(np.argmax(spent[1:])) + 1] if spent[1:].any() else ""
    if not name.startswith("file:") or spent[1:].max() < MOSTLY * claim.ns:
        return f"the submitting thread {does}"
    return f"the submitting thread {does}: {name.removeprefix('file:')}"


DISK = Cause(
    "C18",
    "the submitting thread waits for the disk",
    _disk,
    lambda _claim: (
        "it writes or reads a file in the loop (checkpoint, log, fsync): do that in another thread, from a "
        "copy, or less often",
    ),
    level=_level,
    titled=_title,
    culprit="end",
    kind=DiagnosisKind.HOST,
    family="K",
    rank=140,
)

# C19: the step waits for a peer that is not watched: another machine, or a process of this one.

FROM_PEERS = (Wait.SOCKET, Wait.DATA, Wait.READ, Wait.LOCK, Wait.CHILD)


def _network(scene: AttributionContext, free: Mask) -> Mask:
    by_device = free & scene.own & scene.waits(Wait.SOCKET)
    outside = scene.does(State.OUTSIDE) & among(scene.wait, FROM_PEERS)
    return by_device | (free & outside)


def _wakers(claim: CauseMatch) -> Ints:
    """Return the process that ended the last wait of each piece; 0 where that may be chance."""
    scene, rows = claim.scene, np.flatnonzero(claim.segments)
    slices = scene.evidence.slices
    link = scene.segments.link[rows]
    item = np.where(link >= 0, scene.links.of_slices(np.arange(len(slices)), -1)[np.maximum(link, 0)], -1)
    known = item >= 0
    item = np.maximum(item, 0)
    # a thread that sends over the loopback device runs the softirq that delivers it
    local = np.isin(slices["file"][item], numbers_of(scene.evidence.files, LOCAL))
    by_chance = np.where(local, OffFlag.WAKER_IRQ, OffFlag.WAKER_IRQ | OffFlag.WAKER_SOFTIRQ)
    meant = known & ((slices["flags"][item] & by_chance) == 0)
    return np.where(meant, slices["waker_pid"][item], 0).astype(np.int64)


def _peer(claim: CauseMatch) -> int:
    """Return the process that mostly ended the waits; 0: not known."""
    if not len(claim.scene.links.slice):
        return 0
    pids, which = np.unique(_wakers(claim), return_inverse=True)
    spent = np.bincount(which.reshape(-1), weights=claim.scene.ns[claim.segments])
    return int(pids[np.argmax(spent)]) if spent.max() > MOSTLY * spent.sum() else 0


def _remote(claim: CauseMatch) -> bool:
    """Return True if the peer is known to be on another machine."""
    scene = claim.scene
    remote = np.isin(scene.evidence.slices["file"], numbers_of(scene.evidence.files, REMOTE))
    return share(claim, any_on_the_way(scene, remote)) > MOSTLY


def _network_title(claim: CauseMatch) -> str:
    if _remote(claim):
        return "waits for another machine, over the network"
    pid = _peer(claim)
    if pid:
        return f"waits for process {process_title(claim.scene, pid)}, which is not watched"
    return NETWORK.title


def _advise(claim: CauseMatch) -> tuple[str, ...]:
    advice = "request the next answer while the GPU works, several at once, or keep what does not change"
    pid = 0 if _remote(claim) else _peer(claim)
    if pid:
        return (f"to see what it does meanwhile, watch it as well: gputop --pid {claim.pid},{pid}", advice)
    return (advice,)


NETWORK = Cause(
    "C19",
    "waits for a peer that is not watched",
    _network,
    _advise,
    lambda claim: Level.PROVED if _remote(claim) or _peer(claim) else Level.STRONG,
    titled=_network_title,
    culprit="waiter",
    kind=DiagnosisKind.HOST,
    family="K",
    rank=30,
)

# C26: no work is requested. A server waits for a request, a program sleeps or is stopped: no fault.

# parts of the paths of code that waits for requests: Python's own servers, and those that people use
SERVERS = (
    "/socketserver.py",
    "/http/server.py",
    "/asyncio/",
    "/wsgiref/",
    "/uvicorn/",
    "/gunicorn/",
    "/hypercorn/",
    "/tornado/",
    "/aiohttp/",
    "/werkzeug/",
    "/grpc/",
    "/zmq/",
    "/ipykernel/",
)


def _no_requests(scene: AttributionContext, free: Mask) -> Mask:
    from_outside = scene.does(State.OUTSIDE) & among(scene.wait, (Wait.POLL, Wait.REQUEST))
    waits = (free & scene.does(State.BLOCKED)) | from_outside
    polls = free & scene.own & scene.polling & scene.inside(Group.OTHER)
    request = scene.wait == Wait.REQUEST
    stopped = waits & scene.waits(Wait.STOPPED)
    serving = (_serving(scene) | _answering(scene)) & (waits | scene.does(State.OUTSIDE))
    result: Mask = (waits & request) | from_outside | polls | stopped | serving | idle_client(scene, free)
    return result


def idle_client(scene: AttributionContext, free: Mask) -> Mask:
    """Return the segments of a thread or process that sleeps before it sends the submitter its next work.

    It is no helper of the submitter, and not behind a lock: a thread that sleeps while it holds a lock keeps
    others from their work.
    """
    client = among(peers(scene), (Peer.THREAD, Peer.PROCESS)) & (scene.futex == Futex.UNKNOWN)
    sleeps = client & scene.waits(Wait.SLEEP)
    # what it does between two sleeps, in a gap that it mostly sleeps through, is no work for the GPU either
    mostly = 2 * scene.gap_ns(sleeps) > scene.gaps.end - scene.gaps.begin
    idle: Mask = free & client & (sleeps | mostly[scene.segments.gap])
    return idle


def _serving(scene: AttributionContext) -> Mask:
    """Return the leaves to which a wait for a request led, by the Python code that waits."""
    return led_by(scene, lambda files: any(part in file for file in files for part in SERVERS), _own(scene))


def _own(scene: AttributionContext) -> Mask:
    """Return the stays off the CPU of processes that submit work: services that they use wait as well."""
    givers = scene.evidence.threads.pid[np.unique(scene.gaps.thread)]
    return np.isin(scene.evidence.slices["pid"], givers)


def _answering(scene: AttributionContext) -> Mask:
    """Return the leaves to which a wait on the server's end of a connection led: no request has come."""
    slices, accepted = scene.evidence.slices, numbers_of(scene.evidence.files, ACCEPTED)
    if not len(accepted) or not len(slices):
        return scene.mask()
    receives = slices["wait"] == Wait.SOCKET
    return any_on_the_way(scene, np.isin(slices["file"], accepted) & receives & _own(scene))


NO_REQUESTS = Cause(
    "C26",
    "no work is requested",
    _no_requests,
    level=lambda _claim: Level.STRONG,
    culprit="end",
    fault=False,
    kind=DiagnosisKind.NO_REQUESTS,
    family="U",
    rank=20,
)

# C32: the submitting thread sleeps by itself, once before it gives the GPU its next work.


def _sleeps(scene: AttributionContext, free: Mask) -> Mask:
    """Return sleeps, and waits until a time-out; several in a row before the next work are polling."""
    asleep = scene.own & scene.waits(Wait.SLEEP, Wait.LOCK)
    return free & asleep & scene.inside(Group.OTHER) & ~scene.polling


_AS_LONG = 0.5  # of the usual sleep: shorter ones are others


def _advise_sleep(claim: CauseMatch) -> tuple[str, ...]:
    usual = claim.usual_ns
    times = claim.per_step(int(np.count_nonzero(claim.lengths >= _AS_LONG * usual)))
    return (
        f"it sleeps for {format_ns(usual)} {times}: remove the sleep, or sleep in a thread that "
        "submits no GPU work; if it waits for new work, wait for that (queue.Queue.get, Condition.wait)",
    )


SLEEPS = Cause(
    "C32",
    "sleeps in the loop",
    _sleeps,
    _advise_sleep,
    culprit="waiter",
    kind=DiagnosisKind.HOST,
    family="H",
    rank=25,
)

"""C26: nobody asks for work. A server waits for a request, a program sleeps or is stopped: no fault."""

from __future__ import annotations

import numpy as np

from gputop.explain.answer.report import DiagnosisKind, Level
from gputop.explain.causes.cause import Cause, Claim
from gputop.explain.causes.registry import register
from gputop.explain.chains.chain import State
from gputop.explain.chains.lineage import any_on_the_way, led_by
from gputop.explain.chains.locks import Futex
from gputop.explain.chains.peers import Peer, peers
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.apiclass import Group
from gputop.explain.evidence.descriptors import numbers_of
from gputop.explain.evidence.ranges import Mask
from gputop.explain.evidence.waits import Wait
from probes.proc.sockets import ACCEPTED

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


def _unasked(scene: Scene, free: Mask) -> Mask:
    from_outside = scene.does(State.OUTSIDE) & np.isin(scene.wait, [int(Wait.POLL), int(Wait.REQUEST)])
    waits = (free & scene.does(State.BLOCKED)) | from_outside
    polls = free & scene.own & scene.polling & scene.inside(Group.OTHER)
    asked = scene.wait == Wait.REQUEST
    stopped = waits & scene.waits(Wait.STOPPED)
    serving = (_serving(scene) | _answering(scene)) & (waits | scene.does(State.OUTSIDE))
    unasked: Mask = (waits & asked) | from_outside | polls | stopped | serving | idle_client(scene, free)
    return unasked


def idle_client(scene: Scene, free: Mask) -> Mask:
    """A thread or process that is no helper of the submitter sleeps, and then sends it the next work.

    Not behind a lock: who sleeps with a lock in its hands keeps others from their work.
    """
    client = np.isin(peers(scene), [Peer.THREAD, Peer.PROCESS]) & (scene.futex == Futex.UNKNOWN)
    sleeps = client & scene.waits(Wait.SLEEP)
    # what it does between two sleeps, in a gap that it mostly sleeps through, is no work for the GPU either
    mostly = 2 * scene.gap_ns(sleeps) > scene.gaps.end - scene.gaps.begin
    idle: Mask = free & client & (sleeps | mostly[scene.segments.gap])
    return idle


def _serving(scene: Scene) -> Mask:
    """Leaves to which somebody's wait for a request led, by the Python code that waits."""
    return led_by(scene, lambda files: any(part in file for file in files for part in SERVERS), _own(scene))


def _own(scene: Scene) -> Mask:
    """Stays off the CPU of processes that give a GPU work: services that they use wait for requests, too."""
    givers = scene.evidence.threads.pid[np.unique(scene.gaps.thread)]
    own: Mask = np.isin(scene.evidence.slices["pid"], givers)
    return own


def _answering(scene: Scene) -> Mask:
    """Leaves to which a wait on the server's end of a connection led: the next request has not come."""
    slices, accepted = scene.evidence.slices, numbers_of(scene.evidence.files, ACCEPTED)
    if not len(accepted) or not len(slices):
        return scene.mask()
    takes = slices["wait"] == Wait.SOCKET
    return any_on_the_way(scene, np.isin(slices["file"], accepted) & takes & _own(scene))


def _advise(_claim: Claim) -> tuple[str, ...]:
    return ()


UNASKED = register(
    Cause(
        "C26",
        "no work is requested",
        _unasked,
        _advise,
        lambda _claim: Level.STRONG,
        culprit="end",
        fault=False,
        kind=DiagnosisKind.UNASKED,
        family="U",
        rank=20,
    )
)

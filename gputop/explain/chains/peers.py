"""Who the last thread of a chain is: its role beside the thread that gives the GPU work."""

from __future__ import annotations

import shlex
from enum import IntEnum

import numpy as np

from gputop.explain.chains.lineage import in_loader
from gputop.explain.chains.pytorch import by_loader
from gputop.explain.chains.scene import Scene
from gputop.explain.evidence.ranges import Ints, Mask

# names that PyTorch gives its threads and processes (torch.multiprocessing._set_thread_name, setThreadName)
WORKER, PINNING, AUTOGRAD = "pt_data_worker", "pt_data_pin", "pt_autograd"


class Peer(IntEnum):
    """The role of a thread."""

    SUBMITTER = 0
    LOADER = 1  # a worker of PyTorch's DataLoader, by the frames on the way or its name
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


def peers(scene: Scene) -> Ints:
    """The ``Peer`` of each segment's thread."""
    return scene.once("peers", lambda: _peers(scene))


def _peers(scene: Scene) -> Ints:
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


def peer_of(scene: Scene, submitter: int, thread: int) -> Peer:
    """The role of one thread beside the thread that gives the GPU work."""
    threads = scene.evidence.threads
    named = _named(scene, int(threads.tid[thread]))
    if named is not None:
        return named
    if threads.pid[thread] == threads.pid[submitter]:
        return Peer.THREAD
    return Peer.CHILD if scene.is_family(int(threads.pid[thread])) else Peer.PROCESS


def _named(scene: Scene, tid: int) -> Peer | None:
    name = scene.evidence.facts.thread_name(tid)
    starts = {WORKER: Peer.LOADER, PINNING: Peer.PINNING, AUTOGRAD: Peer.AUTOGRAD}
    return next((peer for start, peer in starts.items() if name.startswith(start)), None)


def of_loader(scene: Scene) -> Mask:
    """Segments on a thread that works for PyTorch's DataLoader."""
    return np.isin(peers(scene), [Peer.LOADER, Peer.PINNING])


def others(scene: Scene) -> Mask:
    """Segments on threads that are not the submitter and do not work for a DataLoader."""
    watched: Mask = scene.segments.thread >= 0
    return watched & ~scene.own & ~of_loader(scene)


def loader_helpers(scene: Scene) -> Ints:
    """Processes that work for the DataLoader of a process that gives a GPU work."""
    helpers = scene.helpers()
    if not len(helpers):
        return helpers
    found = {int(pid) for pid in np.unique(scene.pid[of_loader(scene)])}
    evidence = scene.evidence
    numbers, tids = np.unique(evidence.places["stack"]), evidence.threads.tid
    inside = [
        number
        for number in numbers.tolist()
        if by_loader(frozenset(frame.file for frame in evidence.facts.stacks.frames(number)))
    ]
    met = np.unique(evidence.places["tid"][np.isin(evidence.places["stack"], inside)])
    found |= set(evidence.threads.pid[np.isin(tids, met)].tolist())
    found |= {
        int(pid)
        for pid, tid in zip(evidence.threads.pid.tolist(), tids.tolist(), strict=True)
        if _named(scene, tid) is Peer.LOADER
    }
    return np.intersect1d(helpers, np.array(sorted(found), np.int64))


def process_title(scene: Scene, pid: int) -> str:
    """``front.py (21613)``: the script that a process runs where that is recorded, else its name."""
    facts = scene.evidence.facts
    script = _script(str(facts.processes.get(pid, {}).get("command") or ""))
    name = facts.thread_name(pid)
    return f"{script or (name if name != str(pid) else facts.process_name(pid))} ({pid})"


def _script(command: str) -> str:
    """The script of an interpreter's command line; "" where it runs none."""
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


def thread_title(scene: Scene, thread: int) -> str:
    """``prefetcher (812)``: a thread by its name and number."""
    tid = int(scene.evidence.threads.tid[thread])
    return f"{scene.evidence.facts.thread_name(tid)} ({tid})"

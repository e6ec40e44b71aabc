"""The links of a chain in words, from the segments of one claim."""

from __future__ import annotations

import numpy as np

from gputop.engine.lines import Line
from gputop.explain.answer.report import Layer, Link
from gputop.explain.causes.cause import Cause, Claim, ends_of
from gputop.explain.chains.chain import DEPTH, State
from gputop.explain.chains.peers import WORDS as WORDS_OF
from gputop.explain.chains.peers import Peer, peer_of, peers, process_title
from gputop.explain.chains.places import hot_line, longest, waiting_line
from gputop.explain.chains.scene import Scene
from gputop.explain.chains.traced import returned
from gputop.explain.chains.traced_words import in_words
from gputop.explain.evidence.ranges import Ints, distinct
from gputop.explain.evidence.waits import WORDS, Wait

_NAMED = 2  # occupants that a link or an advice names


def chain(cause: Cause, claim: Claim) -> tuple[Link, ...]:
    """GPU, the calls around the gaps, each wait on the way, and what the last thread did."""
    scene = claim.scene
    rows = np.flatnonzero(claim.segments)
    ns = scene.ns[rows]
    states = scene.segments.state[rows]
    if cause.crowded and (states == State.RUN).any():
        states = np.where(states == State.QUEUED, State.RUN, states)
    weights = _weights(scene, rows, states)
    if cause.culprit == "end":
        weights = np.where(np.isin(rows, ends_of(claim)), weights, -1)
    leader = int(rows[np.argmax(weights)])
    submitter = int(scene.gaps.thread[scene.segments.gap[leader]])
    pid, tid = _ids(scene, submitter)
    gap = int(scene.segments.gap[leader])
    device = scene.analysis.gpu.devices.labels[int(scene.gaps.device[gap])]
    total, gaps = int(ns.sum()), len(claim.gaps)
    links = [
        Link("gpu", 0, 0, f"{device} was idle", total, gaps),
        Link("cuda", pid, tid, _calls_text(scene, claim.gaps), total, gaps, role=WORDS_OF[Peer.SUBMITTER]),
    ]
    for thread, wait, poll in _waits(scene, leader):
        pid, tid = _ids(scene, thread)
        through = rows[_passes(scene, rows, thread)]
        if poll >= 0:
            line = scene.evidence.facts.stacks.line(int(scene.analysis.polls.stack[poll]))
            text = _at(f"{_name(scene, thread)} polled", line)
        else:
            line = waiting_line(scene, through, thread)
            text = _at(f"{_name(scene, thread)} {_waited(wait)}", line)
        role = "submitter" if thread == submitter else _role_of_thread(scene, through, thread)
        links.append(Link("host", pid, tid, text, int(scene.ns[through].sum()), len(through), line, role))
    return (*links, _last(claim, rows, states, leader))


def _weights(scene: Scene, rows: Ints, states: Ints) -> Ints:
    """The claimed time of each segment's (process, state), so that the biggest group is told."""
    key = (scene.pid[rows] + 1) * 8 + states
    _unique, where = np.unique(key, return_inverse=True)
    sums = np.bincount(where.reshape(-1), weights=scene.ns[rows])
    weights: Ints = sums[where.reshape(-1)] + scene.ns[rows] / (1 + scene.ns[rows].max())
    return weights


def _last(claim: Claim, rows: Ints, states: Ints, leader: int) -> Link:
    scene = claim.scene
    state = State(int(states[rows == leader][0]))
    alike = rows[(states == state) & (scene.pid[rows] == scene.pid[leader])]
    thread = int(scene.segments.thread[leader])
    pid, tid = _ids(scene, thread)
    others = len(np.unique(scene.pid[rows])) - 1
    name = _name(scene, thread)
    layer: Layer = "host"
    text, line = f"{name} was running", None
    call = int(scene.segments.call[leader])
    if call >= 0 and scene.own[leader]:
        api = scene.evidence.apis.name(int(scene.evidence.calls["op"][call]))
        line = usual_line(scene, scene.segments.call[alike])
        text = _at(f"{name} was inside {api}", line)
    elif scene.unrecorded[leader]:
        where = in_words(scene, alike)
        if scene.segments.begin[leader] >= returned(scene.evidence, scene.gaps)[scene.segments.gap[leader]]:
            return Link(
                "cuda", pid, tid, f"{name} had launched it before", int(scene.ns[alike].sum()), len(alike)
            )
        text = f"{name} was {where or 'between two calls'}; whether it ran there is not recorded"
    elif state == State.RUN and (hot := hot_line(scene, alike)) is not None:
        line = hot.line
        text += f", most often at {hot.text()}"
    if (states != scene.segments.state[rows]).any():
        text += ", or waited while other workers ran"
    if state == State.QUEUED:
        layer, text = "system", f"{name} was runnable but not running"
        shares = scene.occupants(claim.segments)
        if shares:
            text += ": preempted by " + ", ".join(
                f"{who} {100 * share:.0f} %" for who, share in shares[:_NAMED]
            )
    elif state == State.BLOCKED:
        wait = Wait(int(scene.wait[leader]))
        if scene.throttled[leader]:
            layer, text = "system", f"{name} was throttled by its cgroup's CPU quota"
        else:
            layer = (
                "system" if wait in (Wait.DISK, Wait.SOCKET, Wait.FAULT, Wait.MEMORY, Wait.READ) else "host"
            )
            line = waiting_line(scene, alike, scene.segments.thread[alike]) or line
            text = _at(f"{name} {_waited(wait)}", line)
    elif state == State.OUTSIDE:
        text = f"woken by a thread that is not watched, after it {_waited(scene.wait[leader])}"
    if others > 0:
        text += f" (and {others} more process{'es' * (others > 1)} likewise)"
        alike = rows
    role = WORDS_OF[Peer(int(peers(scene)[leader]))]
    return Link(layer, pid, tid, text, int(scene.ns[alike].sum()), len(alike), line, role)


def _waited(kind: int) -> str:
    """``waited for a lock``; a sleep is none."""
    wait = Wait(int(kind))
    return "was sleeping" if wait is Wait.SLEEP else f"waited {WORDS[wait]}"


def _role_of_thread(scene: Scene, through: Ints, thread: int) -> str:
    """The role of a thread on the way."""
    return WORDS_OF[peer_of(scene, int(scene.gaps.thread[scene.segments.gap[through[0]]]), thread)]


def _at(text: str, line: Line | None) -> str:
    return f"{text} at {line.text()}" if line is not None else text


def _waits(scene: Scene, segment: int) -> list[tuple[int, int, int]]:
    """(thread, kind of wait, row of ``Polls`` or -1) of each link from the submitter down to the segment."""
    found: list[tuple[int, int, int]] = []
    link = int(scene.segments.link[segment])
    kinds = scene.links.of_slices(scene.evidence.slices["wait"], Wait.YIELD)
    while link >= 0 and len(found) < DEPTH:
        found.append((int(scene.links.thread[link]), int(kinds[link]), int(scene.links.poll[link])))
        link = int(scene.links.above[link])
    return found[::-1]


def _passes(scene: Scene, rows: Ints, thread: int) -> Ints:
    """Leaves whose chain goes through a wait of this thread."""
    links = scene.links
    through = links.thread == thread
    for _ in range(DEPTH):
        through = through | np.where(links.above >= 0, through[np.maximum(links.above, 0)], False)
    link = scene.segments.link[rows]
    passing: Ints = np.where(link >= 0, through[np.maximum(link, 0)], False)
    return passing


def _calls_text(scene: Scene, gaps: Ints) -> str:
    drained_by, refilled_by = (
        placed(scene, scene.gaps.drained_by[gaps]),
        placed(scene, scene.gaps.refilled_by[gaps]),
    )
    read = scene.gap_facts.read_row[gaps]
    if drained_by and (read >= 0).mean() > 0.5:
        copy = placed(scene, read)
        drained_by = drained_by if copy == drained_by else f"{copy} and {drained_by}"
    if not drained_by:
        return f"until {refilled_by or 'the next work'}"
    return f"from the return of {drained_by} to {refilled_by or 'the next work'}"


def _usual(scene: Scene, rows: Ints) -> str:
    """The most frequent function among calls."""
    rows = rows[rows >= 0]
    if not len(rows):
        return ""
    return scene.evidence.apis.name(int(np.argmax(np.bincount(scene.evidence.calls["op"][rows]))))


def usual_line(scene: Scene, rows: Ints) -> Line | None:
    """The line in whose calls of the most frequent function most time passes; None when it is not known."""
    calls = scene.evidence.calls
    rows = rows[rows >= 0]
    if not calls["stack"][rows].any():  # of ten million calls without lines none has to be sorted
        return None
    rows = distinct(rows)
    ops = calls["op"][rows]
    rows = rows[ops == np.argmax(np.bincount(ops))]
    return longest(scene.evidence, calls["stack"][rows], (calls["end"] - calls["begin"])[rows])


def placed(scene: Scene, rows: Ints) -> str:
    """The most frequent function among calls, with its line where that is known."""
    name = _usual(scene, rows)
    return _at(name, usual_line(scene, rows) if name else None)


def occupants(claim: Claim) -> str:
    """Who ran while the thread of a claim waited for a CPU, in words that an advice begins with."""
    shares = claim.scene.occupants(claim.segments)
    named = [f"{name} for {100 * share:.0f} % of that time" for name, share in shares[:_NAMED]]
    return f"preempted by {', '.join(named)}: " if named else ""


def occupants_of(claim: Claim) -> str:
    """`` (preempted by stress-ng (12) 80 %)``; "" where nobody ran on its CPU."""
    named = [f"{name} {100 * share:.0f} %" for name, share in claim.scene.occupants(claim.segments)[:_NAMED]]
    return f" (preempted by {', '.join(named)})" if named else ""


def usual_api(scene: Scene, rows: Ints) -> str:
    """The most frequent function among calls; rows of -1 do not count."""
    return _usual(scene, rows)


def _ids(scene: Scene, thread: int) -> tuple[int, int]:
    threads = scene.evidence.threads
    return (int(threads.pid[thread]), int(threads.tid[thread])) if thread >= 0 else (0, 0)


def _name(scene: Scene, thread: int) -> str:
    if thread < 0:
        return "a thread that is not watched"
    pid, tid = _ids(scene, thread)
    return (
        process_title(scene, pid)
        if pid == tid
        else f"{scene.evidence.facts.thread_name(tid)} ({tid} of {pid})"
    )

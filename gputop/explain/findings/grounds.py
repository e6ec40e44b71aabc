"""What speaks for a finding and what against others, in words; the calls and the line that it blames."""

from __future__ import annotations

import numpy as np

from gputop.engine.lines import Line
from gputop.explain.causes.cause import Cause, Claim, ends_of
from gputop.explain.chains.chain import State
from gputop.explain.chains.places import end_line, hot_line, line_shares, waiting_line
from gputop.explain.chains.traced_words import in_words, line_in
from gputop.explain.evidence.evidence import Column
from gputop.explain.evidence.ranges import Ints
from gputop.format import format_ns

_PART, _NAMED = 0.1, 4  # of a loss, for a line to be named; how many at most
_LINE = 0.2  # of a loss, for the line of a finding
EVENLY, RARE = (
    0.5,
    0.1,
)  # of a loss that lies in gaps of fewer than so many a step: it is no loss of each step
MOST = 0.95  # of a loss: the longest gaps that make up so much of it are told


def line_of(cause: Cause, claim: Claim) -> Line | None:
    """The line to look at: of the call that is blamed, or of what keeps the next one from being made."""
    scene, rows, line = claim.scene, np.flatnonzero(claim.segments), None
    if scene.analysis.traced is not None:
        return line_in(scene, rows)
    if (named := cause.at(claim)) is not None:
        return named
    if cause.culprit == "refilled_by" and (hot := hot_line(scene, rows)) is not None:
        line = hot.line
    if cause.culprit == "end":
        line = end_line(scene, ends_of(claim))
    if cause.culprit == "waiter" or (cause.culprit == "end" and line is None):
        line = waiting_line(scene, rows, scene.gaps.thread[scene.segments.gap[rows]])
    shares = _lines(cause, claim)
    return line or (shares[0][0] if shares and shares[0][1] >= _LINE else None)


def _lines(cause: Cause, claim: Claim) -> list[tuple[Line, float]]:
    """The lines of the calls that are blamed, with their parts of the loss, most first."""
    scene, calls = claim.scene, blamed(cause, claim)
    inside = cause.culprit == "inside"
    cost = scene.ns[claim.segments] if inside else scene.gap_ns(claim.segments)[claim.gaps]
    known = calls >= 0
    return line_shares(scene.evidence, scene.evidence.calls["stack"][calls[known]], cost[known])


_FAR = 2  # times the median


def blamed(cause: Cause, claim: Claim) -> Ints:
    """The calls that the cause blames; -1 where a gap has none."""
    scene, gaps = claim.scene, claim.gaps
    if cause.culprit == "refilled_by":
        return scene.gaps.refilled_by[gaps]
    if cause.culprit == "inside":
        return scene.segments.call[claim.segments]
    return scene.gaps.drained_by[gaps]


def grounds_of(cause: Cause, claim: Claim, per_gap: Ints, short_ns: int) -> tuple[str, ...]:
    """What speaks for a finding.

    Args:
        cause: Whose it is.
        claim: What it takes.
        per_gap: Of each of its gaps so many ns.
        short_ns: In shorter gaps, which are summed up.
    """
    return (
        *_gaps_text(claim, per_gap, short_ns),
        *_at_lines(cause, claim),
        *_within(claim),
        *_waited_for(claim),
        *cause.told(claim),
    )


def _gaps_text(claim: Claim, per_gap: Ints, short_ns: int) -> tuple[str, ...]:
    ordered = np.sort(per_gap)[::-1]
    # the many short ones that add up to nothing are not what it is about
    most = ordered[: int(np.searchsorted(np.cumsum(ordered), MOST * ordered.sum())) + 1]
    lengths = f"median {format_ns(float(np.median(most)))}, longest {format_ns(int(most[0]))}"
    few = len(most) < len(ordered)
    whole, apart = claim.ns + short_ns, short_ns > _PART * (claim.ns + short_ns)
    part = f"the {format_ns(claim.ns)} in the longest gaps" if apart else "it"
    facts = [
        f"{len(most)} of {len(ordered)} gaps account for {100 * MOST:.0f} % of {part}: {lengths}"
        if few
        else f"{len(most)} gaps: {lengths}"
    ]
    steps = claim.steps
    if steps is not None and steps.count:
        # a mean that is far from the median tells of none of them
        length = f" of {format_ns(steps.usual_ns)}" if steps.usual_ns <= _FAR * steps.median_ns else ""
        each = f"{length}, {format_ns(whole / steps.count)} lost in each"
        facts.append(
            f"{len(most) / steps.count:.1f} {'of these gaps per' if few else 'times a'} step; {steps.count} "
            f"steps{each if even(ordered, steps.count) else f', {format_ns(whole)} lost in all'}"
        )
    if apart:
        facts.append(f"the other {format_ns(short_ns)} lie in shorter gaps, which are summed up")
    return tuple(facts)


def even(longest_first: Ints, steps: int) -> bool:
    """Whether a loss by step tells of a step: not where few gaps, in fewer steps, make up most of it."""
    most = int(np.searchsorted(np.cumsum(longest_first), EVENLY * longest_first.sum())) + 1
    return most >= RARE * steps


def _within(claim: Claim) -> tuple[str, ...]:
    """The operators and ranges of an imported file in which it lies."""
    told = in_words(claim.scene, np.flatnonzero(claim.segments))
    return (f"the thread was {told}",) if told else ()


def _at_lines(cause: Cause, claim: Claim) -> tuple[str, ...]:
    """The lines among which a loss lies, where it is more than one."""
    parts = [(line, part) for line, part in _lines(cause, claim) if part >= _PART][:_NAMED]
    if len(parts) < 2:
        return ()
    return ("at " + ", ".join(f"{line.text()} {100 * part:.0f} %" for line, part in parts),)


def _waited_for(claim: Claim) -> tuple[str, ...]:
    """The files, sockets and pipes whose system calls most of a loss was spent in, where they are known."""
    scene, rows = claim.scene, np.flatnonzero(claim.segments & claim.scene.does(State.BLOCKED))
    rows = rows[scene.segments.slice[rows] >= 0]
    if not len(rows):
        return ()
    names = scene.evidence.files
    what = scene.evidence.slices["file"][scene.segments.slice[rows]]
    ns = np.bincount(what, weights=scene.ns[rows], minlength=len(names))
    parts = [(int(one), ns[one] / claim.ns) for one in np.argsort(-ns, kind="stable")[:_NAMED]]
    told = [
        f"{names[one].replace(':', ' ', 1)} {100 * part:.0f} %"
        for one, part in parts
        if one and part >= _PART
    ]
    return ("waited for " + ", ".join(told),) if told else ()


def ruled_out(claim: Claim) -> tuple[str, ...]:
    """What else these gaps hold, of the things that are often blamed."""
    scene = claim.scene
    if scene.unrecorded.any():  # what threads waited for is not in such a file
        return ()
    wanted = np.zeros(len(scene.gaps), np.bool_)
    wanted[claim.gaps] = True
    here = wanted[scene.segments.gap] & ~claim.segments
    total = int((scene.gaps.end - scene.gaps.begin)[claim.gaps].sum())
    state, ns = scene.segments.state, scene.ns

    def told(what: str, chosen: Column) -> str:
        part = int(ns[here & chosen].sum())
        return f"{what}: {format_ns(part) if part else '0'} of {format_ns(total)}"

    parts = []
    if not (claim.segments & scene.own & (state == State.QUEUED)).any():
        parts.append(told("waiting for a CPU", scene.own & (state == State.QUEUED)))
    if not (claim.segments & ~scene.own).any():
        parts.append(told("waiting for other threads", ~scene.own))
    if not (claim.segments & scene.own & (state == State.BLOCKED)).any():
        parts.append(told("blocked in the kernel", scene.own & (state == State.BLOCKED)))
    return tuple(parts)

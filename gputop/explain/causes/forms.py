"""The pattern of the calls that a claim is about, and the words that ``pytorch`` chooses by it."""

from __future__ import annotations

import numpy as np

from gputop.explain.causes.cause import Claim
from gputop.explain.chains.formwords import advice_of, title_of
from gputop.explain.chains.pytorch import Form, Pattern
from gputop.explain.evidence.apiclass import Role
from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.ranges import Ints
from gputop.explain.evidence.sourcetext import line_numbers, text_of
from gputop.format import format_bytes

MOST_PARTS = 8  # a step: more copies to the device are no batch


def title_for(claim: Claim, form: Form, pattern: Pattern) -> str:
    """The title of such a claim, by how often it is."""
    return title_of(form, pattern.often, torch=claim.torch)


def advice_for(claim: Claim, form: Form, pattern: Pattern) -> tuple[str, ...]:
    """What to change, with how much how often."""
    size, times = format_bytes(max(pattern.size, 0)), claim.per_step(pattern.count)
    return advice_of(form, size=size, times=times, torch=claim.torch)


def pattern_of(claim: Claim, rows: Ints, copies: Ints, *, to_host: bool = False) -> Pattern:
    """What is known of the line that costs most.

    Args:
        claim: What it is about.
        rows: For each of its gaps the call that the program made, -1 where there is none.
        copies: For each of its gaps the copy that went with it, -1 where there is none.
        to_host: The copies' direction.
    """
    scene, evidence, gaps = claim.scene, claim.scene.evidence, claim.scene.gaps
    calls = evidence.calls
    cost = scene.gap_ns(claim.segments)[claim.gaps]
    following = gaps.refilled_by[claim.gaps]
    both = np.maximum(np.append(rows, following), 0)
    lines = line_numbers(evidence, calls["stack"][both])
    lines[np.append(rows, following) < 0] = -1
    mine, after = lines[: len(rows)], lines[len(rows) :]
    chosen = np.ones(len(rows), np.bool_)
    if (mine >= 0).any():
        chosen = mine == np.argmax(np.bincount(mine[mine >= 0], weights=cost[mine >= 0]))
    copied = copies[chosen & (copies >= 0)]
    known = rows[chosen & (rows >= 0)]
    files, text = _source(evidence, known, cost[chosen & (rows >= 0)])
    called = np.unique(rows[rows >= 0])
    return Pattern(
        size=int(np.median(calls["bytes"][copied])) if len(copied) else -1,
        to_host=to_host,
        role=_usual_role(evidence, known),
        files=files,
        text=text,
        same_line=bool((mine[chosen] >= 0).any() and 2 * (mine == after)[chosen].mean() > 1),
        count=len(called) or len(claim.gaps),
        often=claim.often(called) if len(called) else claim.times,
    )


def _usual_role(evidence: Evidence, rows: Ints) -> Role:
    """The role of the most frequent function among calls."""
    if not len(rows):
        return Role.OTHER
    return Role(int(evidence.apis.role.take(np.argmax(np.bincount(evidence.calls["op"][rows])), mode="clip")))


def _source(evidence: Evidence, rows: Ints, cost: Ints) -> tuple[frozenset[str], str]:
    """(the files of the stack that costs most, the text of its line)."""
    if not len(rows):
        return frozenset(), ""
    stacks, which = np.unique(evidence.calls["stack"][rows], return_inverse=True)
    stack = int(stacks[np.argmax(np.bincount(which.reshape(-1), weights=cost))])
    line = evidence.facts.stacks.line(stack)
    files = frozenset(frame.file for frame in evidence.facts.stacks.frames(stack) if not frame.is_native)
    return files, text_of(evidence, line) if line is not None else ""

"""What an idle GPU waited for that is no loss of a loop: start-up, pauses, the first use of something."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gputop.explain.answer.report import Account, Event, OneOff
from gputop.explain.causes import CATALOGUE
from gputop.explain.chains.places import hot_line
from gputop.explain.chains.scene import Scene
from gputop.explain.findings.findings import Outcome

SHARE = 0.1  # of the idle time: what is less is not worth a word in the first line
STARTUP = "start-up and end"


def one_offs(
    scene: Scene, outcome: Outcome, accounts: Sequence[Account], events: Sequence[Event]
) -> tuple[OneOff, ...]:
    """The sums of what did not repeat, the largest first."""
    found = [OneOff(STARTUP, sum(one.outside_ns for one in accounts), 1)]
    sums: dict[str, tuple[int, int]] = {}
    for event in events:
        at = f" at {event.line.text()}" if event.line is not None else ""
        ns, count = sums.get(f"{event.title}{at}", (0, 0))
        sums[f"{event.title}{at}"] = ns + event.ns, count + 1
    found += [OneOff(what, ns, count) for what, (ns, count) in sums.items()]
    found += _small(scene, outcome, events)
    whole = sum(one.ns for one in found)
    return tuple(sorted((one for one in found if one.ns > SHARE * whole), key=lambda one: -one.ns))


def _small(scene: Scene, outcome: Outcome, events: Sequence[Event]) -> list[OneOff]:
    """By cause what is explained, but too rare or too little for a finding, less what events tell of it."""
    told = {finding.cause for finding in outcome.findings}
    found = []
    for row in np.unique(outcome.cause[outcome.cause >= 0]).tolist() if len(outcome.cause) else ():
        cause = CATALOGUE[row]
        if cause.number in told or not cause.fault:
            continue
        pieces = np.flatnonzero(outcome.cause == row)
        left = int(scene.ns[pieces].sum()) - sum(one.ns for one in events if one.cause == cause.number)
        hot = hot_line(scene, pieces)
        at = f" at {hot.line.text()}" if hot is not None else ""
        gaps = len(np.unique(scene.segments.gap[pieces]))
        if left > 0:
            found.append(OneOff(f"{cause.title}{at}", left, gaps))
    return found

"""What an idle GPU waited for that is no loss of a loop: start-up, pauses, the first use of something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gputop.explain.answer.report import Account, Event, Finding, OneOff
from gputop.explain.causes import CATALOGUE
from gputop.explain.chains.places import hot_line
from gputop.explain.chains.scene import Scene
from gputop.explain.findings.findings import Outcome

SHARE = 0.1  # of the idle time: what is less is not worth a word in the first line
STARTUP = "start-up and end"


Rows = Mapping[tuple[str, str], tuple[int, ...]]  # (cause, what) -> ns, how often


def rows_of(scene: Scene, outcome: Outcome) -> Rows:
    """What each cause took that is no finding here, less what events tell of it."""
    told = {finding.cause for finding in outcome.findings}
    found = {}
    for row in np.unique(outcome.cause[outcome.cause >= 0]).tolist() if len(outcome.cause) else ():
        cause = CATALOGUE[row]
        if cause.number in told or not cause.fault:
            continue
        pieces = np.flatnonzero(outcome.cause == row)
        left = int(scene.ns[pieces].sum()) - sum(
            one.ns for one in outcome.events if one.cause == cause.number
        )
        hot = hot_line(scene, pieces)
        at = f" at {hot.line.text()}" if hot is not None else ""
        if left > 0:
            found[cause.number, f"{cause.title}{at}"] = left, len(np.unique(scene.segments.gap[pieces]))
    return found


def one_offs(
    rows: Rows, findings: Sequence[Finding], accounts: Sequence[Account], events: Sequence[Event]
) -> tuple[OneOff, ...]:
    """The sums of what did not repeat, the largest first."""
    found = [OneOff(STARTUP, sum(one.outside_ns for one in accounts), 1)]
    sums: dict[str, tuple[int, int]] = {}
    for event in events:
        at = f" at {event.line.text()}" if event.line is not None else ""
        ns, count = sums.get(f"{event.title}{at}", (0, 0))
        sums[f"{event.title}{at}"] = ns + event.ns, count + 1
    found += [OneOff(what, ns, count) for what, (ns, count) in sums.items()]
    told = {finding.cause for finding in findings}
    found += [OneOff(what, ns, count) for (cause, what), (ns, count) in rows.items() if cause not in told]
    whole = sum(one.ns for one in found)
    return tuple(sorted((one for one in found if one.ns > SHARE * whole), key=lambda one: -one.ns))

"""A part of a long recording, explained with what its past and a little of its future say about it.

What came before is there as the few rows on which a proof may still rest (``proofs/retention.py``), as in the
window of a live explanation. What comes after is read until somebody calls again: a gap that is open at the
border ends there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gputop.engine.apart import apart
from gputop.engine.failed_calls import between
from gputop.explain.build import ledger_of
from gputop.explain.chains.scene import Scene
from gputop.explain.findings.findings import Outcome
from gputop.explain.ledger import Ledger
from gputop.explain.window import Window
from probes.source import MARK, Item, Sample

MOST_AHEAD = 40  # marks that are read beyond a part


@dataclass(frozen=True, slots=True)
class Carried:
    """What the part after a mark must know of the time before it.

    Attributes:
        window: The rows that proofs may rest on, who is who, what is open.
    """

    window: Stretch


class Stretch(Window):
    """Takes in one part as a whole: nothing of it is dropped."""

    def _shorten(self) -> None:
        """Nothing: the part was chosen so that it fits."""

    def carried(self) -> Carried:
        """At a mark: what the next part must know."""
        other = apart(self)
        other._fold(len(self._gatherer.ticks) - 1)
        return Carried(other)

    def fill(self, items: Iterable[Item]) -> None:
        """Takes a part in."""
        for item in items:
            self.feed(item)

    def look_ahead(self, items: Iterable[Item]) -> None:
        """Takes in what comes next, until somebody calls again or there are enough marks."""
        border, marks = self.end_ns, 0
        for item in items:
            self.feed(item)
            if isinstance(item, Sample) and item.kind == MARK:
                marks += 1
                fresh = any(
                    len(part) and int(part["begin"].max()) > border for part in self._gatherer.ticks[-2].calls
                )
                if fresh or marks == MOST_AHEAD:
                    return

    @property
    def last_ns(self) -> int:
        """The last that was observed: a mark, or a record behind it."""
        return self._gatherer.end_ns

    def part(
        self, until_ns: int, wanted: tuple[int, int] | None = None
    ) -> tuple[Ledger, Scene, Outcome] | None:
        """Explains from the border before up to a moment.

        Args:
            until_ns: The moment, CLOCK_MONOTONIC.
            wanted: Only what lies between these; None where nothing does.
        """
        evidence = self.evidence()
        low, high = wanted or (0, until_ns)
        low = max(self._start_ns or evidence.start_ns, self._folded_ns, low)
        high = min(until_ns, high)
        unkept = evidence.unkept
        if low >= high or ((unkept[0] <= low) & (unkept[1] >= high)).any():
            return None
        before = [count for mark, count in self._lost if mark <= low]
        upto = [count for mark, count in self._lost if mark <= high]
        lost = (upto[-1] if upto else 0) - (before[-1] if before else 0)
        evidence = replace(evidence, lost_events=lost)
        ledger, scene, outcome = ledger_of(evidence, None, (low, high), part=True)
        if wanted is not None:
            ledger = replace(ledger, failures=between(ledger.failures, ledger.start_ns, wanted))
        return ledger, scene, outcome

"""When the next explanation is due: by what the last one cost, so that all take a fixed share of a core."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from gputop.explain.fresh import Fresh, Whole
from gputop.explain.window import Verdict, Window

PERIOD_S = 0.7  # between two explanations, so that what repeats for the third time is told within a second
SHARE = 0.02  # of a core: an explanation that costs more comes less often
HURRIED_SHARE = 0.08  # while what is seen contradicts the explanation that is shown
LOOK_SHARE = 0.02  # of a core, of looks at what is newest
LONGEST_S = 0.7  # between two of them, so that a mark comes within a second
FIRST_NS, FIRST_SHARE = 5_000_000_000, 0.03  # while the GPU has worked for less than this there is most news


class Pace:
    """Says when the next whole explanation is due."""

    def __init__(self, share: float = SHARE, longest_s: float = math.inf) -> None:
        self._share, self._longest_s = share, longest_s
        self._began, self._wait_s = 0.0, 0.0

    @property
    def due(self) -> bool:
        """Whether enough time has passed."""
        return time.monotonic() >= self._began + self._wait_s

    @property
    def due_at_once(self) -> bool:
        """The same while what is seen contradicts what was explained: it may cost more then."""
        hurried = self._wait_s * self._share / HURRIED_SHARE
        return time.monotonic() >= self._began + max(hurried, PERIOD_S)

    def explain(self, make: Callable[[], Whole]) -> Whole:
        """Explains; the next is due the later, the more this one costs."""
        began, cpu = time.monotonic(), time.thread_time()
        made = make()
        first = made.verdict.report.span_ns < FIRST_NS
        share = self._share * (FIRST_SHARE / SHARE if first else 1)
        self._began, self._wait_s = (
            began,
            max(PERIOD_S, min((time.thread_time() - cpu) / share, self._longest_s)),
        )
        return made


class Looks:
    """Says when the next look at the newest time is due: as often as it can, and once a second at least."""

    def __init__(self) -> None:
        self._due = 0.0

    @property
    def due(self) -> bool:
        """Whether enough time has passed."""
        return time.monotonic() >= self._due

    def look(self, fresh: Fresh, window: Window) -> Verdict | None:
        """Looks; the next is due the later, the more this one costs."""
        began, cpu = time.monotonic(), time.thread_time()
        verdict = fresh.look(window)
        self._due = began + min((time.thread_time() - cpu) / LOOK_SHARE, LONGEST_S)
        return verdict

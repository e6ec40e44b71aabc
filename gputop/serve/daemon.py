"""The daemon's path of items: into ring, totals and explanation, and on to the clients."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from gputop.analysis.live import LiveExplainer
from gputop.analysis.window import SLACK_NS, WINDOW_NS
from gputop.serve.clients.owners import Owners
from gputop.serve.clients.showing import KnownAtMark, ShownTick
from gputop.serve.clients.user_view import ROOT
from gputop.serve.metrics.daemon_totals import DaemonTotals
from gputop.serve.rate_limit import RateLimiter
from probes.source import MARK, Item, Sample
from replay.past.history import History

_LOG = logging.getLogger(__name__)
LOOKING_UP: Final = (0.05, 0.5)  # CPU seconds for joining clients' facts, in a second, at once


class Daemon:
    """Consumes items; ``consume`` belongs to the observing thread.

    Attributes:
        history: The ring.
        totals: Counts since the start.
        owners: The user of each process.
        mark: The newest mark.
        requests_s: CPU time that clients have caused in this thread.
    """

    def __init__(
        self,
        header: Mapping[str, Any],
        history: History,
        explainer: LiveExplainer,
        *,
        joining: Callable[[], bool] = lambda: False,
        put: Callable[[ShownTick], None] = lambda tick: None,
        most_rows: int = 5_000,
    ) -> None:
        self.header = dict(header)
        self.history, self.explainer = history, explainer
        self.totals = DaemonTotals(int(header.get("start_ns", 0)), most_rows)
        self.owners = Owners()
        self.mark: Sample | None = None
        self._joining, self._put = joining, put
        self._looking_up = RateLimiter(*LOOKING_UP)
        self.requests_s = 0.0
        self._tick: list[Item] = []
        self._busy_ns = 0  # last activity of a program

    def consume(self, item: Item) -> bool:
        """Consume an item; True for a mark."""
        self.owners.consume(item)
        self.history.write(item)
        self.explainer.feed(item)
        sums = self.totals.consume(item)
        self._tick.append(item)
        if not isinstance(item, Sample) or item.kind != MARK:
            return False
        self.mark = item
        if sums is not None and sums.data["pid"]:
            self._busy_ns = item.time_ns
        self.explainer.resting = item.time_ns - self._busy_ns > WINDOW_NS + SLACK_NS
        if sums is not None:
            self._hand_over(sums)
        self.owners.bury()
        return True

    def _hand_over(self, sums: Sample) -> None:
        """At a mark: hand the tick to the clients, with all known facts if one of them joins."""
        items, self._tick = self._tick, []
        known: KnownAtMark | None = None
        if self._joining() and not self._looking_up.owed_s():
            begun_s = time.thread_time()
            with self.history.lock:
                known = KnownAtMark(self.history.facts(now=True), self.history.lost_now())
            cost_s = time.thread_time() - begun_s
            self._looking_up.spend(cost_s)
            self.requests_s += cost_s
        self._put(ShownTick(items, sums, known))

    def status(self, uid: int) -> dict[str, Any]:
        """Return the daemon's status for a user."""
        mark = self.mark.data if self.mark is not None else {}
        with self.totals.held:
            rows = self.totals.processes.items()
            mine = [row for pid, row in rows if uid == ROOT or self.owners.of(pid) == uid]
            calls = sum(call.count for row in mine for call in row.calls.values())
        return {
            "since_ns": int(self.header.get("start_ns", 0)),
            "now_ns": time.monotonic_ns(),
            "marks": int(mark.get("number", 0)),
            "mark_ns": self.mark.time_ns if self.mark is not None else 0,
            "lost": dict(mark.get("lost", {})),
            "own_cpu_percent": mark.get("own_cpu_percent"),
            "own_rss_bytes": mark.get("own_rss_bytes"),
            "calls": calls,
            "history_bytes": self.history.size_bytes,
            "history_ns": self.history.span_ns,
        }

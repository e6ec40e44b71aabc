"""The daemon's one path of items: into the ring, the totals, the explanation, and to whoever follows."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from gputop.explain.live import LiveExplainer
from gputop.explain.window import SLACK_NS, WINDOW_NS
from gputop.serve import wire
from gputop.serve.owners import Owners
from gputop.serve.totals import Totals
from gputop.serve.view import ROOT, View
from probes.source import MARK, Item, Sample
from replay.chunker import Chunker
from replay.history import History, cut_header

_LOG = logging.getLogger(__name__)
Publish = Callable[[int, list[bytes], Callable[[], Iterable[bytes]]], None]


class Shown:
    """What one user is shown, packed once for all of the user's clients."""

    def __init__(self, uid: int, owners: Owners) -> None:
        """Start at a mark."""
        self.view = View(uid, owners)
        self._chunks: list[bytes] = []
        self._chunker = Chunker(lambda kind, first, last, count, chunk: self._chunks.append(chunk))

    def messages(self, items: Iterable[Item], known: Iterable[Sample] = ()) -> list[bytes]:
        """A tick as messages, and what the user may see as it is."""
        for item in (*self.view.items(items), *known):
            self._chunker.write(item)
        self._chunker.flush()
        chunks, self._chunks = self._chunks, []
        return list(wire.messages_of(chunks))


class Daemon:
    """Takes items in; ``take`` belongs to the thread that observes.

    Attributes:
        history: The ring.
        totals: Counts since the start.
        owners: Whose each process is.
        mark: The newest mark.
    """

    def __init__(
        self,
        header: Mapping[str, Any],
        history: History,
        explainer: LiveExplainer,
        *,
        followers: Callable[[], set[int]] = set,
        publish: Publish = lambda uid, messages, first: None,
        most_rows: int = 5_000,
    ) -> None:
        """Start at the session's start.

        Args:
            header: Of the source.
            history: Empty.
            explainer: Started; says what is found.
            followers: The users who are shown what is observed.
            publish: Hands them a tick.
            most_rows: Of ``Totals``.
        """
        self.header = dict(header)
        self.history, self.explainer = history, explainer
        self.totals = Totals(int(header.get("start_ns", 0)), most_rows)
        self.owners = Owners()
        self.mark: Sample | None = None
        self._followers, self._publish = followers, publish
        self._shown: dict[int, Shown] = {}
        self._tick: list[Item] = []
        self._busy_ns = 0  # when something was last seen of a program

    def take(self, item: Item) -> bool:
        """Takes one item in; True when it was a mark."""
        self.owners.take(item)
        self.history.write(item)
        self.explainer.feed(item)
        sums = self.totals.take(item)
        if self._shown:
            self._tick.append(item)
        if not isinstance(item, Sample) or item.kind != MARK:
            return False
        self.mark = item
        if sums is not None and sums.data["pid"]:
            self._busy_ns = item.time_ns
        self.explainer.resting = item.time_ns - self._busy_ns > WINDOW_NS + SLACK_NS
        if sums is not None:
            self._show(sums)
        self.owners.bury()
        return True

    def _show(self, sums: Sample) -> None:
        """At a mark: hands the tick to those who follow."""
        followers = self._followers()
        tick, self._tick = self._tick, []
        for uid in list(self._shown):
            if uid not in followers:
                del self._shown[uid]
        for uid in followers:
            known = uid in self._shown
            shown = self._shown.setdefault(uid, Shown(uid, self.owners))
            # the mark closes the tick: what others did stands before it
            items = [*tick[:-1], *self._others(uid, sums), tick[-1]] if known and tick else []
            self._publish(uid, shown.messages(items), partial(self._first, uid))

    def _others(self, uid: int, sums: Sample) -> list[Sample]:
        """What is told of processes that are not the user's."""
        pids = sums.data["pid"]
        rows = [row for row, pid in enumerate(pids) if uid != ROOT and self.owners.of(pid) != uid]
        if not rows:
            return []
        data = {key: [values[row] for row in rows] for key, values in sums.data.items()}
        return [Sample(sums.kind, sums.time_ns, data)]

    def _first(self, uid: int) -> Iterable[bytes]:
        """What a client is told before its first tick: the header, and what is known."""
        history, shown = self.history, Shown(uid, self.owners)
        with history.lock:
            facts, lost, now = history.facts(now=True), history.lost_now(), history.end_ns
        header = shown.view.header(cut_header(self.header, now, lost))
        yield wire.packed({"k": "header", "data": header})
        known = [] if uid == ROOT else [self._shown[uid].view.known_shapes(now)]
        yield from shown.messages(facts.samples(now), known)

    def status(self, uid: int) -> dict[str, Any]:
        """What a user is told of the daemon."""
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

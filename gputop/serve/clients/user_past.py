"""The past in the daemon's ring as one user may see it, for `gputop dump` and kept sessions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gputop.analysis.live import LiveExplainer
from gputop.serve.clients.owners import Owners
from gputop.serve.clients.user_view import UserView
from probes.source import MARK, Item, Sample
from replay.items import FACTS
from replay.past.history import History, cut_header
from replay.past.history_reader import HistoryReader
from replay.state_snapshot import FactBook


class Past:
    """A stretch of the ring as a session of its own."""

    def __init__(
        self, history: History, explainer: LiveExplainer, uid: int, start_ns: int, end_ns: int | None = None
    ) -> None:
        self._reader = HistoryReader(history)
        marks = self._reader.marks
        known = [(at, window) for at, window in explainer.checkpoints if at <= start_ns and at in marks]
        self._first = int(np.searchsorted(marks, known[-1][0])) if known else -1
        self._before = known[-1][1].before() if known else []
        last = len(marks) if end_ns is None else int(np.searchsorted(marks, end_ns, side="left")) + 1
        self._last = min(last, len(marks)) - 1
        self._owners = Owners()
        self._view = UserView(uid, self._owners)
        self._whole = self._reader.header
        # its start mark
        self.start_ns = (
            int(marks[self._first]) if self._first >= 0 else int(history.header.get("start_ns", 0))
        )
        self.header: dict[str, Any] = {}  # header of that session, once the first item is there

    def items(self) -> Iterator[Item]:
        """Yield the items: at least a mark, or none."""
        if self._last <= self._first:
            return
        facts, lost = self._facts()
        whole = self._first < 0
        header = self._whole if whole else cut_header(self._whole, self.start_ns, lost)
        self.header = self._view.header(header)
        for sample in (*facts.samples(self.start_ns), *self._before):
            yield from self._view.sample(sample)
        tick: list[Item] = []
        for item in self._reader.items_between(self._first, self._last):
            self._owners.consume(item)
            tick.append(item)
            if isinstance(item, Sample) and item.kind == MARK:
                yield from self._view.items(tick)
                self._owners.bury()
                tick = []

    def _facts(self) -> tuple[FactBook, dict[str, int]]:
        """Facts and lost events before the stretch."""
        facts = FactBook()
        lost: dict[str, int] = {}
        if self._first < 0:
            return facts, lost
        for item in self._reader.items_until(self._first, 1 << 62, 1 << 62):
            if not isinstance(item, Sample):
                continue
            if item.kind in FACTS:
                facts.consume(item)
            elif item.kind == MARK:
                lost = dict(item.data.get("lost", {}))
        for sample in facts.samples(self.start_ns):
            self._owners.consume(sample)
        return facts, lost

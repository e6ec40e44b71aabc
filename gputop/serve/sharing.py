"""Shares one observing process among several screens of its user, each with its own pause and position."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

from gputop.serve.clients.hub import Hub
from gputop.serve.clients.showing import KnownAtMark, Showing, ShownTick
from probes.source import MARK, OTHERS, Item, Sample
from replay.state_snapshot import FactBook


class Sharing:
    """Consumes items; followers at the socket receive all of them, as root does from the daemon."""

    def __init__(self, header: Mapping[str, Any], listener: socket.socket) -> None:
        self._hub = Hub(listener, lambda _uid: {}, {}, sees_all=os.geteuid())
        self._showing = Showing(header, self._hub)
        self._facts = FactBook()
        self._tick: list[Item] = []

    def start(self) -> None:
        self._hub.start()
        self._showing.start()

    def consume(self, item: Item) -> None:
        """Consume an item; a mark publishes all items since the last one."""
        self._tick.append(item)
        if not isinstance(item, Sample):
            return
        self._facts.consume(item)
        if item.kind != MARK:
            return
        known: KnownAtMark | None = None
        if self._hub.is_joined():
            facts = FactBook()
            facts.absorb(self._facts)  # shown in another thread, while more comes here
            known = KnownAtMark(facts, dict(item.data.get("lost", {})))
        items, self._tick = self._tick, []
        self._showing.put(ShownTick(items, Sample(OTHERS, item.time_ns, {"pid": []}), known))

    def close(self, why: str) -> None:
        """End; clients receive the reason."""
        self._showing.close()
        self._hub.close(why)

"""Shows each tick to the following clients, in a thread of its own.

A tick is packed once for all clients of a user, the known facts once for all that join at a mark. The CPU
time is bounded: users with the least share come first, and clients that were skipped are notified.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gputop.serve.clients import wire
from gputop.serve.clients.owners import Owners
from gputop.serve.clients.user_view import ROOT, UserView
from gputop.serve.rate_limit import RateLimiter, thread_cpu_s
from probes.source import Item, Sample
from replay.coding.chunker import Chunker
from replay.past.history import cut_header
from replay.state_snapshot import FactBook

_LOG = logging.getLogger(__name__)
FOLLOWING: Final = (0.3, 3.0)  # CPU seconds of all users but root, in a second, and at once
BEHIND: Final = 3  # ticks that may wait; of more only the last ones are shown
MOST_BEHIND: Final = 64  # ticks to hold if showing hangs; the oldest are dropped
_FORGETS: Final = 0.8  # factor by which a user's cost decays in a tick


class Followers(Protocol):
    """The part of the hub that receives ticks."""

    def followers(self) -> Mapping[int, int]:
        """Return the users with following clients, each with its account."""

    def joining(self, uid: int) -> bool:
        """True if a client of a user needs the known facts and has room for them."""

    def publish(self, uid: int, messages: list[bytes], first: list[bytes]) -> None:
        """Hand a tick to a user's clients, and the known facts to joining ones (empty: none can join)."""

    def leave_out(self, uid: int) -> None:
        """Skip a tick for a user: each client must receive the known facts anew."""


@dataclass(frozen=True, slots=True)
class KnownAtMark:
    """The known facts at a mark."""

    facts: FactBook
    lost: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ShownTick:
    """Items from one mark to the next."""

    items: list[Item]  # the last one is the mark
    sums: Sample  # sums of each process
    known: KnownAtMark | None  # known facts at the mark; None: no client needed them

    @property
    def end_ns(self) -> int:
        return self.sums.time_ns


class Shown:
    """The stream of one user, packed once for all of the user's clients."""

    def __init__(self, uid: int, owners: Owners) -> None:
        self.view = UserView(uid, owners)
        self._chunks: list[bytes] = []
        self._chunker = Chunker(lambda kind, first, last, count, chunk: self._chunks.append(chunk))

    def messages(self, items: Iterable[Item], known: Iterable[Sample] = ()) -> list[bytes]:
        """Return a tick as messages, followed by facts that the user may see as they are."""
        for item in (*self.view.items(items), *known):
            self._chunker.write(item)
        self._chunker.flush()
        chunks, self._chunks = self._chunks, []
        return list(wire.messages_of(chunks))


class Showing:
    """``put`` belongs to the observing thread, the rest to its own."""

    def __init__(
        self, header: Mapping[str, Any], followers: Followers, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._header, self._hub = dict(header), followers
        self.owners = Owners()  # at the end of the shown tick, however long ago
        self._shown: dict[int, Shown] = {}
        self._costs: dict[int, float] = {}  # recent, by account
        self._pace = RateLimiter(*FOLLOWING, clock)
        self.ticks: deque[ShownTick] = deque()
        self._dropped = self._forgot = False
        self._come = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="gputop-showing", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, tick: ShownTick) -> None:
        """Hand a tick over; return at once."""
        with self._come:
            if len(self.ticks) >= MOST_BEHIND:
                self.ticks.popleft()
                self._dropped = True
            self.ticks.append(tick)
            self._come.notify()

    def close(self) -> None:
        """End; pending ticks are not shown."""
        with self._come:
            self._closed = True
            self._come.notify()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def spent_s(self) -> float:
        """CPU time of the thread."""
        return thread_cpu_s(self._thread)

    def _run(self) -> None:
        while True:
            with self._come:
                while not self.ticks and not self._closed:
                    self._come.wait()
                if self._closed:
                    return
                ticks, dropped = list(self.ticks), self._dropped
                self.ticks.clear()
                self._dropped = False
            if dropped:  # owners may have changed: the next known facts restore them
                self.owners, self._shown, self._forgot = Owners(), {}, True
            for place, tick in enumerate(ticks):
                try:
                    self.show(tick, late=len(ticks) - place > BEHIND)
                except Exception:  # the next one may be shown; else all clients would hang without a word
                    _LOG.exception("a tick cannot be shown")

    def show(self, tick: ShownTick, *, late: bool = False) -> None:
        """Show a tick.

        Args:
            tick: The next one.
            late: Skip it for all clients, since more wait behind it.
        """
        known = list(tick.known.facts.samples(tick.end_ns)) if tick.known is not None else []
        for item in (*tick.items, *(known if self._forgot else ())):
            self.owners.consume(item)
        self._forgot = self._forgot and not known
        followers = self._hub.followers()
        for uid in list(self._shown):
            if uid not in followers:
                del self._shown[uid]
        accounts = set(followers.values())
        self._costs = {one: cost * _FORGETS for one, cost in self._costs.items() if one in accounts}
        for uid in sorted(followers, key=lambda uid: (uid != ROOT, self._costs.get(followers[uid], 0.0))):
            if late or (uid != ROOT and self._pace.owed_s()):
                self._shown.pop(uid, None)
                self._hub.leave_out(uid)
                continue
            begun_s = time.thread_time()
            self.show_to(uid, tick, known)
            if uid != ROOT:
                cost_s = time.thread_time() - begun_s
                self._costs[followers[uid]] = self._costs.get(followers[uid], 0.0) + cost_s
                self._pace.spend(cost_s)
        self.owners.bury()

    def show_to(self, uid: int, tick: ShownTick, known: list[Sample]) -> None:
        items: list[Item] = []
        if uid in self._shown:
            # the mark closes the tick: sums of others precede it
            items = [*tick.items[:-1], *self._others(uid, tick.sums), tick.items[-1]]
        shown = self._shown.setdefault(uid, Shown(uid, self.owners))
        messages = shown.messages(items)
        joins = tick.known is not None and self._hub.joining(uid)
        self._hub.publish(uid, messages, self._first(uid, tick, known) if joins else [])

    def _others(self, uid: int, sums: Sample) -> list[Sample]:
        """Sums of processes of other users."""
        pids = sums.data["pid"]
        rows = [row for row, pid in enumerate(pids) if uid != ROOT and self.owners.of(pid) != uid]
        if not rows:
            return []
        data = {key: [values[row] for row in rows] for key, values in sums.data.items()}
        return [Sample(sums.kind, sums.time_ns, data)]

    def _first(self, uid: int, tick: ShownTick, known: list[Sample]) -> list[bytes]:
        """Messages before a client's first tick: the header, and the known facts."""
        assert tick.known is not None
        shown, now = Shown(uid, self.owners), tick.end_ns
        header = shown.view.header(cut_header(self._header, now, tick.known.lost))
        shapes = [] if uid == ROOT else [self._shown[uid].view.known_shapes(now)]
        return [wire.packed({"k": "header", "data": header}), *shown.messages(known, shapes)]

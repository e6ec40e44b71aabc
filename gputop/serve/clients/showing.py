"""Shows each tick to those who follow, in a thread of its own: who observes hands a tick over and goes on.

A tick is packed once for all clients of a user, what is known at its mark made once for all who join at it.
What this may cost is bounded: those whose share was least are served first, and who comes too late is told
that ticks were left out.
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
FOLLOWING: Final = (0.3, 3.0)  # CPU seconds of all who are not root, in a second, and at once
BEHIND: Final = 3  # ticks that may wait; of more the last ones are shown
MOST_BEHIND: Final = 64  # that are kept; where showing hangs for longer, the oldest are dropped
_FORGETS: Final = 0.8  # a tick, of what showing to a user has cost


class Followers(Protocol):
    """The hub, as a tick is handed to it."""

    def followers(self) -> Mapping[int, int]:
        """The users who are shown what is observed or want to be, each with who answers for that user."""

    def joining(self, uid: int) -> bool:
        """True if a client of a user must receive what is known first, and can."""

    def publish(self, uid: int, messages: list[bytes], first: list[bytes]) -> None:
        """Hands a tick to a user's clients; to who joins, what is known (empty: no client can join now)."""

    def leave_out(self, uid: int) -> None:
        """A tick is not shown to a user: each client must receive anew what is known."""


@dataclass(frozen=True, slots=True)
class KnownAtMark:
    """What is known at a mark."""

    facts: FactBook
    lost: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ShownTick:
    """What was observed from one mark to the next.

    Attributes:
        items: The last one is the mark.
        sums: What each process did.
        known: At the mark; None: no client needed it.
    """

    items: list[Item]
    sums: Sample
    known: KnownAtMark | None

    @property
    def end_ns(self) -> int:
        return self.sums.time_ns


class Shown:
    """What one user is shown, packed once for all of the user's clients."""

    def __init__(self, uid: int, owners: Owners) -> None:
        self.view = UserView(uid, owners)
        self._chunks: list[bytes] = []
        self._chunker = Chunker(lambda kind, first, last, count, chunk: self._chunks.append(chunk))

    def messages(self, items: Iterable[Item], known: Iterable[Sample] = ()) -> list[bytes]:
        """A tick as messages, and what the user may see as it is."""
        for item in (*self.view.items(items), *known):
            self._chunker.write(item)
        self._chunker.flush()
        chunks, self._chunks = self._chunks, []
        return list(wire.messages_of(chunks))


class Showing:
    """``put`` belongs to the thread that observes, the rest to its own."""

    def __init__(
        self, header: Mapping[str, Any], followers: Followers, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._header, self._hub = dict(header), followers
        self.owners = Owners()  # as they were when a tick ended, however long ago that is
        self._shown: dict[int, Shown] = {}
        self._costs: dict[int, float] = {}  # of those who answer for users, lately
        self._pace = RateLimiter(*FOLLOWING, clock)
        self.ticks: deque[ShownTick] = deque()
        self._dropped = self._forgot = False
        self._come = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="gputop-showing", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, tick: ShownTick) -> None:
        """Hands a tick over; returns at once."""
        with self._come:
            if len(self.ticks) >= MOST_BEHIND:
                self.ticks.popleft()
                self._dropped = True
            self.ticks.append(tick)
            self._come.notify()

    def close(self) -> None:
        """Ends; what waits is not shown."""
        with self._come:
            self._closed = True
            self._come.notify()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def spent_s(self) -> float:
        """CPU time that it has cost."""
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
            if dropped:  # whose a process is may have changed; what is known at a mark says it anew
                self.owners, self._shown, self._forgot = Owners(), {}, True
            for place, tick in enumerate(ticks):
                try:
                    self.show(tick, late=len(ticks) - place > BEHIND)
                except Exception:  # the next one may be shown; else all clients would hang without a word
                    _LOG.exception("a tick cannot be shown")

    def show(self, tick: ShownTick, *, late: bool = False) -> None:
        """Shows a tick.

        Args:
            tick: The next one.
            late: No client receives it, since more wait behind it.
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
            # the mark closes the tick: what others did stands before it
            items = [*tick.items[:-1], *self._others(uid, tick.sums), tick.items[-1]]
        shown = self._shown.setdefault(uid, Shown(uid, self.owners))
        messages = shown.messages(items)
        joins = tick.known is not None and self._hub.joining(uid)
        self._hub.publish(uid, messages, self._first(uid, tick, known) if joins else [])

    def _others(self, uid: int, sums: Sample) -> list[Sample]:
        """What is reported of processes that are not the user's."""
        pids = sums.data["pid"]
        rows = [row for row, pid in enumerate(pids) if uid != ROOT and self.owners.of(pid) != uid]
        if not rows:
            return []
        data = {key: [values[row] for row in rows] for key, values in sums.data.items()}
        return [Sample(sums.kind, sums.time_ns, data)]

    def _first(self, uid: int, tick: ShownTick, known: list[Sample]) -> list[bytes]:
        """What a client receives before its first tick: the header, and what is known."""
        assert tick.known is not None
        shown, now = Shown(uid, self.owners), tick.end_ns
        header = shown.view.header(cut_header(self._header, now, tick.known.lost))
        shapes = [] if uid == ROOT else [self._shown[uid].view.known_shapes(now)]
        return [wire.packed({"k": "header", "data": header}), *shown.messages(known, shapes)]

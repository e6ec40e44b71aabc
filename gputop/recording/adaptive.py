"""The records that ``--detail`` writes: all, those around events, or none; sums of the others.

The last seconds are held in a ring. A tick that leaves it is written whole near an event: a finding that is
new or was not written for a minute, a call far longer than usual for its function, a marker of the user, the
start and end. Other ticks become sums (tick_sums.py).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from gputop.analysis.window import Verdict
from gputop.recording.outliers import Outliers
from gputop.recording.tick_sums import Reducer, copied
from probes.source import MARK, MARKER, Item, Sample

BEFORE_NS: Final = 5_000_000_000  # written before an event
AFTER_NS: Final = 2_000_000_000
FIRST_NS: Final = 10_000_000_000  # written whole at the start
AGAIN_NS: Final = 60_000_000_000  # until a continuing finding is written whole again
MOST_BYTES: Final = 64 << 20  # of records in the ring: it is shorter at higher rates
SHARE: Final = 0.1  # of the time, written whole because of long calls
CREDIT_NS: Final = 21_000_000_000  # of that time at first, and at most


class Explains(Protocol):
    """Explains the items in the background: ``LiveExplainer``."""

    @property
    def verdict(self) -> Verdict | None:
        """The newest explanation."""

    def feed(self, item: Item) -> None:
        """Enqueue an item; returns at once."""


class RecordingDetail(Protocol):
    """Consumes observed items and yields the items to write."""

    def consume(self, item: Item) -> Iterator[Item]:
        """Consume an item; yield the items to write now."""

    def finish(self) -> Iterator[Item]:
        """Yield the rest."""

    def omission(self) -> str:
        """Describe what was not written whole; "" if all was."""


@dataclass(slots=True)
class _Tick:
    items: list[Item] = field(default_factory=list)
    size: int = 0  # of its records, in bytes
    mark_ns: int = 0
    begin_ns: int = 0
    kept: bool = False


class SumsOnly:
    """Writes sums only."""

    def __init__(self, start_ns: int) -> None:
        self._reducer = Reducer(start_ns)
        self._items: list[Item] = []

    def consume(self, item: Item) -> Iterator[Item]:
        self._items.append(item if isinstance(item, Sample) else copied(item))
        if isinstance(item, Sample) and item.kind == MARK:
            items, self._items = self._items, []
            yield from self._reducer.reduced(items)

    def finish(self) -> Iterator[Item]:
        if self._items:
            yield from self._reducer.reduced(self._items)

    def omission(self) -> str:
        return "sums and histograms only"


class Adaptive:
    """Writes all records around events, and sums of the rest."""

    def __init__(self, start_ns: int, explains: Explains | None = None) -> None:
        self.reasons: Counter[str] = Counter()  # number of events by reason
        self._start_ns, self._explains = start_ns, explains
        self._reducer, self._outliers = Reducer(start_ns), Outliers()
        self._ring: deque[_Tick] = deque()
        self._now = _Tick(begin_ns=start_ns)
        self._size = 0
        self._keep_until = start_ns + FIRST_NS
        self._credit_ns = float(CREDIT_NS)
        self._findings: dict[tuple[str, int], int] = {}  # when each was written last
        self._seen_ns = 0  # of the newest explanation
        self._wanted = ""
        self._kept_ns = self._whole_ns = 0

    def consume(self, item: Item) -> Iterator[Item]:
        if not isinstance(item, Sample):
            item = copied(item)
            self._now.size += item.nbytes
            if not self._wanted and self._outliers.among(item):
                self._wanted = "a call far longer than usual"
        elif item.kind == MARKER:
            self._wanted = "a marker"
        self._now.items.append(item)
        if self._explains is not None:
            self._explains.feed(item)
        if isinstance(item, Sample) and item.kind == MARK:
            self._close(item.time_ns)
            yield from self._oldest(item.time_ns)

    def finish(self) -> Iterator[Item]:
        """See ``RecordingDetail``: the end of a session is written whole, as its start is."""
        if self._now.items:
            self._ring.append(self._now)
            self._now = _Tick()
        for tick in self._ring:
            tick.kept = True
        while self._ring:
            yield from self._emit(self._ring.popleft())

    def omission(self) -> str:
        if self._kept_ns == self._whole_ns:
            return ""
        why = ", ".join(f"{reason} ({count})" for reason, count in self.reasons.most_common())
        return (
            f"every record of {self._kept_ns / 1e9:.0f} s of {self._whole_ns / 1e9:.0f} s, sums of the rest"
            + (f"; because of {why}" if why else "")
        )

    def _close(self, mark_ns: int) -> None:
        tick = self._now
        tick.mark_ns = mark_ns
        self._credit_ns = min(self._credit_ns + SHARE * (mark_ns - tick.begin_ns), CREDIT_NS)
        self._ring.append(tick)
        self._size += tick.size
        self._now = _Tick(begin_ns=mark_ns)
        reason, self._wanted = self._found(mark_ns) or self._wanted, ""
        if reason and (reason.startswith("C") or self._affords(mark_ns)):
            self.reasons[reason] += 1
            self._keep_until = max(self._keep_until, mark_ns + AFTER_NS)
            for one in self._ring:
                one.kept |= one.mark_ns > mark_ns - BEFORE_NS
        tick.kept |= tick.begin_ns < self._keep_until

    def _affords(self, mark_ns: int) -> bool:
        """True if the time written whole for long calls stays within its share."""
        if mark_ns <= self._keep_until - AFTER_NS:
            return True  # written whole already
        cost = BEFORE_NS + AFTER_NS
        if self._credit_ns < cost:
            return False
        self._credit_ns -= cost
        return True

    def _found(self, mark_ns: int) -> str:
        """The finding for which the last seconds are to be written; "" for none."""
        verdict = self._explains.verdict if self._explains is not None else None
        if verdict is None or verdict.end_ns <= self._seen_ns:
            return ""
        self._seen_ns = verdict.end_ns
        reason = ""
        for finding in verdict.report.findings:
            key = (finding.cause, finding.pid)
            if key not in self._findings or mark_ns - self._findings[key] >= AGAIN_NS:
                reason = reason or finding.cause
                self._findings[key] = mark_ns
        return reason

    def _oldest(self, now_ns: int) -> Iterator[Item]:
        while self._ring and (
            self._ring[0].mark_ns <= now_ns - BEFORE_NS or (self._size > MOST_BYTES and len(self._ring) > 1)
        ):
            yield from self._emit(self._ring.popleft())

    def _emit(self, tick: _Tick) -> Iterator[Item]:
        self._size -= tick.size
        length = max(tick.mark_ns - tick.begin_ns, 0)
        self._whole_ns += length
        if tick.kept:
            self._kept_ns += length
            yield from self._reducer.whole(tick.items)
        else:
            yield from self._reducer.reduced(tick.items)

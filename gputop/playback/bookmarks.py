"""Landmarks of a session: findings, losses and the user's markers."""

from __future__ import annotations

import threading
from bisect import insort
from dataclasses import dataclass
from typing import TYPE_CHECKING

from probes.samples import lost_until, text_of
from probes.source import MARKER, Sample

if TYPE_CHECKING:
    from gputop.analysis.window import Verdict

FINDING, LOSS, MARKED = "finding", "loss", "marker"
MOST = 4_000  # more than any screen can distinguish
_AWAY_NS = 15_000_000_000  # a finding that was absent for so long is a new landmark
_SILENCE_NS = 2_000_000_000  # without a mark for so long, nothing was recorded
_AFTER_NS = 300_000_000  # a frame shows what came before it


@dataclass(frozen=True, slots=True, order=True)
class Landmark:
    """A moment, CLOCK_MONOTONIC, at or shortly before the first frame that shows it."""

    time_ns: int
    kind: str
    text: str


class Landmarks:
    """The landmarks of a session, thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: list[Landmark] = []
        self._added_ns: dict[tuple[str, int], int] = {}
        self._events: set[int] = set()
        self._lost: int | None = None
        self._mark_ns = 0

    def since(self, start_ns: int) -> tuple[Landmark, ...]:
        """Return those at or after a moment, in order."""
        with self._lock:
            return tuple(landmark for landmark in self._all if landmark.time_ns >= start_ns)

    def add(self, time_ns: int, kind: str, text: str) -> None:
        """Add one; the oldest of more than ``MOST`` is dropped."""
        with self._lock:
            insort(self._all, Landmark(time_ns, kind, text))
            del self._all[:-MOST]

    def consume_mark(self, mark: Sample) -> None:
        """Add a landmark if events were lost before a mark, or nothing was recorded for a while."""
        time_ns, lost = mark.time_ns, sum(lost_until(mark).values())
        if self._lost is not None and lost > self._lost:
            self.add(time_ns, LOSS, f"{lost - self._lost} events lost")
        elif self._mark_ns and time_ns - self._mark_ns > _SILENCE_NS:
            self.add(time_ns, LOSS, f"nothing recorded for {(time_ns - self._mark_ns) / 1e9:.1f} s")
        self._lost, self._mark_ns = lost, time_ns

    def consume_marker(self, sample: Sample) -> None:
        """Add a marker of the user."""
        self.add(sample.time_ns, MARKED, text_of(sample))

    def consume_verdict(self, verdict: Verdict) -> None:
        """Add findings that are new, or back after a while; verdicts come in the order of time."""
        for finding in verdict.report.findings:
            key = (finding.cause, finding.pid)
            if verdict.end_ns - self._added_ns.get(key, -_AWAY_NS) >= _AWAY_NS:
                self.add(verdict.end_ns, FINDING, f"{finding.cause} {finding.title}")
            self._added_ns[key] = verdict.end_ns
        for event in verdict.report.events:
            at = verdict.start_ns + event.time_ns + event.ns
            if at not in self._events:
                self._events.add(at)
                self.add(at + _AFTER_NS, FINDING, f"{event.cause} {event.title}")


def marker(time_ns: int, text: str) -> Sample:
    """Return a marker as it is recorded."""
    return Sample(MARKER, time_ns, {"text": text})

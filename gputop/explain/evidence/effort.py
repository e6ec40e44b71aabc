"""How much of a long stretch is looked at closely: what a file is worth, or what a live screen can afford."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """Bounds of what is done to estimate and to replay; beyond them samples stand for the whole.

    Attributes:
        operations: By so many of a queue durations are found, and by so many they are learned.
        gaps: So many estimated gaps are followed one by one, the longest.
        waits: So many waits of a program are run again, from the middle: a loop repeats itself.
    """

    operations: int
    gaps: int
    waits: int


WHOLE = Effort(operations=300_000, gaps=20_000, waits=1_500)
LIVE = Effort(operations=120_000, gaps=5_000, waits=1_500)

"""Causes in families: what a lane of the timeline can tell apart by one letter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gputop.explain.causes.registry import every, in_order
from gputop.explain.evidence.ranges import Ints


@dataclass(frozen=True, slots=True)
class Family:
    """Causes that a person changes in the same place.

    Attributes:
        letter: Its sign, a capital.
        word: What the GPU waits for, in a word or two.
    """

    letter: str
    word: str

    @property
    def causes(self) -> frozenset[str]:
        """Their numbers."""
        return frozenset(cause.number for cause in every() if cause.family == self.letter)


FAMILIES: tuple[Family, ...] = (
    Family("S", "sync"),
    Family("D", "data"),
    Family("C", "copy"),
    Family("H", "launches"),
    Family("P", "no CPU"),
    Family("L", "lock"),
    Family("K", "disk, net, pages"),
    Family("A", "alloc, load"),
    Family("U", "not asked"),
    Family("X", "cause not known"),
)
UNEXPLAINED = len(FAMILIES) - 1


def family_table() -> Ints:
    """The row of the family of each row of the catalogue; the last entry, also -1, is ``UNEXPLAINED``."""
    rows = [
        next((row for row, family in enumerate(FAMILIES) if family.letter == cause.family), UNEXPLAINED)
        for cause in in_order()
    ]
    return np.array([*rows, UNEXPLAINED], np.int64)

"""Causes in families: what a lane of the timeline can tell apart by one letter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gputop.explain.causes import CATALOGUE
from gputop.explain.evidence.ranges import Ints


@dataclass(frozen=True, slots=True)
class Family:
    """Causes that a person changes in the same place.

    Attributes:
        letter: Its sign, a capital.
        word: What the GPU waits for, in a word or two.
        causes: Their numbers.
    """

    letter: str
    word: str
    causes: frozenset[str]


FAMILIES: tuple[Family, ...] = (
    Family("S", "sync", frozenset({"C01", "C02", "C03", "C07"})),
    Family("D", "data", frozenset({"C08", "C09", "C10", "C11", "C12"})),
    Family("C", "copy", frozenset({"C04", "C05", "C27"})),
    Family("H", "launches", frozenset({"C06"})),
    Family("P", "no CPU", frozenset({"C13", "C14", "C15"})),
    Family("L", "lock", frozenset({"C16"})),
    Family("K", "disk, net, pages", frozenset({"C17", "C18", "C19"})),
    Family("A", "alloc, load", frozenset({"C20", "C21", "C22"})),
    Family("U", "not asked", frozenset({"C26"})),
    Family("X", "cause not known", frozenset()),
)
UNEXPLAINED = len(FAMILIES) - 1


def family_table() -> Ints:
    """The row of the family of each row of the catalogue; the last entry, also -1, is ``UNEXPLAINED``."""
    rows = [
        next((row for row, family in enumerate(FAMILIES) if cause.number in family.causes), UNEXPLAINED)
        for cause in CATALOGUE
    ]
    return np.array([*rows, UNEXPLAINED], np.int64)

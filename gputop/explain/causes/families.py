"""The family of each cause, by the row of the catalogue."""

from __future__ import annotations

import numpy as np

from gputop.explain.answer.picture import FAMILIES, UNEXPLAINED
from gputop.explain.causes.registry import in_order
from gputop.explain.evidence.ranges import Ints


def family_table() -> Ints:
    """The row of the family of each row of the catalogue; the last entry, also -1, is ``UNEXPLAINED``."""
    rows = [
        next((row for row, family in enumerate(FAMILIES) if family.letter == cause.family), UNEXPLAINED)
        for cause in in_order()
    ]
    return np.array([*rows, UNEXPLAINED], np.int64)

"""Identity is exact: equal handles get one number, different ones never share it."""

from __future__ import annotations

import numpy as np
import pytest

from gputop.explain.evidence.identity import group_ids


@pytest.mark.parametrize("distinct", [1, 7, 5_000, 300_000])
def test_numbers_and_values_are_one_to_one(distinct: int) -> None:
    random = np.random.default_rng(distinct)
    handles = random.integers(0, 1 << 63, distinct, dtype=np.uint64) | np.uint64(1 << 63)
    values = handles[random.integers(0, distinct, 2 * distinct)]
    ids, known = group_ids(values)
    assert len(ids) == len(values)
    assert (known[ids] == values).all()
    assert len(np.unique(ids)) == len(np.unique(values)) == len(np.unique(known))


def test_neighbouring_handles_are_told_apart() -> None:
    values = np.arange(1 << 18, dtype=np.uint64) * np.uint64(16)
    ids, known = group_ids(values)
    assert (known[ids] == values).all()


def test_nothing_has_no_numbers() -> None:
    ids, known = group_ids(np.zeros(0, np.uint64))
    assert (len(ids), len(known)) == (0, 0)

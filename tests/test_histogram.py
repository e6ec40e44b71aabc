"""Percentiles are within 1 % of the true ones, whatever the durations."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gputop.engine.calls import histogram

DURATIONS = st.lists(st.integers(1, 2**39), min_size=1, max_size=300)


@given(DURATIONS, st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_percentile_is_within_one_percent_of_the_nearest_rank(durations: list[int], fraction: float) -> None:
    buckets = histogram.bucket_of(np.array(durations, np.uint64))
    counts = np.bincount(buckets, minlength=histogram.BUCKETS)[None, :]
    truth = sorted(durations)[max(math.ceil(fraction * len(durations)), 1) - 1]
    found = int(histogram.percentiles(counts, (fraction,))[0, 0])
    assert abs(found - truth) <= max(0.01 * truth, 1)


def test_empty_histogram_has_no_percentile() -> None:
    assert histogram.percentiles(np.zeros((1, histogram.BUCKETS), np.int64), (0.5,))[0, 0] == 0


def test_zero_and_huge_durations_are_counted_at_the_ends() -> None:
    buckets = histogram.bucket_of(np.array([0, 2**63], np.uint64))
    assert buckets.tolist() == [0, histogram.BUCKETS - 1]


@given(DURATIONS)
def test_powers_of_two_hold_exactly_their_values(durations: list[int]) -> None:
    buckets = histogram.bucket_of(np.array(durations, np.uint64))
    counts = np.bincount(buckets, minlength=histogram.BUCKETS)[None, :]
    octaves = histogram.by_power_of_two(counts)[0]
    truth = np.bincount([value.bit_length() - 1 for value in durations], minlength=histogram.EXPONENTS)
    assert octaves.tolist() == truth.tolist()

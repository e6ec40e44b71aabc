"""Latency histograms with 64 linear steps in each power of two: any percentile within 0.8 %.

A duration of ``2**e * (1 + f)`` ns falls into bucket ``64 * e + floor(64 * f)``; the bucket's middle is
at most 1/128 away from every value in it (HdrHistogram's scheme with a fixed precision).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

STEPS = 64
EXPONENTS = 40  # up to 2**40 ns, 18 minutes; longer ones count in the last bucket
BUCKETS = STEPS * EXPONENTS
METHOD = "nearest rank in a histogram of 64 linear buckets per power of two; error at most 0.79 %"

_MANTISSA_SHIFT = 52 - 6  # an IEEE double holds exponent and first six mantissa bits above this
_BIAS = 1023 << 6
_AT_ONCE = 512  # histograms whose sums are made at a time: 10 MB

_index = np.arange(BUCKETS, dtype=np.int64)
# the middle of each bucket, ns
MIDDLES: Ints = np.rint(2.0 ** (_index // STEPS) * (1 + (_index % STEPS + 0.5) / STEPS)).astype(np.int64)


def bucket_of(durations: npt.NDArray[np.uint64] | npt.NDArray[np.float64]) -> Ints:
    """Return the bucket numbers of durations in ns; 0 counts as 1."""
    buckets = durations.astype(np.float64, copy=False).view(np.int64) >> _MANTISSA_SHIFT
    buckets -= _BIAS
    np.minimum(buckets, BUCKETS - 1, out=buckets)
    np.maximum(buckets, 0, out=buckets)
    return buckets


def percentiles(counts: npt.NDArray[np.integer], fractions: tuple[float, ...]) -> Ints:
    """Return nearest-rank percentiles of several histograms.

    Args:
        counts: Shape (n, BUCKETS), the number of values in each bucket.
        fractions: For example (0.5, 0.95, 0.99).

    Returns:
        Shape (n, len(fractions)), ns; 0 where a histogram is empty.
    """
    result = np.zeros((len(counts), len(fractions)), np.int64)
    for first in range(0, len(counts), _AT_ONCE):
        result[first : first + _AT_ONCE] = _percentiles(counts[first : first + _AT_ONCE], fractions)
    return result


def _percentiles(counts: npt.NDArray[np.integer], fractions: tuple[float, ...]) -> Ints:
    cumulative = np.cumsum(counts, axis=1, dtype=np.int64)
    totals = cumulative[:, -1]
    result = np.zeros((len(counts), len(fractions)), np.int64)
    for column, fraction in enumerate(fractions):
        ranks = np.maximum(np.ceil(fraction * totals), 1)
        buckets = (cumulative < ranks[:, None]).sum(axis=1)
        result[:, column] = np.where(totals > 0, MIDDLES[np.minimum(buckets, BUCKETS - 1)], 0)
    return result


def by_power_of_two(counts: npt.NDArray[np.integer]) -> Ints:
    """Shape (n, BUCKETS) -> (n, EXPONENTS): element i counts values of 2**i <= ns < 2**(i+1)."""
    summed: Ints = counts.reshape(len(counts), EXPONENTS, STEPS).sum(axis=2, dtype=np.int64)
    return summed

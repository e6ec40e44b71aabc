"""Sizes of gaps as rows that add up: which stand alone, in one part or in many together."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from gputop.explain.evidence.ranges import Ints, Mask

LEAST_GAPS = 3  # fewer do not repeat
LONELY, LONELY_NS = 10, 20_000_000  # a gap this many times as long as usual, and this long, is an event
# a gap that takes more than all others together is one, if it is this many times as long as usual
OUTWEIGHS = 3
_LONGEST, _CLASSES = 128, 256  # rows of gaps each, and of gaps of about one size

# ``count`` gaps of ``ns`` each, the first of which began at ``begin``
SIZE: Final = np.dtype([("begin", "i8"), ("ns", "i8"), ("count", "i8"), ("proved", "?")])
Sizes = npt.NDArray[np.void]
NO_SIZES: Final[Sizes] = np.zeros(0, SIZE)


def sizes_of(begin: Ints, ns: Ints, proved: Mask) -> Sizes:
    """A row for each gap."""
    rows = np.zeros(len(ns), SIZE)
    rows["begin"], rows["ns"], rows["count"], rows["proved"] = begin, ns, 1, proved
    return rows


def gathered(*parts: Sizes) -> Sizes:
    """All of them in a bounded number of rows: the longest and the first stay as they are."""
    rows = np.concatenate(parts)
    if len(rows) <= _LONGEST + _CLASSES + LEAST_GAPS:
        return rows
    rows = rows[np.argsort(rows["ns"], kind="stable")]
    kept = np.zeros(len(rows), np.bool_)
    kept[-_LONGEST:] = True
    kept[np.argsort(rows["begin"], kind="stable")[:LEAST_GAPS]] = True
    rest = rows[~kept]
    heads = np.arange(_CLASSES) * len(rest) // _CLASSES
    made = np.zeros(_CLASSES, SIZE)
    made["begin"] = np.minimum.reduceat(rest["begin"], heads)
    made["count"] = np.add.reduceat(rest["count"], heads)
    made["ns"] = np.add.reduceat(rest["ns"] * rest["count"], heads) // made["count"]
    made["proved"] = np.logical_and.reduceat(rest["proved"], heads)
    return np.concatenate([made, rows[kept]])


def lonely(rows: Sizes) -> Mask:
    """Which gaps stand alone: all when there are few, else those that are far longer than usual.

    So is one that outweighs all the others. Several may be a loss that repeats more rarely (a checkpoint);
    then only those before it, and far longer still, stand alone: first uses of something.
    """
    ns, begin, count = rows["ns"], rows["begin"], rows["count"]
    if count.sum() < LEAST_GAPS:
        return np.ones(len(rows), np.bool_)
    usual = _median(ns, count)
    far: Mask = (ns > LONELY * usual) & (ns > LONELY_NS)
    top = int(np.argmax(ns))
    far[top] |= ns[top] > max(LONELY_NS, OUTWEIGHS * usual) and 2 * ns[top] > (ns * count).sum()
    if count[far].sum() < LEAST_GAPS:
        return far
    first = np.sort(begin[~far])[:LEAST_GAPS]
    late = far & (begin > first[-1]) if len(first) else far
    if count[late].sum() < LEAST_GAPS:
        return far
    longer: Mask = far & ~late & (ns > OUTWEIGHS * _median(ns[late], count[late]))
    return longer


def _median(ns: Ints, count: Ints) -> float:
    """Of so many gaps of each size."""
    if (count == 1).all():
        return float(np.median(ns))
    order = np.argsort(ns, kind="stable")
    upto = np.cumsum(count[order])
    return float(ns[order][np.searchsorted(upto, upto[-1] / 2)])

"""How many threads fill a GPU: as many as its multiprocessors hold at once, by NVML.

A launch of fewer leaves some of it idle, if nothing else runs beside it. Which GPU a launch goes to does not
matter here: it is held against the smallest that was told of, so that what is said holds for each of them.
"""

from __future__ import annotations

from typing import Final

from probes.samples import listed_gpus
from probes.source import Sample

UNKNOWN: Final = 0  # some GPU's figures are not known


def fill_of(sample: Sample) -> int | None:
    """Threads that fill the smallest GPU of a ``gpus`` sample; ``UNKNOWN``, or None without a GPU.

    Of a GPU that is cut (MIG) nothing is said: a process has a part of it only.
    """
    found: int | None = None
    for row in listed_gpus(sample):
        if row.get("lost"):  # tells nothing any more, and was told of before
            continue
        count, each = row.get("multiprocessors"), row.get("multiprocessor_threads")
        known = UNKNOWN
        if isinstance(count, int) and isinstance(each, int) and row.get("mig_enabled") is not True:
            known = max(count * each, 0)
        found = smaller(found, known)
    return found


def smaller(one: int | None, other: int | None) -> int | None:
    """The smaller of two; ``UNKNOWN`` where one of them is not known, None where neither was told."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)

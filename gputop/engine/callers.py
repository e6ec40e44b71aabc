"""Which threads make CUDA calls."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from probes.arrays import distinct, table


class Callers:
    """Gathers threads, with one look-up a call and no sorting.

    Thread ids lie below PID_MAX_LIMIT of the kernel, but for those of other machines in a merged recording.
    """

    def __init__(self) -> None:
        """Start with none."""
        self._known = table(np.bool_)
        self._tids: list[int] = []
        self._far: set[int] = set()

    def add(self, tids: npt.NDArray[np.uint32]) -> None:
        """Takes the threads of some calls in."""
        if len(tids) and int(tids.max()) >= len(self._known):
            far = tids >= len(self._known)
            self._far.update(distinct(tids[far]).tolist())
            tids = tids[~far]
        known = self._known.take(tids)
        if not known.all():
            fresh = distinct(tids[~known])
            self._known[fresh] = True
            self._tids += fresh.tolist()

    def take(self) -> frozenset[int]:
        """The threads, and a fresh start."""
        tids, self._tids = self._tids, []
        self._known[tids] = False
        far, self._far = self._far, set()
        return frozenset(tids) | far

"""Which threads make CUDA calls."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class Callers:
    """Gathers threads, with one look-up a call and no sorting.

    Thread ids lie below PID_MAX_LIMIT of the kernel; larger ones, of a hostile file, count as the last.
    """

    def __init__(self) -> None:
        """Start with none."""
        self._known = np.zeros(1 << 22, np.bool_)  # pages appear when used
        self._tids: list[int] = []

    def add(self, tids: npt.NDArray[np.uint32]) -> None:
        """Takes the threads of some calls in."""
        known = self._known.take(tids, mode="clip")
        if not known.all():
            fresh = np.unique(np.minimum(tids[~known], len(self._known) - 1))
            self._known[fresh] = True
            self._tids += fresh.tolist()

    def take(self) -> frozenset[int]:
        """The threads, and a fresh start."""
        tids, self._tids = self._tids, []
        self._known[tids] = False
        return frozenset(tids)

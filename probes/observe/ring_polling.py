"""How long the ring of events is left alone: longer where little comes, or processes by the dozen."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

_FULL = 0.25  # a ring that is filled so far is read without a pause
_FILLING = 1 / 16  # a ring filled so far is read at each poll
_EARLY_S = 0.01  # a pause that ends so near to it is the last one
_MANY = 10  # births within ``_RECENT_S``: then a read costs more for processes than for their records
_RECENT_S = 0.25
_CALM_S = 0.15  # where no process began of late, and few records wait
_STILL_S, _STILL_PAUSE_S = 10.0, 0.25  # where none began for so long, and how long it is left alone then
_LONGEST_S = 0.25  # a process that lives for less in such a crowd is reported by the kernel's records alone


class PollInterval:
    """Pauses between two reads of the ring.

    A read costs as much for a hundred records as for a thousand: while a ring fills slowly and no process
    begins, which might be over soon, every third poll suffices, and the marks alone after a while. In a crowd
    the pause follows the number of processes that began: each is a sample of its own, before which the
    gathered records go to the file. A shell script or a build starts hundreds a second, most of which are
    over before they could be read.
    """

    def __init__(self, poll_s: float) -> None:
        self._poll_s = poll_s
        self._births: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])
        self._last_s = time.monotonic()  # when the newest process began

    def born(self, births: int) -> None:
        """Updates how many processes have begun up to now."""
        now = time.monotonic()
        if births > self._births[-1][1]:
            self._last_s = now
        self._births.append((now, births))
        while len(self._births) > 2 and now - self._births[1][0] >= _RECENT_S:
            self._births.popleft()

    @property
    def crowded(self) -> bool:
        """True if processes began by the dozen of late."""
        (since, before), (until, now) = self._births[0], self._births[-1]
        return now - before >= _MANY * max((until - since) / _RECENT_S, 1)

    @property
    def _left_alone_s(self) -> float:
        if self.crowded:
            return _LONGEST_S
        if self._births[-1][1] > self._births[0][1]:
            return 0.0
        return _CALM_S if time.monotonic() - self._last_s < _STILL_S else _STILL_PAUSE_S

    def pauses(self, deadline: float, fill: Callable[[], float]) -> Iterator[float]:
        """The pauses up to the next read, in seconds."""
        begin = time.monotonic()
        latest = min(deadline, begin + max(self._left_alone_s, self._poll_s) - _EARLY_S)
        while fill() < _FULL:
            yield min(self._poll_s, max(deadline - time.monotonic(), 0))
            if time.monotonic() >= latest or fill() >= _FILLING:
                return

"""gputop's own memory, and what it gives up above its budget: the length of a live explanation."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

BUDGET_BYTES: Final = 150_000_000
FIRST_S: Final = 60.0  # not measured: what starts gputop ends by then
SETTLE_S: Final = 20.0  # after a change: the memory of before is returned
MOST_HALVINGS: Final = 2
ROOM: Final = 0.7  # of the budget: below it, twice the length fits
UP_S, MOST_UP_S = 300.0, 7_200.0  # below ``ROOM`` before the length doubles; doubled after each failure


def resident_bytes() -> int:
    """Return the memory of this process and those that it started; what several share counts once.

    It takes 5 ms: the kernel walks all pages.
    """
    return sum(_share(pid) for pid in _family(os.getpid()))


def _family(pid: int) -> Iterable[int]:
    yield pid
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for task in tasks:
        for child in _words(f"/proc/{pid}/task/{task}/children"):
            yield from _family(int(child))


def _share(pid: int) -> int:
    """A process's part of the pages it holds; of one that forbids that, what it shares with none."""
    words = _words(f"/proc/{pid}/smaps_rollup")
    if b"Pss:" in words:
        return int(words[words.index(b"Pss:") + 1]) << 10
    pages = _words(f"/proc/{pid}/statm")
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE") if pages else 0


def _words(path: str) -> list[bytes]:
    """The words of a small file; none of one that cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read().split()
    except OSError:
        return []


class OwnMemory:
    """Compares memory with a budget. Half the length of an explanation takes half of its memory."""

    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        """Start at full length."""
        self.halvings = 0  # how often the length of an explanation is halved
        self._budget = budget_bytes
        self._began_s: float | None = None
        self._changed_s = float("-inf")
        self._small_since_s: float | None = None
        self._up_s = UP_S
        self._went_up = False

    def consume(self, now_s: float, used_bytes: int) -> None:
        """Consume what was resident at a monotonic time, while an explanation still had its memory."""
        if self._began_s is None:
            self._began_s = now_s
        if now_s - self._began_s < FIRST_S or now_s - self._changed_s < SETTLE_S:
            return
        if used_bytes > self._budget:
            self._small_since_s = None
            if self.halvings < MOST_HALVINGS:
                if self._went_up:  # the longer one was too much
                    self._up_s = min(2 * self._up_s, MOST_UP_S)
                self._change(now_s, 1)
        elif used_bytes > ROOM * self._budget:
            self._small_since_s = None
        elif self._small_since_s is None:
            self._small_since_s = now_s
        elif self.halvings and now_s - self._small_since_s >= self._up_s:
            self._change(now_s, -1)

    def _change(self, now_s: float, step: int) -> None:
        self.halvings += step
        self._went_up, self._changed_s, self._small_since_s = step < 0, now_s, None

    def length(self, whole_ns: int) -> int:
        """Return the length of an explanation that usually has ``whole_ns``."""
        return whole_ns >> self.halvings

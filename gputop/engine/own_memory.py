"""gputop's own memory, and what it gives up above its budget: the length of a live explanation."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

BUDGET_BYTES: Final = 150_000_000
FIRST_S: Final = 60.0  # not measured: what starts gputop ends by then
SETTLE_S: Final = 20.0  # after a change: the memory of before is returned
PARTS: Final = 4  # that the length is given up in; the last one stays
ROOM: Final = 0.85  # of the budget: below it, one part more fits
UP_S, MOST_UP_S = 300.0, 7_200.0  # below ``ROOM`` before one is added again; doubled after each failure


def forget_peak() -> bool:
    """Have the kernel measure this process's peak from now on; False where it does not."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        return False
    return True


def resident_bytes(*, peak: bool = False) -> int:
    """Return the memory of this process and those that it started; what several share counts once.

    It takes 5 ms: the kernel walks all pages.

    Args:
        peak: Of this process, the most that was resident since ``forget_peak``.
    """
    now = sum(_share(pid) for pid in _family(os.getpid()))
    return now + _passed() if peak else now


def _passed() -> int:
    """How much less is resident than at the peak."""
    words = _words("/proc/self/status")
    try:
        peak, now = (int(words[words.index(name) + 1]) << 10 for name in (b"VmHWM:", b"VmRSS:"))
    except (ValueError, IndexError):
        return 0
    return max(peak - now, 0)


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
        self.less = 0  # how many quarters of the length of an explanation are given up
        self._budget = budget_bytes
        self._began_s: float | None = None
        self._changed_s = float("-inf")
        self._small_since_s: float | None = None
        self._up_s = UP_S
        self._went_up = False

    def consume(self, now_s: float, used_bytes: int) -> None:
        """Consume the most that was resident in an explanation, at a monotonic time."""
        if self._began_s is None:
            self._began_s = now_s
        if now_s - self._began_s < FIRST_S or now_s - self._changed_s < SETTLE_S:
            return
        if used_bytes > self._budget:
            self._small_since_s = None
            if self.less < PARTS - 1:
                if self._went_up:  # the longer one was too much
                    self._up_s = min(2 * self._up_s, MOST_UP_S)
                self._change(now_s, 1)
        elif used_bytes > ROOM * self._budget:
            self._small_since_s = None
        elif self._small_since_s is None:
            self._small_since_s = now_s
        elif self.less and now_s - self._small_since_s >= self._up_s:
            self._change(now_s, -1)

    def _change(self, now_s: float, step: int) -> None:
        self.less += step
        self._went_up, self._changed_s, self._small_since_s = step < 0, now_s, None

    def length(self, whole_ns: int) -> int:
        """Return the length of an explanation that usually has ``whole_ns``."""
        return whole_ns * (PARTS - self.less) // PARTS

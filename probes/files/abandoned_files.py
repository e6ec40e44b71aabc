"""Files of others that kept gputop waiting: left alone for a while, with those of the same owner.

One file of a file system that does not answer is rarely the only one, so after some of them the others of the
same owner are left alone, too: a user whose reads hang must not hide others' libraries.
Nothing is for ever: a server comes back. Abandoned files are reported, a sentence each.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

Key = tuple[int, int]  # device, inode: the facts about a file before it is touched
ENOUGH: Final = (
    3  # reads of an owner that hung in a file system: from then on none of that owner's files there
)
FIRST_S, LONGEST_S = 60.0, 3600.0  # of being left alone, twice as long each time
_MOST_KEPT = 4096
_MOST_NAMED = 8  # files of an owner that are named
_OTHERS = "other files of its owner in its file system could not be read in time"
_K = TypeVar("_K", bound=Hashable)


@dataclass(slots=True)
class _Rest:
    """How long something is left alone."""

    why: str
    until: float = 0.0
    pause_s: float = FIRST_S / 2

    def begin(self, now: float) -> None:
        self.pause_s = min(2 * self.pause_s, LONGEST_S)
        self.until = now + self.pause_s


class _Kept(OrderedDict[_K, _Rest], Generic[_K]):
    """Reasons by key, while they hold; the oldest give way."""

    def begin(self, key: _K, why: str, now: float) -> None:
        rest = self.setdefault(key, _Rest(why))
        rest.why = why
        rest.begin(now)
        self.move_to_end(key)
        if len(self) > _MOST_KEPT:
            self.popitem(last=False)


class AbandonedFiles:
    """Files, and owners' files of a device, that are left alone now. For any thread.

    An owner is a number by what is known: the user, or the process that mapped the file.
    """

    def __init__(self, report: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._report, self.clock = report, clock
        self.files: _Kept[Key] = _Kept()
        self._owners: _Kept[tuple[int, int]] = _Kept()
        self.hung: Counter[tuple[int, int]] = Counter()
        self._named: dict[tuple[int, int], set[Key]] = {}
        self._lock = threading.Lock()
        self._next = float("inf")  # when it may be tried again

    def refusal(self, key: Key, owner: int, shown: str) -> str | None:
        """Why a file is not read for now; None: it may be."""
        now = self.clock()
        with self._lock:
            rest = self.files.get(key)
            if rest is not None and now < rest.until:
                return rest.why
            whose = key[0], owner
            theirs = self._owners.get(whose)
            if theirs is None or now >= theirs.until:
                return None
            named = self._named.setdefault(whose, set())
            if key not in named and len(named) < _MOST_NAMED:
                named.add(key)
                self._report(f"{shown} is left out for now: {theirs.why}")
                if len(named) == _MOST_NAMED:
                    self._report("other files of that user are left out as well, and not named")
            return theirs.why

    def add(self, key: Key, owner: int, shown: str, why: str, *, hangs: bool) -> None:
        """Leaves a file alone from now on.

        Args:
            key, owner: The file, and its owner.
            shown: Its path, for the sentence.
            why: The problem.
            hangs: Its file system did not answer, so that this owner's others may not, either.
        """
        now, whose = self.clock(), (key[0], owner)
        with self._lock:
            first = key not in self.files
            self.files.begin(key, why, now)
            self._next = min(self._next, self.files[key].until)
            if hangs:
                self.hung[whose] += 1
                if self.hung[whose] >= ENOUGH:
                    self.hung[whose] = ENOUGH - 1  # when it is tried again, one is enough
                    self._owners.begin(whose, _OTHERS, now)
            if len(self.hung) > _MOST_KEPT:
                self.hung.clear()
            if len(self._named) > _MOST_KEPT:
                self._named.clear()
            if first:
                self._report(
                    f"{shown} is left out: {why} (a file system that does not answer, or a damaged file?); "
                    "it is tried again later"
                )

    def answered(self, key: Key, owner: int) -> None:
        """A file was read to its end: its file system answers."""
        if key in self.files or (key[0], owner) in self.hung:
            with self._lock:
                self.files.pop(key, None)
                self._owners.pop((key[0], owner), None)
                self.hung.pop((key[0], owner), None)

    def is_due(self) -> bool:
        """True if something may be requested again, since the last call of this."""
        now = self.clock()
        with self._lock:
            if now < self._next:
                return False
            rests = (rest.until for kept in (self.files, self._owners) for rest in kept.values())
            self._next = min((until for until in rests if until > now), default=float("inf"))
            return True

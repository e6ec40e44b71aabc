"""The owner of a user id: the 65,536 ids that ``/etc/subuid`` grants a user for containers are that user's.

Limits per user count by this, and not by the number that the kernel reports.
"""

from __future__ import annotations

import os
import pwd
from bisect import bisect_right
from contextlib import suppress
from typing import Final

SUBUID: Final = "/etc/subuid"
_MOST_BYTES: Final = 1 << 20
_MOST_ID: Final = 1 << 32


class Subordinates:
    """Reads the file again when it has changed."""

    def __init__(self, path: str = SUBUID) -> None:
        self._path = path
        self._read: tuple[int, int, int] | None = None  # what it was like
        self._firsts: list[int] = []
        self._ranges: list[tuple[int, int]] = []  # the end, and whose

    def owner(self, uid: int) -> int:
        """The user to whom an id belongs: itself, unless it is one for containers."""
        self._renew()
        at = bisect_right(self._firsts, uid) - 1
        if at >= 0 and uid < self._ranges[at][0]:
            return self._ranges[at][1]
        return uid

    def _renew(self) -> None:
        try:
            facts = os.stat(self._path)
            like = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
        except OSError:
            like = None
        if like == self._read:
            return
        self._read, rows = like, []
        with suppress(OSError), open(self._path, encoding="utf-8", errors="replace") as file:
            for line in file.read(_MOST_BYTES).splitlines():
                with suppress(ValueError, KeyError):
                    name, first, count = line.strip().split(":")
                    end = int(first) + int(count)
                    if 0 < int(first) < end <= _MOST_ID:  # never root's own
                        rows.append((int(first), end, _uid(name)))
        rows.sort()
        self._firsts = [first for first, _, _ in rows]
        self._ranges = [(end, owner) for _, end, owner in rows]


def _uid(name: str) -> int:
    """Raises KeyError for an unknown user."""
    return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid

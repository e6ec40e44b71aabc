"""Limits probed files by user, so that none exhausts gputop's descriptors or its time.

A file counts for the user of the program that mapped it, before anything of it is opened: its owner is
a claim of its file system, and a file system may be anybody's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable

from probes.files.untrusted_files import Identity


class Quota:
    """Counts files by user (``users.of``). Root may have more: root needs no tricks.

    Args:
        what: The kind of files, for sentences.
        most: Limit of a user.
        most_of_root: Limit of root.
        report: Called with a sentence, once for each user above the limit.
    """

    def __init__(self, what: str, most: int, most_of_root: int, report: Callable[[str], None]) -> None:
        self._what, self._most, self._most_of_root, self.report = what, most, most_of_root, report
        self.used: Counter[int] = Counter()
        self._files: dict[Identity, int] = {}
        self._refused: set[int] = set()

    def admits(self, user: int, file: Identity | None = None) -> bool:
        """True if one more file of this user may be probed; a counted one may be tried again."""
        most = self._most if user else self._most_of_root
        if self.used[user] < most or file in self._files:
            return True
        if user not in self._refused:
            self._refused.add(user)
            self.report(
                f"{most} {self._what} that programs of {_called(user)} map are probed, the most for "
                "one user: calls of further ones are not seen; end unneeded programs and start gputop again"
            )
        return False

    def acquire(self, user: int, file: Identity) -> None:
        """One more is probed, or tried."""
        if file not in self._files:
            self._files[file] = user
            self.used[user] += 1

    def release(self, file: Identity) -> bool:
        """Uncounts a file; true if its user was above the limit and has room again."""
        if (user := self._files.pop(file, None)) is None:
            return False
        self.used[user] -= 1
        return user in self._refused


def _called(user: int) -> str:
    return f"user {user}" if user >= 0 else "processes that have ended"


# Which probed files no process maps any more: each takes descriptors until it is let go of.

FEW = 16  # files that stay probed though no process maps them: the next run of a program is seen whole


class Unmapped:
    """Remembers when a file was last seen mapped; one for each kind of files."""

    def __init__(self) -> None:
        self._used: dict[Identity, float] = {}

    def of(self, probed: Iterable[Identity], mapped: Collection[Identity], now: float) -> list[Identity]:
        """Those to let go of: no process maps them, and they are not the ``FEW`` that were mapped last."""
        self._used = {file: now if file in mapped else self._used.get(file, now) for file in probed}
        unused = sorted(self._used.keys() - mapped, key=lambda file: (self._used[file], file))
        return unused[: max(len(unused) - FEW, 0)]

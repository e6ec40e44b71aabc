"""Work for programs of many users: the user with the least so far goes first."""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

MOST_WAITING: Final = 256  # of one user; more of the user's own is lost
_MOST_USERS = 1024
_OTHERS = -2  # all users beyond these
_T = TypeVar("_T")


class Turns(Generic[_T]):
    """Queues by user. For one thread."""

    def __init__(self) -> None:
        self.waiting: dict[int, deque[_T]] = {}
        # of waiting users; a new one begins with the least of these
        self.had_s: dict[int, float] = {}
        self._least_s = 0.0
        self.overrun: set[int] = set()

    def __len__(self) -> int:
        return sum(map(len, self.waiting.values()))

    def put(self, user: int, work: _T) -> None:
        """Something to do for a user."""
        if user not in self.waiting and len(self.waiting) >= _MOST_USERS:
            user = _OTHERS
        queue = self.waiting.setdefault(user, deque())
        self.had_s.setdefault(user, self._least_s)
        if len(queue) >= MOST_WAITING:
            self.overrun.add(user)
        else:
            queue.append(work)

    def pop(self) -> tuple[int, _T] | None:
        """(work, user) of the next turn; None for none."""
        if not self.waiting:
            return None
        user = min(self.waiting, key=self.had_s.__getitem__)
        self._least_s = self.had_s[user]
        return user, self.waiting[user].popleft()

    def charge(self, user: int, seconds: float) -> bool:
        """Charges the last turn's time; true if some of this user's work was lost and none is left."""
        self.had_s[user] += seconds
        if self.waiting[user]:
            return False
        del self.waiting[user], self.had_s[user]
        lost = user in self.overrun
        self.overrun.discard(user)
        return lost

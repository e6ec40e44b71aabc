"""How many libraries are probed: so many of each owner that nobody fills gputop's descriptors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

# a user has a few environments with three libraries each; whoever has more names files as if they were some
MOST_OF_ONE_OWNER = 64
# each takes descriptors and time to attach to, also where somebody builds them by the hundred
MOST_OF_ROOT = 512


class Quota:
    """Counts libraries by their files' owners. Root may have more: root needs no tricks.

    Args:
        tell: Takes a sentence, one for each owner who has too many.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._taken: Counter[int] = Counter()
        self._refused: set[int] = set()

    def admits(self, owner: int) -> bool:
        """Whether one more file of this owner may be probed."""
        most = MOST_OF_ONE_OWNER if owner else MOST_OF_ROOT
        if self._taken[owner] < most:
            return True
        if owner not in self._refused:
            self._refused.add(owner)
            self._tell(
                f"{most} libraries that belong to user {owner} are probed, which is as many as "
                "gputop probes of one user: calls of further ones are not seen; end what is not needed and "
                "start gputop again"
            )
        return False

    def take(self, owner: int) -> None:
        """One more is probed."""
        self._taken[owner] += 1

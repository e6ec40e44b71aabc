"""Since when each process on a GPU has done nothing there, as far as NVML has been asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_WORK = ("sm_percent", "memory_percent", "encoder_percent", "decoder_percent")
Use = Mapping[str, int | None]


class IdleSince:
    """Remembers when each process was seen at work last; before the first look nothing is known."""

    def __init__(self) -> None:
        """Nobody has been seen."""
        self._since: dict[int, int] = {}

    def take(self, pids: Iterable[int], use: Mapping[int, Use] | None, now_ns: int) -> dict[int, int]:
        """Process -> since when it does nothing, CLOCK_MONOTONIC; those that work are not there.

        Args:
            pids: Everybody with a context on the GPU.
            use: What those did that did something in the last second; None where NVML does not tell.
            now_ns: The time of the look.
        """
        if use is None:
            self._since = {}
            return {}
        idle = {pid for pid in pids if pid not in use or _nothing(use[pid])}
        self._since = {pid: self._since.get(pid, now_ns) for pid in idle}
        return dict(self._since)


def _nothing(use: Use) -> bool:
    """Whether all shares are known and zero."""
    return all(use.get(key) == 0 for key in _WORK)

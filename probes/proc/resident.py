"""The resident memory of watched processes and of other users of GPUs, sampled once a second."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

from probes.proc import procfs
from probes.source import RESIDENT, Sample

LOOK_NS = 1_000_000_000
_MOST_READ = 512  # in a second, in turn: each costs 5 us
_PAGE = os.sysconf("SC_PAGE_SIZE")


class ResidentMemory:
    """Reads ``/proc`` at marks."""

    def __init__(self) -> None:
        self._due_ns = 0
        self._turn = 0
        self._known: dict[int, int] = {}

    def samples(
        self, watched: Collection[int], now_ns: int, others: Collection[int] = ()
    ) -> Iterator[Sample]:
        """The memory of each process.

        Args:
            watched: Watched processes.
            now_ns: Of the mark.
            others: Processes on GPUs that are not watched: their CPU time is sampled as well.
        """
        if now_ns < self._due_ns:
            return
        self._due_ns = now_ns + LOOK_NS
        alive = {*watched, *others}
        pids = sorted(alive)
        self._turn = self._turn if self._turn < len(pids) else 0
        chosen = pids[self._turn : self._turn + _MOST_READ]
        self._turn += len(chosen)
        self._known = {pid: size for pid, size in self._known.items() if pid in alive}
        for pid in chosen:
            size = procfs.resident_bytes(pid, _PAGE)
            if size is None:
                self._known.pop(pid, None)
            else:
                self._known[pid] = size
        if self._known:
            columns: dict[str, list[int | None]] = {
                "pid": list(self._known),
                "rss_bytes": list(self._known.values()),
            }
            if unwatched := {*others} - {*watched}:
                columns["cpu_ns"] = [procfs.cpu_ns(pid) if pid in unwatched else None for pid in self._known]
            yield Sample(RESIDENT, now_ns, columns)

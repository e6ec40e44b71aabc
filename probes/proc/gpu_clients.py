"""Other clients of the GPUs: facts of processes that NVML lists and are not watched, each reported once."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from typing import Any

from probes.code import libraries
from probes.proc import procfs
from probes.proc.belonging import KEYS
from probes.source import CLIENT, Sample

_FACTS = ("pid", "parent_pid", "name", "command", "user", "uid", "start_ns", "namespace_pid", "container")
_LOOK_AGAIN_NS = 5_000_000_000
_INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO


class GpuClients:
    """Yields the facts of each process once, and again when its number was reused."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}  # pid -> (its start, when that was last read)
        # NVML may list the numbers of the machine: within a container they may be those of others
        self._own_numbers = in_initial_namespace()

    def samples(self, gpus: Sample | None, watched: Container[int], now_ns: int) -> Iterator[Sample]:
        """Samples of those that are new."""
        rows = gpus.data["gpus"] if gpus is not None else []
        users = {int(client["pid"]) for row in rows for client in row["clients"] or ()}
        for pid in self._known.keys() - users:
            del self._known[pid]
        for pid in sorted(users):
            start, looked = self._known.get(pid, (-1, 0))
            if pid in watched or (looked and now_ns - looked < _LOOK_AGAIN_NS):
                continue
            facts = self._facts(pid)
            fresh = int(facts["start_ns"]) if facts else 0
            self._known[pid] = (fresh, now_ns)
            if facts is not None and fresh != start:
                yield Sample(CLIENT, now_ns, {key: facts[key] for key in (*_FACTS, *KEYS) if key in facts})

    @property
    def pids(self) -> frozenset[int]:
        """Those of which something is known."""
        return frozenset(pid for pid, (start, _looked) in self._known.items() if start)

    def _facts(self, pid: int) -> dict[str, Any] | None:
        if not self._own_numbers and not libraries.maps_cuda(pid):
            return None
        return procfs.process_facts(pid)


def in_initial_namespace() -> bool:
    """True if this process counts pids as the kernel does."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _INITIAL_PID_NAMESPACE
    except OSError:
        return False

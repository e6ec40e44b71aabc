"""Work that only a lost record told of: on a stream that no record names, so that no proof is asked of it.

It ends for sure where its process waits for the whole GPU, or is gone. A process is asked of the GPUs that
its calls are on record for.
"""

from __future__ import annotations

import numpy as np

from gputop.explain.evidence.apiclass import Role
from gputop.explain.evidence.evidence import Evidence
from gputop.explain.evidence.ranges import FOREVER, Ints, Mask
from gputop.explain.proofs.devices import Devices
from gputop.explain.proofs.streams import Streams


class Unseen:
    """When each GPU is free of such work.

    Args:
        evidence: What was observed.
        devices: The GPU of each call.
        streams: Which calls wait for a whole GPU.
    """

    def __init__(self, evidence: Evidence, devices: Devices, streams: Streams) -> None:
        self._evidence, self._devices = evidence, devices
        self._lost_until: Ints = evidence.lost[1]
        self._waits = streams.rows(Role.PROVE_DEVICE) if len(self._lost_until) else np.zeros(0, np.int64)

    def excluded(self, device: int, at: Ints) -> Mask:
        """Whether no such work can be left on a GPU at each of these moments."""
        free: Mask = np.ones(len(at), np.bool_)
        if not len(self._lost_until):
            return free
        place = np.searchsorted(self._lost_until, at, side="right") - 1
        lost = np.where(place >= 0, self._lost_until[np.maximum(place, 0)], -FOREVER)
        calls, of_calls = self._evidence.calls, self._devices.of_calls
        for pid in np.unique(calls["pid"][of_calls == device]).tolist():
            waits = self._waits[(calls["pid"][self._waits] == pid) & (of_calls[self._waits] == device)]
            waits = waits[np.argsort(calls["begin"][waits], kind="stable")]
            ends = np.append(np.minimum.accumulate(calls["end"][waits][::-1])[::-1], FOREVER)
            waited = ends[np.searchsorted(calls["begin"][waits], lost, side="left")] <= at
            gone = self._evidence.ended.get(pid, FOREVER) <= at
            free &= waited | gone | (lost <= self._born(pid))
        return free

    def _born(self, pid: int) -> int:
        """When a process began; -FOREVER where it was there before."""
        threads = self._evidence.threads
        born = threads.known[threads.pid == pid] if pid in self._evidence.complete else threads.known[:0]
        return int(born.min()) if len(born) else -FOREVER

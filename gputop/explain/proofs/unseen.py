"""Work that only a lost record told of: on a stream that no record names, so that no proof is asked of it.

It ends for sure where its process waits for the whole GPU, or is gone. A process is asked of the GPUs that
its calls are on record for. A call of which it is not known on which of the process's GPUs it works may have
given work to any of them, and waits for none.
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
        self._waits = self._waits[~devices.unsure[self._waits]]
        roles = evidence.role(evidence.calls)
        acts = (roles != Role.OTHER) & (roles != Role.SET_DEVICE)
        self._unsure: Ints = np.flatnonzero(devices.unsure & acts)

    def excluded(self, device: int, at: Ints, until: Ints) -> Mask:
        """Whether no such work can be on a GPU from each of these moments up to another."""
        free: Mask = np.ones(len(at), np.bool_)
        if not len(self._lost_until):
            return free
        place = np.searchsorted(self._lost_until, at, side="right") - 1
        missing = np.where(place >= 0, self._lost_until[np.maximum(place, 0)], -FOREVER)
        calls, of_calls = self._evidence.calls, self._devices.of_calls
        for pid in np.unique(calls["pid"][of_calls == device]).tolist():
            unsure, within = self._unsure_until(pid, at, until)
            lost = np.maximum(missing, unsure)
            waits = self._waits[(calls["pid"][self._waits] == pid) & (of_calls[self._waits] == device)]
            waits = waits[np.argsort(calls["begin"][waits], kind="stable")]
            ends = np.append(np.minimum.accumulate(calls["end"][waits][::-1])[::-1], FOREVER)
            waited = ends[np.searchsorted(calls["begin"][waits], lost, side="left")] <= at
            gone = self._evidence.ended.get(pid, FOREVER) <= at
            free &= (waited & ~within) | gone | (lost <= self._born(pid))
        return free

    def _unsure_until(self, pid: int, at: Ints, until: Ints) -> tuple[Ints, Mask]:
        """(when the last unsure call of a process before each moment ended, whether one lies behind it)."""
        calls = self._evidence.calls
        rows = self._unsure[calls["pid"][self._unsure] == np.uint32(pid)]
        begin, end = np.sort(calls["begin"][rows]), np.sort(calls["end"][rows])
        before = np.searchsorted(end, at, side="right")
        last = np.append(np.int64(-FOREVER), end)[before]
        return last, np.searchsorted(begin, until, side="left") > before

    def _born(self, pid: int) -> int:
        """When a process began; -FOREVER where it was there before."""
        threads = self._evidence.threads
        born = threads.known[threads.pid == pid] if pid in self._evidence.complete else threads.known[:0]
        return int(born.min()) if len(born) else -FOREVER

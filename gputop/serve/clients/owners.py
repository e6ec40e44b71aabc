"""The owner of each process, as recorded: the basis of each user's view."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from probes.arrays import PIDS, table
from probes.samples import process_data, sample_data
from probes.schema import ExitFlag, Kind, Records, select
from probes.shapes import Shapes
from probes.source import CLIENT, SHAPES, Sample

NOBODY = -1  # unknown: visible to root alone


class Owners:
    """User ids by process, and processes by thread.

    The owner is that of ``/proc/PID`` at birth and at each exec, which is root for a program with more rights
    than its user. Reused pids are no guess: an exit removes the owner.
    """

    def __init__(self) -> None:
        # the user id plus one, since pages of zeros need no memory
        self.shapes = Shapes()  # launch shapes of all users; the calls that refer to them show whose they are
        self._user: npt.NDArray[np.int64] = table(np.int64)
        self._process: npt.NDArray[np.int32] = table(np.int32)
        self._ended: set[int] = set()
        self._mixed: set[int] = set()  # changed the owner within this tick

    def consume(self, item: Sample | Records) -> None:
        """Consume an item, before any user sees it."""
        if not isinstance(item, Sample):
            self._records(item)
            return
        if (shapes := sample_data(item, SHAPES)) is not None:
            self.shapes.consume(shapes)
            return
        data = process_data(item) or sample_data(item, CLIENT)
        if data is None or not isinstance(data.get("pid"), int) or not 0 <= data["pid"] < PIDS:
            return
        pid = data["pid"]
        if "uid" in data:
            if self.of(pid) not in (NOBODY, int(data["uid"])):
                self._mixed.add(pid)
            self._user[pid] = int(data["uid"]) + 1
            self._ended.discard(pid)
        elif "start_ns" in data:  # a new process that vanished before /proc was read
            self._user[pid] = 0
        if item.data.get("exited_ns") is not None:
            self._ended.add(pid)

    def _records(self, records: Records) -> None:
        tids, pids = records["tid"], records["pid"]
        inside = (tids < PIDS) & (pids < PIDS) & (records["kind"] != np.uint8(Kind.OCCUPANT))
        self._process[tids[inside]] = pids[inside]
        gone = (records["kind"] == np.uint8(Kind.EXIT)) & (records["flags"] & ExitFlag.GROUP_DEAD != 0)
        if gone.any():
            self._ended.update(select(records, gone & inside)["pid"].tolist())

    def bury(self) -> None:
        """At a mark, after it was shown: forget processes that ended, since their pids may be reused."""
        for pid in self._ended:
            self._user[pid] = 0
        self._ended.clear()
        self._mixed.clear()

    def of(self, pid: int) -> int:
        """Return the user id of a process, ``NOBODY`` where unknown."""
        return int(self._user[pid]) - 1 if 0 <= pid < PIDS else NOBODY

    def of_thread(self, tid: int) -> int:
        """Return the user id of a thread's process."""
        return self.of(int(self._process[tid])) if 0 <= tid < PIDS and self._process[tid] else NOBODY

    def are(self, pids: npt.NDArray[np.uint32], uid: int) -> npt.NDArray[np.bool_]:
        """Return the processes whose records in this tick are all the user's, as a mask."""
        mine: npt.NDArray[np.bool_] = self._user[np.minimum(pids, PIDS - 1)] == uid + 1
        mine &= pids < PIDS
        for pid in self._mixed:
            mine &= pids != pid
        return mine

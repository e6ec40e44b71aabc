"""The owner of each process, as recorded: what one user may be shown of it rests on this."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from probes.arrays import PIDS, table
from probes.samples import process_data, sample_data
from probes.schema import ExitFlag, Kind, Records, select
from probes.shapes import Shapes
from probes.source import CLIENT, SHAPES, Sample

NOBODY = -1  # not known: shown to root alone


class Owners:
    """User ids by process, and processes by thread; grows with what is observed.

    A process is its user's as ``/proc`` says at its birth and at each exec: the owner of ``/proc/PID``, which
    is root for a program with more rights than who started it. Nothing is guessed from numbers that are given
    anew: an exit takes the owner away.

    Attributes:
        shapes: Of everybody's launches: whose they are is seen by the calls that name them.
    """

    def __init__(self) -> None:
        # one more than the user's id, since a page of zeros takes no memory
        self.shapes = Shapes()
        self._user: npt.NDArray[np.int64] = table(np.int64)
        self._process: npt.NDArray[np.int32] = table(np.int32)
        self._ended: set[int] = set()
        self._mixed: set[int] = set()  # were somebody else's before, within this tick

    def consume(self, item: Sample | Records) -> None:
        """Consumes one item, before it is shown to any user."""
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
        elif "start_ns" in data:  # a new process of which /proc told nothing any more
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
        """At a mark, when it has been shown: numbers of processes that ended may be given to strangers."""
        for pid in self._ended:
            self._user[pid] = 0
        self._ended.clear()
        self._mixed.clear()

    def of(self, pid: int) -> int:
        """The user id of a process, ``NOBODY`` where unknown."""
        return int(self._user[pid]) - 1 if 0 <= pid < PIDS else NOBODY

    def of_thread(self, tid: int) -> int:
        """The user id of a thread's process."""
        return self.of(int(self._process[tid])) if 0 <= tid < PIDS and self._process[tid] else NOBODY

    def are(self, pids: npt.NDArray[np.uint32], uid: int) -> npt.NDArray[np.bool_]:
        """Of which of some processes the records of this tick are a user's, all of them."""
        mine: npt.NDArray[np.bool_] = self._user[np.minimum(pids, PIDS - 1)] == uid + 1
        mine &= pids < PIDS
        for pid in self._mixed:
            mine &= pids != pid
        return mine

"""Probes of ``--pid``: in the chosen processes alone, as long as they start no others.

A probe costs every process that meets it, watched or not: 0.7 us a call. A link can be a process's own. But
the kernel runs its program in that process alone: its children would be missed until gputop has read of them.
So such links are used where little can be missed: where the chosen processes have opened CUDA already, which
a child that they fork cannot use then (CUDA refuses it), and until the first birth.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator

import numpy as np
import numpy.typing as npt

from probes import api
from probes.code import libraries
from probes.ebpf.attacher import Attachments
from probes.schema import ALIASED, ExitFlag, Kind, Records, select
from probes.source import NOTE, PROBLEM, Sample

MOST_OWN = 4  # each further link costs every call of theirs 80 ns
MOST_DOUBTFUL = 4096
_LIFE_EVENTS = np.array([Kind.FORK, Kind.EXEC, Kind.EXIT], np.uint8)
_RARE = np.uint8(Kind.FORK)


class Scope:
    """Narrow at first where that is safe, wide from the first birth on."""

    def __init__(self, attachments: Attachments, *, sessions: bool) -> None:
        self._attachments = attachments
        self._sessions = sessions
        self.with_cuda: set[int] = set()  # at the beginning
        self.doubtful: dict[int, int] = {}  # forked by one with CUDA open -> when; most never call
        self.waiting = False  # links that are no longer heard wait for the ends of calls
        # since when all processes are probed; infinite while only the chosen ones are
        self.seen_from_ns = 0.0

    def begin(self, chosen: Collection[int], descendants: Collection[int]) -> Iterator[Sample]:
        """Before anything is attached: these alone are probed if all that were chosen have CUDA open.

        Raises:
            OSError: The kernel refuses.
        """
        pids = {*chosen, *descendants}
        if not self._sessions or not 0 < len(pids) <= MOST_OWN:
            return
        self.with_cuda = {*filter(has_cuda, pids)}
        if not self.with_cuda >= {*chosen}:
            return
        self._attachments.narrow(tuple(sorted(pids)))
        self.seen_from_ns = math.inf
        text = f"only {_named(pids)} probed: calls of other programs cost what they do without gputop"
        yield Sample(NOTE, time.monotonic_ns(), {"text": text})

    def notice(self, records: Records) -> Iterator[Sample]:
        """Probes everybody if a watched process has begun, or its first thread has ended.

        Raises:
            OSError: The kernel refuses.
        """
        if not self.seen_from_ns or not (self.waiting or math.isinf(self.seen_from_ns)):
            return
        if not (records["kind"] >= _RARE).any():
            return
        rows = select(records, np.isin(records["kind"], _LIFE_EVENTS)).view(ALIASED)
        births = (rows["kind"] == Kind.EXEC) | (
            (rows["kind"] == Kind.FORK) & (rows["pid"] != rows["next_pid"])
        )
        if math.isinf(self.seen_from_ns):
            alone = (rows["kind"] == Kind.EXIT) & (rows["pid"] == rows["tid"])
            alone &= rows["flags"] & ExitFlag.GROUP_DEAD == 0  # its link would not see libraries to come
            causes = rows[births | alone]
            if not len(causes):
                return
            yield from self._widen(causes)
        for row in rows[births]:
            pid, then, maker = int(row["pid"]), int(row["t_end"]), int(row["next_pid"])
            if then >= self.seen_from_ns:
                continue
            if row["kind"] == Kind.FORK and maker in self.with_cuda:
                while len(self.doubtful) >= MOST_DOUBTFUL:  # most have ended, or never call
                    del self.doubtful[next(iter(self.doubtful))]
                self.doubtful[pid] = then
                continue
            self.doubtful.pop(pid, None)
            yield self._missing(pid, then)

    def _missing(self, pid: int, then: int) -> Sample:
        text = (
            f"calls of process {pid} may be missing: it was not probed for its first "
            f"{(self.seen_from_ns - then) / 1e6:.0f} ms; gputop record -- COMMAND sees each from its start"
        )
        return Sample(PROBLEM, int(self.seen_from_ns), {"text": text, "pid": pid})

    def _widen(self, causes: npt.NDArray[np.void]) -> Iterator[Sample]:
        lost = self._attachments.widen()
        now = time.monotonic_ns()
        self.seen_from_ns, self.waiting = now, True
        what = "began" if causes["kind"][0] != Kind.EXIT else "goes on without its first thread"
        text = (
            f"process {causes['pid'][0]} {what}: from here on every program's calls are probed, "
            f"{(now - int(causes['t_end'][0])) / 1e6:.0f} ms later"
        )
        yield Sample(NOTE, now, {"text": text})
        for refused in lost:
            yield Sample(PROBLEM, now, {"text": refused})

    def at_mark(self, states: npt.NDArray[np.void]) -> Iterator[Sample]:
        """Lets go of the links of processes when no call is open that they have seen begin.

        And reports a child that calls CUDA although its parent had it open: it may not have used it yet.
        """
        if self.doubtful:
            for pid in {*states["pid"][states["called"] != 0].tolist()} & {*self.doubtful}:
                yield self._missing(pid, self.doubtful.pop(pid))
        if not self.waiting:
            return
        older = (states["depth"] > 0) & (states["calls"]["start"][:, 0] < self.seen_from_ns)
        if not older.any():
            self._attachments.part()
            self.waiting = False


def has_cuda(pid: int) -> bool:
    """True if a process has the CUDA driver mapped."""
    return any(libraries.layer(mapping) == api.DRIVER for mapping in libraries.mappings((pid,)))


def _named(pids: Collection[int]) -> str:
    names = ", ".join(map(str, sorted(pids)))
    return f"process {names} is" if len(pids) == 1 else f"processes {names} are"

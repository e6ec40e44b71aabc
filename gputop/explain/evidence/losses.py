"""Finds lost records by their numbers: each CPU counts every record that it begins, lost ones too."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gputop.engine.apart import apart
from gputop.explain.evidence.ranges import Ints, union
from probes.schema import Records


class LossFinder:
    """Looks at the records in the order in which they were read.

    A record's number may be taken twice when an interrupt writes one between counting and reserving: then
    the next number is there twice, which is no loss.
    """

    def __init__(self, start_ns: int, *, cut: bool = False) -> None:
        """Start before the first record.

        Args:
            start_ns: From when on records are missed.
            cut: The records begin in the middle of a session: the first number of a CPU tells nothing.
        """
        self._start_ns = start_ns
        self._cut = cut
        self._skips = False
        self._seq: dict[int, int] = {}
        self._time: dict[int, int] = {}
        self._begin: list[int] = []
        self._end: list[int] = []
        self.records = 0

    def add(self, records: Records) -> None:
        """Takes a batch in."""
        if self._skips:
            return
        cpus = records["cpu"]
        order = np.argsort(cpus, kind="stable")
        cpus, seq = cpus[order], records["seq"][order].astype(np.uint32)
        step = np.empty(len(seq), np.int32)
        step[1:] = (seq[1:] - seq[:-1]).view(np.int32)
        heads = np.append(0, np.flatnonzero(cpus[1:] != cpus[:-1]) + 1)
        unseen = seq[heads] - np.uint32(1) if self._cut else np.zeros(len(heads), np.uint32)
        starts = zip(cpus[heads].tolist(), unseen.tolist(), strict=True)
        before = [self._seq.get(cpu, start) for cpu, start in starts]
        step[heads] = (seq[heads] - np.array(before, np.uint32)).view(np.int32)
        time = records["t_end"]
        tails = np.append(heads[1:], len(seq))
        if (step != 1).any():
            for cpu, first, last in zip(cpus[heads].tolist(), heads.tolist(), tails.tolist(), strict=True):
                self._note(cpu, step[first:last], time[order[first:last]].astype(np.int64))
        self._seq.update(zip(cpus[heads].tolist(), seq[tails - 1].tolist(), strict=True))
        self._time.update(zip(cpus[heads].tolist(), time[order[tails - 1]].tolist(), strict=True))

    def _note(self, cpu: int, step: npt.NDArray[np.int32], time: Ints) -> None:
        for row in np.flatnonzero(step > 1).tolist():
            missing = int(step[row]) - 1
            if row + 1 < len(step) and step[row + 1] <= 0:
                missing += int(step[row + 1]) - 1
            if missing > 0:
                self.records += missing
                self._begin.append(int(time[row - 1]) if row else self._time.get(cpu, self._start_ns))
                self._end.append(int(time[row]))

    def miss(self, begin_ns: int, end_ns: int) -> None:
        """Between these moments something is missing, of which nobody knows how much."""
        if self._skips:
            self._skips, self._cut = False, True
            self._seq.clear()
            self._time.clear()
        self._begin.append(begin_ns)
        self._end.append(end_ns)

    def skip(self) -> None:
        """What comes next is not all of it, on purpose: numbers tell of no loss until ``miss``."""
        self._skips = True

    def intervals(self) -> tuple[Ints, Ints]:
        """Disjoint, ordered intervals in which something is missing."""
        return union(np.array(self._begin, np.int64), np.array(self._end, np.int64))

    def forget(self, before_ns: int) -> None:
        """Drops what ended before, but for the last: whether anything is missing since then stays known."""
        last = max((end for end in self._end if end <= before_ns), default=before_ns)
        kept = [row for row, end in enumerate(self._end) if end >= last]
        self._begin, self._end = [self._begin[row] for row in kept], [self._end[row] for row in kept]

    def copy(self) -> LossFinder:
        """One that goes on from here by itself."""
        return apart(self)

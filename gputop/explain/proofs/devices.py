"""On which GPU a call works: by the device its thread chose, and the process's way to NVML's numbers."""

from __future__ import annotations

import numpy as np

from gputop.engine.gpu_of import Device, UnknownGpuError, visible_devices
from gputop.engine.gpus import devices, of_all_hosts
from gputop.explain.evidence.apiclass import Role
from gputop.explain.evidence.evidence import Columns, Evidence
from gputop.explain.evidence.ranges import FOREVER, Ints, Mask, subtract, unique_runs
from probes.samples import ProcessData, listed_gpus
from probes.source import Sample


class Devices:
    """Numbers the GPUs that calls work on; two processes share a number only when they provably share a GPU.

    Attributes:
        of_calls: The number for each row of ``evidence.calls``.
        labels: What each number stands for, in words.
        index: NVML's index of each number, -1 when it is not known.
        unsure: For each row of ``evidence.calls`` whether its thread's choice of a GPU may be missing, in a
            process that works on several: a record was lost since the thread chose one last.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._gpus = _gpus(evidence)
        self._numbers: dict[tuple[str, int, int], int] = {}
        self.labels: list[str] = []
        self.index: list[int] = []
        calls = evidence.calls
        chosen = self._chosen(calls)
        self.of_calls: Ints = np.zeros(len(calls), np.int64)
        pids = calls["pid"].astype(np.int64)
        pairs, _first, where = unique_runs((pids << 8) | chosen)
        numbers = [self._number(int(pair) >> 8, int(pair) & 0xFF) for pair in pairs]
        self.of_calls = np.array(numbers, np.int64)[where] if numbers else self.of_calls
        several, counts = np.unique(pairs >> 8, return_counts=True)
        self.unsure = self._unsure(calls, several[counts > 1])
        self._single = {pid: self._number(pid, 0) for pid in np.unique(pairs >> 8).tolist()}

    def number(self, index: int) -> int:
        """The number of a GPU by NVML's index."""
        return self._known(("gpu", index, 0), f"GPU {index}", index)

    def of(self, calls: Columns) -> Ints:
        """For calls outside ``evidence.calls``: the GPU of the call that their thread had made before."""
        evidence = self._evidence
        outer, row = evidence.calls, evidence.threads.row(calls["tid"])
        if not len(outer) or not len(calls):
            return np.zeros(len(calls), np.int64)
        begins = evidence.key(outer["row"], outer["begin"])
        place = np.maximum(np.searchsorted(begins, evidence.key(row, calls["begin"]), side="right") - 1, 0)
        same = outer["row"][place] == row
        first = np.array([self._single.get(pid, 0) for pid in calls["pid"].tolist()], np.int64)
        return np.where(same, self.of_calls[place], first)

    def _chosen(self, calls: Columns) -> Ints:
        """The device number that each call's thread had chosen, as the process counts."""
        last = self._last_choice(calls)
        chosen: Ints = np.zeros(len(calls), np.int64)
        rows = np.flatnonzero(last >= 0)  # few programs choose
        chosen[rows] = (calls["aux"][last[rows]] & np.uint64(0xFF)).astype(np.int64)
        return chosen

    def _last_choice(self, calls: Columns) -> Ints:
        """The row of the last choice of a GPU by the thread of each call, -1 where it made none."""
        sets = (self._evidence.role(calls) == Role.SET_DEVICE) & (calls["ret"] == 0)
        if not sets.any():
            return np.full(len(calls), -1, np.int64)
        last = np.maximum.accumulate(np.where(sets, np.arange(len(calls)), -1))
        same = (last >= 0) & (calls["row"][np.maximum(last, 0)] == calls["row"])
        return np.where(same, last, -1)

    def _unsure(self, calls: Columns, several: Ints) -> Mask:
        """See ``unsure``; ``several`` are the processes that work on several GPUs."""
        begin, end = self._evidence.lost
        if self._evidence.choices_kept:
            begin, end = subtract((begin, end), self._evidence.unkept)
        unsure: Mask = np.zeros(len(calls), np.bool_)
        if not len(end) or not len(several):
            return unsure
        last = self._last_choice(calls)
        chosen = np.where(last >= 0, calls["end"][np.maximum(last, 0)].astype(np.int64), -FOREVER)
        # the first loss that was over only after the choice
        place = np.searchsorted(end, chosen, side="right")
        lost = np.append(begin, FOREVER)[place] < calls["begin"].astype(np.int64)
        return lost & np.isin(calls["pid"].astype(np.int64), several)

    def _number(self, pid: int, ordinal: int) -> int:
        facts: ProcessData = self._evidence.facts.processes.get(pid, {})
        index = self._physical(facts, ordinal)
        if index >= 0:
            return self.number(index)
        return self._known(("process", pid, ordinal), f"device {ordinal} of process {pid}", index)

    def _known(self, key: tuple[str, int, int], label: str, index: int) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self.labels)
            self.labels.append(label)
            self.index.append(index)
        return self._numbers[key]

    def _physical(self, facts: ProcessData, ordinal: int) -> int:
        try:
            visible = visible_devices(facts, self._gpus)
        except UnknownGpuError:
            return -1
        return visible[ordinal] if ordinal < len(visible) else -1


def _gpus(evidence: Evidence) -> list[Device]:
    newest: Sample | None = None
    for sample in evidence.gpus:
        if listed_gpus(sample):
            newest = of_all_hosts(newest, sample)
    return devices(newest)

"""What a GPU really did: from the trace of torch.profiler (a Chrome trace), or from the simulated GPU's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gputop.simgpu import read_trace

WORK = ("kernel", "gpu_memcpy", "gpu_memset")
Floats = NDArray[np.float64]


def busy_ns(spans: Floats) -> float:
    """Time in which at least one of the spans (N×2: begin, end) runs."""
    if not len(spans):
        return 0.0
    spans = spans[np.argsort(spans[:, 0])]
    reach = np.maximum.accumulate(spans[:, 1])
    begin = np.maximum(spans[1:, 0], reach[:-1])
    return float(spans[0, 1] - spans[0, 0] + np.maximum(spans[1:, 1] - begin, 0).sum())


@dataclass(frozen=True)
class Profile:
    """A trace of torch.profiler; times are ns on its own clock.

    Attributes:
        work: Kernels, copies and fills, N×2.
        launched: Of those with a launch in the trace: end of the launching call, begin of the work, begin of
            the call; N×3.
        waits: Calls of cudaDeviceSynchronize and cudaStreamSynchronize, N×2.
    """

    work: Floats
    launched: Floats
    waits: Floats

    @staticmethod
    def read(path: Path) -> Profile:
        """Reads a file; without a GPU's work in it nothing is in it."""
        rows = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
        spans = [row for row in rows if row.get("ph") == "X"]
        calls = {
            row["args"]["correlation"]: row
            for row in spans
            if row.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in row.get("args", {})
        }
        work, launched = [], []
        for row in spans:
            if row.get("cat") not in WORK:
                continue
            begin = row["ts"] * 1e3
            work.append((begin, begin + row["dur"] * 1e3))
            call = calls.get(row["args"].get("correlation"))
            if call is not None and row["cat"] == "kernel":
                launched.append(((call["ts"] + call["dur"]) * 1e3, begin, call["ts"] * 1e3))
        waits = [
            (row["ts"] * 1e3, (row["ts"] + row["dur"]) * 1e3)
            for row in calls.values()
            if row["name"] in ("cudaDeviceSynchronize", "cudaStreamSynchronize")
        ]
        return Profile(_table(work, 2), _table(launched, 3), _table(waits, 2))

    def starts_ns(self) -> Floats:
        """From the end of a launch to the begin of its kernel, where nothing ran when it was launched."""
        if not len(self.launched) or not len(self.work):
            return np.empty(0)
        reach = np.maximum.accumulate(self.work[np.argsort(self.work[:, 0]), 1])
        begins = np.sort(self.work[:, 0])
        before = np.searchsorted(begins, self.launched[:, 1], side="left") - 1
        last = np.where(before >= 0, reach[np.maximum(before, 0)], -np.inf)
        free = last < self.launched[:, 2]
        return np.asarray(self.launched[free, 1] - self.launched[free, 0])

    def ends_ns(self) -> Floats:
        """From the end of the last work to the return of a wait that had to wait for it."""
        found = []
        for begin, end in self.waits:
            ended = (
                self.work[(self.work[:, 1] > begin) & (self.work[:, 1] <= end), 1] if len(self.work) else []
            )
            if len(ended):
                found.append(end - float(np.max(ended)))
        return np.array(found)

    def idle_waits_ns(self) -> Floats:
        """How long waits took that found nothing to wait for."""
        if not len(self.work):
            return np.empty(0)
        reach = np.maximum.accumulate(np.sort(self.work[:, 1]))
        ended = np.searchsorted(reach, self.waits[:, 0], side="right") == np.searchsorted(
            np.sort(self.work[:, 0]), self.waits[:, 1], side="left"
        )
        return np.asarray((self.waits[:, 1] - self.waits[:, 0])[ended])


def _table(rows: list[tuple[float, ...]], columns: int) -> Floats:
    return np.array(rows, dtype=np.float64).reshape(-1, columns)


def simulated_idle(trace: Path, pid: int, began: int, ended: int) -> float:
    """Share of a span (ns, CLOCK_MONOTONIC) in which the simulated GPU ran nothing of this process."""
    rows = read_trace(trace).rows
    rows = rows[(rows["pid"] == pid) & (rows["end"] > began) & (rows["start"] < ended)]
    spans = np.stack([np.maximum(rows["start"], began), np.minimum(rows["end"], ended)], axis=1).astype(
        np.float64
    )
    return 1 - busy_ns(spans) / (ended - began)

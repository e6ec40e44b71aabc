"""The processes on a GPU: their memory and their share of the GPU's time."""

from __future__ import annotations

import time
from typing import Any

import pynvml

_LOOK_BACK_US = 1_000_000  # at least: NVML keeps some samples of each process
_LONGEST_US = 10_000_000  # a process whose newest sample is older is idle
_WHOLE_GPU = 0xFFFFFFFF  # NVML's number of the instance of a process on a GPU that is not cut
_NO_SAMPLES = (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND)  # no process did anything: no error
USE = ("sm_percent", "memory_percent", "encoder_percent", "decoder_percent")


def held(gpu: Any) -> list[dict[str, Any]]:
    """Every process with a context on the GPU, by its number.

    Returns:
        ``pid``, ``type`` (C: computes, G: draws), ``memory_bytes`` (None when NVML does not report),
        ``gpu_instance`` (None on a GPU that is not cut).
    """
    found: dict[int, dict[str, Any]] = {}
    for entry in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu):
        found[entry.pid] = _row(entry, "C")
    for entry in _drawing(gpu):
        if entry.pid in found:
            found[entry.pid]["type"] = "C+G"
        else:
            found[entry.pid] = _row(entry, "G")
    return [found[pid] for pid in sorted(found)]


def _drawing(gpu: Any) -> list[Any]:
    try:
        return list(pynvml.nvmlDeviceGetGraphicsRunningProcesses(gpu))
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_NoPermission):
        return []  # a GPU without graphics, or with MIG: compute processes are known all the same


def _row(entry: Any, kind: str) -> dict[str, Any]:
    instance = getattr(entry, "gpuInstanceId", None)
    return {
        "pid": entry.pid,
        "type": kind,
        "memory_bytes": entry.usedGpuMemory,
        "gpu_instance": None if instance == _WHOLE_GPU else instance,
    }


class ProcessUse:
    """Each process's use of a GPU, by the time stamps of NVML's samples.

    NVML samples processes as often as it likes (a sixth of a second to a few): by the last
    second alone one would be idle between two samples that lie further apart.
    """

    def __init__(self) -> None:
        self._newest_us = 0
        self._apart_us = 0  # the shortest time seen between two samples

    def read(self, gpu: Any) -> dict[int, dict[str, int | None]]:
        """Figures of each process's newest sample; idle processes are not listed."""
        back_us = min(max(_LOOK_BACK_US, self._apart_us * 3 // 2), _LONGEST_US)
        now_us = time.time_ns() // 1000
        try:
            samples = _samples(gpu, now_us - back_us)
        except pynvml.NVMLError as error:
            if getattr(error, "value", None) in _NO_SAMPLES:
                return {}
            raise
        newest: dict[int, Any] = {}
        for sample in samples:
            if not now_us - back_us <= sample.timeStamp <= now_us + _LOOK_BACK_US:
                continue  # an entry that was never written, or from before the clock was set back
            if sample.pid not in newest or sample.timeStamp >= newest[sample.pid].timeStamp:
                newest[sample.pid] = sample
        self._learn(max((int(sample.timeStamp) for sample in newest.values()), default=0))
        return {pid: _use(sample) for pid, sample in newest.items()}

    def _learn(self, newest_us: int) -> None:
        """How far samples lie apart; a pause in which no process worked is no such time."""
        if newest_us > self._newest_us:
            apart_us = newest_us - self._newest_us
            if self._newest_us and apart_us <= _LONGEST_US:
                self._apart_us = min(self._apart_us or apart_us, apart_us)
            self._newest_us = newest_us


def _samples(gpu: Any, since_us: int) -> Any:
    """From the older query, else from that of driver 550 and later, which also knows GPUs that are cut."""
    try:
        return pynvml.nvmlDeviceGetProcessUtilization(gpu, since_us)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound) as refused:
        try:
            return pynvml.nvmlDeviceGetProcessesUtilizationInfo(gpu, since_us)
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound, AttributeError):
            raise refused from None


def _use(sample: Any) -> dict[str, int | None]:
    values = (sample.smUtil, sample.memUtil, sample.encUtil, sample.decUtil)
    return {key: _percent(value) for key, value in zip(USE, values, strict=True)}


def _percent(value: int) -> int | None:
    """A share; None where it is none: some drivers return memory that they never wrote."""
    return value if 0 <= value <= 100 else None

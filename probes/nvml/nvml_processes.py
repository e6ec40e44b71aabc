"""The processes on a GPU: what memory they hold and which part of the GPU's time they use."""

from __future__ import annotations

import time
from typing import Any

import pynvml

_LOOK_BACK_US = 1_000_000  # NVML keeps some samples of each process: those of the last second are asked for
_WHOLE_GPU = 0xFFFFFFFF  # NVML's number of the instance of a process on a GPU that is not cut
_NO_SAMPLES = (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND)  # no process did anything: no error
USE = ("sm_percent", "memory_percent", "encoder_percent", "decoder_percent")


def held(gpu: Any) -> list[dict[str, Any]]:
    """Every process with a context on the GPU, by its number.

    Args:
        gpu: NVML's handle.

    Returns:
        ``pid``, ``type`` (C: computes, G: draws), ``memory_bytes`` (None when NVML does not tell),
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
        return []  # a GPU that does not draw, or one that is cut: those that compute are known all the same


def _row(entry: Any, kind: str) -> dict[str, Any]:
    instance = getattr(entry, "gpuInstanceId", None)
    return {
        "pid": entry.pid,
        "type": kind,
        "memory_bytes": entry.usedGpuMemory,
        "gpu_instance": None if instance == _WHOLE_GPU else instance,
    }


def used(gpu: Any) -> dict[int, dict[str, int | None]]:
    """What each process used of the GPU, as of its newest sample; who did nothing is not listed.

    Args:
        gpu: NVML's handle.
    """
    try:
        samples = pynvml.nvmlDeviceGetProcessUtilization(gpu, time.time_ns() // 1000 - _LOOK_BACK_US)
    except pynvml.NVMLError as error:
        if getattr(error, "value", None) in _NO_SAMPLES:
            return {}
        raise
    newest: dict[int, Any] = {}
    now_us = time.time_ns() // 1000
    for sample in samples:
        if sample.timeStamp > now_us + _LOOK_BACK_US:
            continue  # from before the clock was set back
        if sample.pid not in newest or sample.timeStamp >= newest[sample.pid].timeStamp:
            newest[sample.pid] = sample
    return {pid: _use(sample) for pid, sample in newest.items()}


def _use(sample: Any) -> dict[str, int | None]:
    values = (sample.smUtil, sample.memUtil, sample.encUtil, sample.decUtil)
    return {key: _percent(value) for key, value in zip(USE, values, strict=True)}


def _percent(value: int) -> int | None:
    """Some drivers hand out memory that they never wrote: what is no share is not known."""
    return value if 0 <= value <= 100 else None

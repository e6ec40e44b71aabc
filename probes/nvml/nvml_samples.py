"""Utilisation samples: NVML keeps them by the wall clock, which may be set; here they have the other one."""

from __future__ import annotations

import time
from typing import Any

import pynvml

_LOOK_BACK_US = 1_000_000  # of the samples that NVML has kept from before
_STEP_NS = 100_000_000  # the clocks drift far less between two rounds unless one is set


class UtilizationSamples:
    """Samples of one GPU, each reported once.

    Where the wall clock was set since the last round (or the machine slept), the clock of the stamps that
    NVML holds then is not known: those samples are never reported.
    """

    def __init__(self) -> None:
        self._newest_us = 0  # NVML's time of the newest sample that was reported
        self._apart_ns: int | None = None  # wall clock minus monotonic clock, in the round before
        self._unclear: frozenset[int] = frozenset()

    def read(self, handle: Any) -> list[list[int]]:
        """[time, percent] of each sample since the last round, of the time since the one before it.

        Times are ns of CLOCK_MONOTONIC.
        """
        apart_ns = time.time_ns() - time.monotonic_ns()
        before_ns, self._apart_ns = self._apart_ns, apart_ns
        if before_ns is not None and abs(apart_ns - before_ns) > _STEP_NS:
            self._unclear = frozenset(at for at, _ in _held(handle, 0))
            self._newest_us = time.time_ns() // 1000
            return []
        since = self._newest_us or time.time_ns() // 1000 - _LOOK_BACK_US
        held = _held(handle, since)
        self._unclear &= {at for at, _ in held}  # a dropped sample may share its stamp with another
        now_us = time.time_ns() // 1000
        fresh = sorted((at, share) for at, share in held if since < at <= now_us and at not in self._unclear)
        if fresh:
            self._newest_us = fresh[-1][0]
        return [[at * 1000 - apart_ns, percent] for at, percent in fresh]


def _held(handle: Any, since_us: int) -> list[tuple[int, int]]:
    """(wall clock in microseconds, percent) of the samples that NVML holds from after a time."""
    try:
        _kind, samples = pynvml.nvmlDeviceGetSamples(handle, pynvml.NVML_GPU_UTILIZATION_SAMPLES, since_us)
    except pynvml.NVMLError_NotFound:  # none since then
        return []
    return [(int(one.timeStamp), int(one.sampleValue.uiVal)) for one in samples]

"""NVML in a thread of its own, so that a call that hangs costs numbers and not the screen."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

from probes.source import GPUS, Sample

_REASONS = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not offered by this GPU",
    pynvml.NVML_ERROR_NO_PERMISSION: "not permitted for this user",
    pynvml.NVML_ERROR_GPU_IS_LOST: "the GPU is lost",
    pynvml.NVML_ERROR_UNKNOWN: "NVML reports an unknown error",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "not offered by this driver",
}


class NvmlError(Exception):
    """NVML cannot be used; the message says why and what to do."""


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _reason(error: pynvml.NVMLError) -> str:
    return _REASONS.get(error.value, str(error))


# key of the sample -> how to read it. NVML's units: milliwatts, degrees Celsius, MHz, KB/s.
_READINGS: dict[str, Callable[[Any], int | None]] = {
    "power_milliwatts": pynvml.nvmlDeviceGetPowerUsage,
    "power_limit_milliwatts": pynvml.nvmlDeviceGetEnforcedPowerLimit,
    "temperature_celsius": lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
    "fan_percent": pynvml.nvmlDeviceGetFanSpeed,
    "sm_clock_mhz": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
    "memory_clock_mhz": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_MEM),
    "sm_clock_max_mhz": lambda gpu: pynvml.nvmlDeviceGetMaxClockInfo(gpu, pynvml.NVML_CLOCK_SM),
    "clock_event_reasons": lambda gpu: _clock_event_reasons(gpu),  # bits of nvmlClocksEventReasons
    "pcie_tx_bytes_per_second": lambda gpu: (
        1024 * pynvml.nvmlDeviceGetPcieThroughput(gpu, pynvml.NVML_PCIE_UTIL_TX_BYTES)
    ),
    "pcie_rx_bytes_per_second": lambda gpu: (
        1024 * pynvml.nvmlDeviceGetPcieThroughput(gpu, pynvml.NVML_PCIE_UTIL_RX_BYTES)
    ),
}


def _clock_event_reasons(gpu: Any) -> int:
    """Why the clocks are as they are; drivers before 535 know the function by its former name."""
    try:
        return int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu))
    except (pynvml.NVMLError_FunctionNotFound, AttributeError):
        return int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu))


_GROUPED = ("utilization_percent", "memory_utilization_percent", "memory_used_bytes", "memory_total_bytes")


def read_gpu(index: int) -> dict[str, Any]:
    """Everything NVML says of one GPU; what it refuses is None, with the reason in ``unavailable``."""
    gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
    row: dict[str, Any] = dict.fromkeys((*_GROUPED, *_READINGS))
    unavailable: dict[str, str] = {}

    def fill(keys: tuple[str, ...], read: Callable[[], tuple[Any, ...]]) -> None:
        try:
            row.update(zip(keys, read(), strict=True))
        except pynvml.NVMLError as error:
            unavailable.update(dict.fromkeys(keys, _reason(error)))

    def utilization() -> tuple[int, int]:
        rates = pynvml.nvmlDeviceGetUtilizationRates(gpu)
        return rates.gpu, rates.memory

    def memory() -> tuple[int, int]:
        info = pynvml.nvmlDeviceGetMemoryInfo(gpu)
        return info.used, info.total

    row |= {"index": index, "name": "GPU", "uuid": "", "processes": None}
    fill(("name",), lambda: (_text(pynvml.nvmlDeviceGetName(gpu)),))
    fill(("uuid",), lambda: (_text(pynvml.nvmlDeviceGetUUID(gpu)),))
    fill(_GROUPED[:2], utilization)
    fill(_GROUPED[2:], memory)
    for key, read in _READINGS.items():
        fill((key,), lambda read=read: (read(gpu),))  # type: ignore[misc]
    fill(("processes",), lambda: (_processes(gpu),))
    row["unavailable"] = unavailable
    return row


def _processes(gpu: Any) -> list[list[int | None]]:
    """[pid, bytes of device memory] of the processes with a context on the GPU."""
    return [[entry.pid, entry.usedGpuMemory] for entry in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)]


class NvmlSampler:
    """Reads all GPUs at an interval; ``latest`` never blocks.

    Args:
        interval_s: Seconds between samples.
        library: Absolute path of the NVML library instead of the system's (the simulated one).

    Raises:
        NvmlError: No NVML library, or it does not start.
    """

    def __init__(self, interval_s: float, library: Path | None = None) -> None:
        self._interval_s = interval_s
        self._latest: Sample | None = None
        self._stop = threading.Event()
        try:
            if library is not None:
                # pynvml asks for the library by its soname; the loader then finds this one loaded.
                ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
            pynvml.nvmlInit()
            self.driver = _text(pynvml.nvmlSystemGetDriverVersion())
        except pynvml.NVMLError_LibraryNotFound as error:
            raise NvmlError("no NVIDIA driver on this machine (libnvidia-ml.so.1 not found)") from error
        except pynvml.NVMLError as error:
            raise NvmlError(f"NVML does not start: {error}") from error
        except OSError as error:
            raise NvmlError(f"the NVML library does not load: {error}") from error
        self._thread = threading.Thread(target=self._run, name="gputop-nvml", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                gpus = [read_gpu(index) for index in range(pynvml.nvmlDeviceGetCount())]
                data = {"driver": self.driver, "gpus": gpus, "error": ""}
            except pynvml.NVMLError as error:
                data = {"driver": self.driver, "gpus": [], "error": _reason(error)}
            self._latest = Sample(GPUS, time.monotonic_ns(), data)
            self._stop.wait(self._interval_s)

    def latest(self) -> Sample | None:
        """The newest sample, or None before the first; its ``time_ns`` tells how old it is."""
        return self._latest

    def wait_first(self, timeout_s: float) -> None:
        """Waits for the first sample, at most ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        while self._latest is None and time.monotonic() < deadline:
            time.sleep(0.005)

    def close(self) -> None:
        """Stops sampling; a call that hangs is left behind in its daemon thread."""
        self._stop.set()
        self._thread.join(timeout=0.05)

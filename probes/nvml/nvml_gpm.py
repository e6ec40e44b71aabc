"""GPM: the counters of a GPU from Hopper on between two samples, as shares and rates."""

from __future__ import annotations

import time
from typing import Any

import pynvml

from probes.nvml.nvml_errors import RefusalError

_MIB = 1 << 20
_LEAST_S = 0.1  # between two samples; closer ones mean nothing
# key -> (NVML's number of the metric, value of one unit)
METRICS: dict[str, tuple[int, float]] = {
    "graphics_active_percent": (pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL, 1),
    "sm_active_percent": (pynvml.NVML_GPM_METRIC_SM_UTIL, 1),
    "sm_occupancy_percent": (pynvml.NVML_GPM_METRIC_SM_OCCUPANCY, 1),
    "tensor_active_percent": (pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, 1),
    "dram_bandwidth_percent": (pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL, 1),
    "pcie_tx_bytes_per_second": (pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC, _MIB),
    "pcie_rx_bytes_per_second": (pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC, _MIB),
}
SHARES = tuple(key for key in METRICS if key.endswith("_percent"))
TOO_OLD = "offered from the Hopper generation on (GPM)"


class GpmMeter:
    """Compares each sample with the one before, of a GPU or of one of its instances.

    Args:
        instance: NVML's number of a GPU instance (MIG); None for the whole GPU.
    """

    def __init__(self, instance: int | None = None) -> None:
        self._instance = instance
        self._offered: bool | None = None
        self._spare: Any = None
        self._last: Any = None
        self._sampled_s = 0.0
        self._values: dict[str, float | None] = {}

    def read(self, gpu: Any) -> dict[str, float | None]:
        """Values by key since the last call; None for a metric that this GPU does not have.

        Raises:
            RefusalError: The GPU is too old, or there is no sample to compare with yet.
            pynvml.NVMLError: NVML refuses.
        """
        self._check(gpu)
        now_s = time.monotonic()
        if self._values and now_s - self._sampled_s < _LEAST_S:
            return self._values
        fresh = self._spare if self._spare is not None else pynvml.nvmlGpmSampleAlloc()
        self._spare = fresh  # kept also when the next line fails: samples are never freed while gputop runs
        if self._instance is None:
            pynvml.nvmlGpmSampleGet(gpu, fresh)
        else:
            pynvml.nvmlGpmMigSampleGet(gpu, self._instance, fresh)
        before, self._last, self._spare = self._last, fresh, self._last
        if before is None:
            raise RefusalError("two samples are needed, there is one so far")
        self._sampled_s, self._values = now_s, metrics_between(before, fresh)
        return self._values

    def _check(self, gpu: Any) -> None:
        if self._offered is None:
            try:
                self._offered = bool(pynvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice)
            except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
                self._offered = False
        if not self._offered:
            raise RefusalError(TOO_OLD)

    def close(self) -> None:
        for sample in (self._last, self._spare):
            if sample is not None:
                pynvml.nvmlGpmSampleFree(sample)
        self._last = self._spare = None


def metrics_between(before: Any, after: Any) -> dict[str, float | None]:
    """The metrics between two samples, by name."""
    query = pynvml.c_nvmlGpmMetricsGet_t()
    query.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    query.numMetrics = len(METRICS)
    query.sample1, query.sample2 = before, after
    for place, (number, _) in enumerate(METRICS.values()):
        query.metrics[place].metricId = number
    pynvml.nvmlGpmMetricsGet(query)
    found: dict[str, float | None] = {}
    for place, (key, (_, unit)) in enumerate(METRICS.items()):
        metric = query.metrics[place]
        found[key] = None if metric.nvmlReturn else _rounded(metric.value * unit, key)
    return found


def _rounded(value: float, key: str) -> float | None:
    """A tenth of a percent and whole bytes: more digits would only make recordings larger."""
    if not 0 <= value < float("inf"):
        return None
    return round(value, 1) if key in SHARES else int(value)

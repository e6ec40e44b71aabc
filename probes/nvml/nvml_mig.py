"""MIG: the instances of a GPU, each with its memory and activity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml

from probes.nvml.nvml_errors import REFUSALS, reason_of
from probes.nvml.nvml_gpm import SHARES, GpmMeter


class MigReader:
    """Reads the instances of one GPU, and keeps figures that are compared from one time to the next."""

    def __init__(self) -> None:
        self._meters: dict[tuple[int, int], GpmMeter] = {}  # by place and NVML's number

    def read(self, gpu: Any) -> tuple[bool, list[dict[str, Any]]]:
        """(true if MIG is on, the instances).

        Raises:
            pynvml.NVMLError: NVML does not report MIG's mode.
        """
        if not pynvml.nvmlDeviceGetMigMode(gpu)[0]:
            return False, []
        rows = []
        for place in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
            try:
                handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, place)
            except (pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument):
                continue  # places may be empty between others
            rows.append(self._instance(gpu, handle, place))
        return True, rows

    def _instance(self, gpu: Any, handle: Any, place: int) -> dict[str, Any]:
        row: dict[str, Any] = {"index": place, "unavailable": {}}

        def fill(keys: tuple[str, ...], read: Callable[[], tuple[Any, ...]]) -> None:
            row.update(dict.fromkeys(keys))
            try:
                row.update(zip(keys, read(), strict=True))
            except REFUSALS as error:
                row["unavailable"].update(dict.fromkeys(keys, reason_of(error)))

        def memory() -> tuple[int, int]:
            info = pynvml.nvmlDeviceGetMemoryInfo(handle)
            return info.used, info.total

        fill(("name",), lambda: (text_of(pynvml.nvmlDeviceGetName(handle)),))
        fill(("uuid",), lambda: (text_of(pynvml.nvmlDeviceGetUUID(handle)),))
        fill(("gpu_instance",), lambda: (pynvml.nvmlDeviceGetGpuInstanceId(handle),))
        fill(("compute_instance",), lambda: (pynvml.nvmlDeviceGetComputeInstanceId(handle),))
        fill(("memory_used_bytes", "memory_total_bytes"), memory)
        fill(("multiprocessors",), lambda: (pynvml.nvmlDeviceGetAttributes_v2(handle).multiprocessorCount,))
        row |= self._activity(gpu, row)
        return row

    def _activity(self, gpu: Any, row: dict[str, Any]) -> dict[str, float | None]:
        number = row["gpu_instance"]
        shares: dict[str, float | None] = dict.fromkeys(SHARES)
        if number is None:
            reason = row["unavailable"].get("gpu_instance", "")
            row["unavailable"].update(dict.fromkeys(SHARES, reason))
            return shares
        meter = self._meters.setdefault((row["index"], number), GpmMeter(number))
        try:
            found = meter.read(gpu)
        except REFUSALS as error:
            row["unavailable"].update(dict.fromkeys(SHARES, reason_of(error)))
            return shares
        for key in SHARES:
            shares[key] = found[key]
            if found[key] is None:
                row["unavailable"][key] = "not offered by this GPU"
        return shares


def text_of(value: str | bytes) -> str:
    """NVML's text, which older bindings hand out as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value

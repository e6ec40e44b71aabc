"""Reads the log of the simulated GPU: the ground truth for observers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class ProcessLog:
    """A process's use of the simulated GPU.

    ``gpu_busy_ns`` is the time in which any stream had work, including queued work of a killed process;
    ``gpu_idle_ns`` is the rest between ``first_start_ns`` and ``last_end_ns`` (CLOCK_MONOTONIC).
    ``staging_ns`` is CPU time in copies to the device for reading pageable memory.
    """

    pid: int
    start: int
    comm: str
    calls: Mapping[str, int]
    gpu_busy_ns: int = 0
    gpu_idle_ns: int = 0
    kernel_busy_ns: int = 0
    first_start_ns: int = 0
    last_end_ns: int = 0
    bytes_h2d: int = 0
    bytes_d2h: int = 0
    bytes_d2d: int = 0
    staging_ns: int = 0


def _merge(cuda: dict[str, Any] | None, nvml: dict[str, Any] | None) -> ProcessLog:
    parts = [part for part in (cuda, nvml) if part is not None]
    calls = {name: count for part in parts for name, count in part["calls"].items() if count}
    first = {key: value for key, value in parts[0].items() if key not in {"calls", "lib"}}
    return ProcessLog(calls=calls, **first)


def read_log(path: str | PathLike[str]) -> list[ProcessLog]:
    """Return the processes in the order of their first call; symbols never called are left out.

    A process that used both CUDA and NVML wrote a line for each; they are one entry here.
    """
    found: dict[tuple[int, int, int], dict[str, dict[str, Any]]] = {}
    for text in Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
        if text.strip():
            line = json.loads(text)
            program = 0  # a process may become another program by exec
            while line["lib"] in found.get((line["pid"], line["start"], program), {}):
                program += 1
            found.setdefault((line["pid"], line["start"], program), {})[line["lib"]] = line
    return [_merge(libs.get("cuda"), libs.get("nvml")) for libs in found.values()]

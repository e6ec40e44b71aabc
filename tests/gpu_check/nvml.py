"""NVML's windows and delays: its utilisation beside a GPU that works half of each period."""

from __future__ import annotations

import ctypes
import threading
import time
from itertools import pairwise
from typing import Any

import numpy as np
import pynvml

from gputop.simgpu import nvml_path
from tests.gpu_check.machine import Machine, Program

PERIOD_S, LASTS_S, POLL_S = 2.0, 10.0, 0.01
STEP_NS = 10_000_000
WINDOWS_NS = tuple(range(20_000_000, 1_100_000_000, 20_000_000))
DELAYS_NS = tuple(range(0, 1_000_000_000, 10_000_000))


def windows(machine: Machine) -> dict[str, Any]:
    """The window and the delay that explain NVML's figures best, and which other figures it answers."""
    if machine.simulated:
        ctypes.CDLL(str(nvml_path()), mode=ctypes.RTLD_GLOBAL)
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    program = Program(machine, "calls.py")
    samples: list[tuple[int, int]] = []
    stop = threading.Event()

    def poll() -> None:
        while not stop.wait(POLL_S):
            samples.append((time.monotonic_ns(), pynvml.nvmlDeviceGetUtilizationRates(device).gpu))

    poller = threading.Thread(target=poll)
    try:
        poller.start()
        program.ask("wave", LASTS_S, PERIOD_S)
        spans = program.answer()["spans"]
        processes = _answers(lambda: len(pynvml.nvmlDeviceGetProcessUtilization(device, 0)))
    finally:
        stop.set()
        poller.join()
        program.close()
    window, delay, error = best(np.array(samples), np.array(spans))
    changes = [now for (_, before), (now, after) in pairwise(samples) if before != after]
    return {
        "window_ms": window / 1e6,
        "delay_ms": delay / 1e6,
        "error": round(error, 3),
        "updates_ms": round(float(np.median(np.diff(changes))) / 1e6, 1) if len(changes) > 1 else None,
        "process utilisation": processes,
        "GPM": _answers(lambda: bool(pynvml.nvmlGpmQueryDeviceSupport(device).isSupportedDevice)),
    }


def _answers(ask: Any) -> Any:
    try:
        return ask()
    except pynvml.NVMLError as error:
        return str(error)


def best(samples: np.ndarray[Any, Any], spans: np.ndarray[Any, Any]) -> tuple[int, int, float]:
    """Window and delay (ns) whose busy share is nearest the samples (time, percent), and the mean error."""
    begin, end = int(spans[0, 0]), int(spans[-1, 1])
    grid = np.arange(begin - STEP_NS, end + STEP_NS, 1_000_000)
    busy = np.zeros(len(grid))
    for first, last in spans:
        busy[(grid >= first) & (grid < last)] = 1.0
    summed = np.concatenate([[0.0], np.cumsum(busy)])

    def at(times: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.asarray(summed[np.clip(np.searchsorted(grid, times), 0, len(busy))])

    inside = samples[(samples[:, 0] > begin + WINDOWS_NS[-1] + DELAYS_NS[-1]) & (samples[:, 0] < end)]
    found = (0, 0, float("inf"))
    for window in WINDOWS_NS:
        for delay in DELAYS_NS:
            stop = inside[:, 0] - delay
            share = (at(stop) - at(stop - window)) * 1_000_000 / window
            error = float(np.abs(share - inside[:, 1] / 100).mean()) if len(inside) else float("inf")
            if error < found[2]:
                found = (window, delay, error)
    return found

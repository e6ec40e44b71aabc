"""NVML in a thread of its own, so that a call that hangs costs numbers and not the screen."""

from __future__ import annotations

import ctypes
import threading
import time
from pathlib import Path
from typing import Any

import pynvml

from probes import privileges
from probes.in_time import hurry
from probes.nvml_errors import reason_of
from probes.nvml_gpu import GpuReader
from probes.nvml_mig import text_of
from probes.source import GPUS, Sample

SLOW_SHARE = 0.4  # of an interval, for questions that are not asked in each round


class NvmlError(Exception):
    """NVML cannot be used; the message says why and what to do."""


class NvmlSampler:
    """Reads all GPUs at an interval; ``latest`` never blocks.

    In each round what changes quickly is asked of every GPU and told. What changes slowly, or takes the
    driver long, is asked after that, the most overdue first, while there is time: it delays no other figure.

    Args:
        interval_s: Seconds between samples.
        library: Absolute path of the NVML library instead of the system's (the simulated one).
        confined: Its thread gives up the rights that NVML does not need. Its start needs them: it may have
            the driver loaded.

    Raises:
        NvmlError: No NVML library, or it does not start.
    """

    def __init__(self, interval_s: float, library: Path | None = None, *, confined: bool = False) -> None:
        self._interval_s = interval_s
        self._confined = confined
        self._latest: Sample | None = None
        self._gpus: list[GpuReader] = []
        self._complete = threading.Event()
        self._stop = threading.Event()
        try:
            if library is not None:
                # pynvml asks for the library by its soname; the loader then finds this one loaded.
                ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
            pynvml.nvmlInit()
            self.driver = text_of(pynvml.nvmlSystemGetDriverVersion())
        except pynvml.NVMLError_LibraryNotFound as error:
            raise NvmlError("no NVIDIA driver on this machine (libnvidia-ml.so.1 not found)") from error
        except pynvml.NVMLError as error:
            raise NvmlError(f"NVML does not start: {error}") from error
        except OSError as error:
            raise NvmlError(f"the NVML library does not load: {error}") from error
        self._thread = threading.Thread(target=self._run, name="gputop-nvml", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        hurry()
        if self._confined:
            privileges.confine_thread(privileges.DRIVER)
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self._round(began)
            except pynvml.NVMLError as error:
                self._publish(time.monotonic_ns(), [], reason_of(error))
                self._complete.set()
            self._stop.wait(max(began + self._interval_s - time.monotonic(), 0))

    def _round(self, began_s: float) -> None:
        count = pynvml.nvmlDeviceGetCount()
        if count != len(self._gpus):
            self._gpus = [GpuReader(index) for index in range(count)]
        for gpu in self._gpus:
            gpu.look()
        time_ns = time.monotonic_ns()
        self._tell(time_ns)
        if self._ask_slow(began_s + SLOW_SHARE * self._interval_s):
            self._tell(time_ns)
        if all(gpu.complete for gpu in self._gpus):
            self._complete.set()

    def _ask_slow(self, until_s: float) -> bool:
        """Asks what is due, one question at least; whether something was asked."""
        late = [(*entry, gpu) for gpu in self._gpus for entry in gpu.due(time.monotonic())]
        late.sort(key=lambda entry: -entry[0])  # stable: the first time in the order of the questions
        for _, place, gpu in late:
            gpu.ask(place)
            if time.monotonic() >= until_s or self._stop.is_set():
                break
        return bool(late)

    def _tell(self, time_ns: int) -> None:
        lost = [f"GPU {gpu.index}: {gpu.lost}" for gpu in self._gpus if gpu.lost]
        error = f"{'; '.join(lost)}. See dmesg | grep -i xid; reset it or reboot." if lost else ""
        self._publish(time_ns, [gpu.row() for gpu in self._gpus], error)

    def _publish(self, time_ns: int, rows: list[dict[str, Any]], error: str) -> None:
        self._latest = Sample(GPUS, time_ns, {"driver": self.driver, "gpus": rows, "error": error})

    def latest(self) -> Sample | None:
        """The newest sample, or None before the first; its ``time_ns`` tells how old it is."""
        return self._latest

    def wait_first(self, timeout_s: float) -> None:
        """Waits for the first sample, at most ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        while self._latest is None and time.monotonic() < deadline:
            time.sleep(0.005)

    def wait_complete(self, timeout_s: float) -> None:
        """Waits until every figure that there is has been told once, at most ``timeout_s``."""
        self._complete.wait(timeout_s)

    def close(self) -> None:
        """Stops sampling; a call that hangs is left behind in its daemon thread."""
        self._stop.set()
        self._thread.join(timeout=0.05)

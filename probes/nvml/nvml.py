"""NVML in a thread of its own, so that a call that hangs costs numbers and not the screen."""

from __future__ import annotations

import ctypes
import threading
import time
from pathlib import Path
from typing import Any

import pynvml

from probes.nvml.nvml_errors import REFUSALS, reason_of
from probes.nvml.nvml_gpu import GpuReader
from probes.nvml.nvml_mig import text_of
from probes.process import privileges
from probes.process.realtime import hurry
from probes.source import GPUS, Sample

OPEN_S = 0.3  # waited for NVML at the start of a session; if it needs longer, it comes later
_PATIENCE_S = 1.0  # later answers are not waited for
SLOW_SHARE = 0.4  # of an interval, for queries that are not of each round


class NvmlError(Exception):
    """NVML cannot be used; the message has the reason and the next step."""


class NvmlSampler:
    """Reads all GPUs at an interval; making one and ``latest`` never block, whatever the driver does.

    In each round figures that change quickly are read from every GPU and reported. Those that change slowly,
    or are slow to read, follow, the most overdue first, while there is time: they delay no other figure.

    Args:
        interval_s: Seconds between samples.
        library: Absolute path of the NVML library instead of the system's (the simulated one).
        confined: Its thread gives up the rights that NVML does not need. Its start needs them: it may have
            the driver loaded.
    """

    def __init__(self, interval_s: float, library: Path | None = None, *, confined: bool = False) -> None:
        self._interval_s = interval_s
        self._library = library
        self._confined = confined
        self.driver = ""  # its version, once NVML has reported it
        self.cuda = ""  # the newest CUDA that the driver runs
        self._latest: Sample | None = None
        self._refusal = ""  # why it cannot be used
        self._gpus: list[GpuReader] = []
        self._opened = threading.Event()
        self._complete = threading.Event()
        self._stop = threading.Event()
        self._began_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="gputop-nvml", daemon=True)
        self._thread.start()

    def wait_opened(self, timeout_s: float) -> None:
        """Waits until NVML has started, at most ``timeout_s``: without persistence mode it needs seconds.

        Raises:
            NvmlError: No NVML library, or it does not start.
        """
        self._opened.wait(timeout_s)
        if self._refusal:
            raise NvmlError(self._refusal)

    def _open(self) -> str:
        """Starts NVML; returns why it cannot be used."""
        try:
            if self._library is not None:
                # pynvml loads the library by its soname; the loader then finds this one loaded.
                ctypes.CDLL(str(self._library), mode=ctypes.RTLD_GLOBAL)
            pynvml.nvmlInit()
            self.driver = text_of(pynvml.nvmlSystemGetDriverVersion())
            self.cuda = _cuda_version()
        except pynvml.NVMLError_LibraryNotFound:
            return "no NVIDIA driver on this machine (libnvidia-ml.so.1 not found)"
        except (pynvml.NVMLError, UnicodeDecodeError) as error:
            return f"NVML does not start: {reason_of(error)}"
        except OSError as error:
            return f"the NVML library does not load: {error}"
        return ""

    def _run(self) -> None:
        hurry()
        self._refusal = self._open()
        self._opened.set()
        if self._refusal:
            self._complete.set()
            return
        if self._confined:
            privileges.confine_thread(privileges.DRIVER)
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self._round(began)
            except REFUSALS as error:
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
        self._emit(time_ns)
        if self._query_slow(began_s + SLOW_SHARE * self._interval_s):
            self._emit(time_ns)
        if all(gpu.complete for gpu in self._gpus):
            self._complete.set()

    def _query_slow(self, until_s: float) -> bool:
        """Runs the queries that are due, one at least; True if there was any."""
        late = [(*entry, gpu) for gpu in self._gpus for entry in gpu.due(time.monotonic())]
        late.sort(key=lambda entry: -entry[0])  # stable: the first time in the order of the questions
        for _, place, gpu in late:
            gpu.query(place)
            if time.monotonic() >= until_s or self._stop.is_set():
                break
        return bool(late)

    def _emit(self, time_ns: int) -> None:
        lost = [f"GPU {gpu.index}: {gpu.lost}" for gpu in self._gpus if gpu.lost]
        error = f"{'; '.join(lost)}. See dmesg | grep -i xid; reset it or reboot." if lost else ""
        self._publish(time_ns, [gpu.row() for gpu in self._gpus], error)

    def _publish(self, time_ns: int, rows: list[dict[str, Any]], error: str) -> None:
        self._latest = Sample(GPUS, time_ns, self._facts(rows, error))

    def _facts(self, rows: list[dict[str, Any]], error: str) -> dict[str, Any]:
        return {"driver": self.driver, "cuda": self.cuda, "gpus": rows, "error": error}

    @property
    def answered(self) -> bool:
        """True if there was a sample of GPUs."""
        return self._latest is not None

    def latest(self) -> Sample:
        """The newest sample, with its ``time_ns``. Before the first: the reason for none."""
        return self._latest or self._nothing()

    def _nothing(self) -> Sample:
        waited = time.monotonic() - self._began_s
        error = self._refusal or "NVML has not answered yet"
        if not self._refusal and waited > _PATIENCE_S:
            error = (
                f"NVML does not answer, for {waited:.0f} s: the driver hangs (see dmesg); gputop waits for it"
            )
        return Sample(GPUS, time.monotonic_ns(), self._facts([], error))

    def wait_first(self, timeout_s: float) -> None:
        """Waits for the first sample, at most ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        while self._latest is None and time.monotonic() < deadline:
            time.sleep(0.005)

    def wait_complete(self, timeout_s: float) -> None:
        """Waits until every figure that there is has been reported once, at most ``timeout_s``."""
        self._complete.wait(timeout_s)

    def close(self) -> None:
        """Stops sampling; a call that hangs is left behind in its daemon thread."""
        self._stop.set()
        self._thread.join(timeout=0.05)


def _cuda_version() -> str:
    """``13.0``; "" where the driver reports none."""
    try:
        version = pynvml.nvmlSystemGetCudaDriverVersion_v2()
    except REFUSALS:
        return ""
    return f"{version // 1000}.{version % 1000 // 10}"

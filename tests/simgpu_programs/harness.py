"""Runs programs against the simulated GPU and reads what they say and what it logged."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import gputop.simgpu
from gputop.simgpu import ProcessLog, environment, read_log
from tests.waiting import HANGS_S

HERE = Path(__file__).resolve().parent
#: A program that has the driver alone; `kernel` and `launch` are all it needs of it.
DRIVER = (
    "import ctypes\nd = ctypes.CDLL('libcuda.so.1')\n"
    "P, Z, I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int\n"
    "ref = ctypes.byref\nctx, mod = P(), P()\nassert d.cuInit(0) == d.cuCtxCreate_v2(ref(ctx), 0, 0) == 0\n"
    "assert d.cuModuleLoadData(ref(mod), b'x') == 0\n"
    "def kernel(name):\n"
    "    f = P(); assert d.cuModuleGetFunction(ref(f), mod, name) == 0; return f\n"
    "def launch(f, ns, grid=1, block=1, stream=None):\n"
    "    v = ctypes.c_uint64(ns); a = (P * 1)(ctypes.addressof(v))\n"
    "    return d.cuLaunchKernel(f, grid, 1, 1, block, 1, 1, 0, stream, a, None)\n"
)
_PRELUDE = "import json, os, threading, time\nfrom cuda import Cuda, H2D, D2H, D2D\n"


class Bench:
    """One test's own simulated machine: own devices, own log."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "log.json"
        self.env = environment(os.environ) | {
            "SIMGPU_STATE": str(directory / "state"),
            "SIMGPU_LOG": str(self.log),
            "SIMGPU_INIT_MS": "0",
            "SIMGPU_FIRST_LAUNCH_MS": "0",
            "PYTHONPATH": str(HERE),
        }

    def start(self, body: str, **env: str) -> subprocess.Popen[str]:
        """Starts a Python program that uses the runtime through ctypes."""
        return subprocess.Popen(
            [sys.executable, "-c", _PRELUDE + body], env=self.env | env, stdout=subprocess.PIPE, text=True
        )

    @contextmanager
    def half_busy(self, megabytes: int = 100, **env: str) -> Iterator[subprocess.Popen[str]]:
        """A program that holds memory and keeps a device busy for 10 of every 20 ms, for 0.8 s already."""
        process = self.start(
            f"c = Cuda(); c.SetDeviceFlags(4); p = c.malloc({megabytes} << 20); print('ready', flush=True)\n"
            "t = time.monotonic()\n"
            "while True:\n"
            "    c.launch(10_000_000); t += 0.02; time.sleep(max(0, t - time.monotonic()))\n",
            **env,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.8)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def run(self, body: str, **env: str) -> Any:
        """Runs such a program and returns what it printed as JSON."""
        process = self.start(body, **env)
        out, _ = process.communicate(timeout=HANGS_S)
        assert process.returncode == 0
        return json.loads(out) if out.strip() else None

    def processes(self) -> list[ProcessLog]:
        """Returns the log's entries."""
        return read_log(self.log)


_PAUSES_S = (0, 2, 8, 20)  # before each measurement: a machine that is slow for some seconds is not so in all


class SlowMachineError(AssertionError):
    """A figure of time that is out of its bounds."""


@contextmanager
def figures() -> Iterator[None]:
    """Asserts of times, and of what is true while a kernel runs: they hold in one of four measurements."""
    try:
        yield
    except AssertionError as error:
        raise SlowMachineError(str(error)) from error


def patient(test: Callable[..., None]) -> Callable[..., None]:
    """A timed test that measures up to four times: the host of a machine may take its CPUs away."""
    return pytest.mark.timed(measured(test))


def measured(test: Callable[..., None]) -> Callable[..., None]:
    """Measures again while ``figures`` are bad, half a minute in all; anything else fails at once."""

    @functools.wraps(test)
    def measures(bench: Bench, **arguments: Any) -> None:
        for number, pause in enumerate(_PAUSES_S, start=1):
            time.sleep(pause)
            try:
                return test(bench=bench, **arguments)
            except SlowMachineError:
                if number == len(_PAUSES_S):
                    raise
                bench.log.unlink(missing_ok=True)
        return None

    return measures


def compile_c(source: str, output: Path) -> Path:
    """Compiles one of the C programs beside this file."""
    if shutil.which("cc") is None:
        pytest.skip("cc not found: apt-get install gcc libc6-dev")
    headers = Path(gputop.simgpu.__file__).parent
    command = ["cc", "-O2", f"-I{headers}", "-o", str(output), str(HERE / source), "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return output

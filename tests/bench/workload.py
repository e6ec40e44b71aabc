"""The library whose calls are measured, and the program that calls it."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.opened_files import elf_of

_HERE = Path(__file__).resolve().parent
_LIBRARY, _DRIVER_LIBRARY = "libcudart.so.12", "libcuda.so.1"
_FLAGS = ("-O1", "-fno-omit-frame-pointer", "-fcf-protection=none", "-fno-shrink-wrap")
_PUSH_RBP = 0x55
_POLL_S = 0.02

# functions by their number in driver.c
LIGHT = {"cudaLaunchKernel": 0, "cudaEventQuery": 1, "cudaEventRecord": 2}
COUNTED = {"cudaStreamSynchronize": 3, "cudaMemcpyAsync": 4, "cudaMalloc": 5}
IN_TURN = 6
FRAMES = 16  # between main and the call, where stacks are walked
OWN_FRAMES = 4  # of the native program: main, the innermost nested one, batch, call


@dataclass(frozen=True, slots=True)
class Timing:
    """Nanoseconds per call: of the fastest batch and of the middle one."""

    fastest_ns: float
    median_ns: float


def build(folder: Path) -> tuple[Path, Path]:
    """Compiles library and driver; returns their paths.

    Raises:
        RuntimeError: A function does not begin with ``push %rbp``: its probes would cost ten times as much.
    """
    library = _library(folder, _LIBRARY, "cudart.c")
    return library, _driver(folder, library)


def build_both_layers(folder: Path) -> tuple[Path, Path, Path]:
    """The same where launch and synchronisation call the driver; the second path is the driver's library."""
    folder.mkdir()
    below = _library(folder, _DRIVER_LIBRARY, "cuda.c")
    library = _library(folder, _LIBRARY, "cudart.c", "-DBOTH_LAYERS", below, "-Wl,-rpath,$ORIGIN")
    return library, below, _driver(folder, library)


def _library(folder: Path, name: str, source: str, *more: str | Path) -> Path:
    library = folder / name
    subprocess.run(
        ["cc", *_FLAGS, "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", library, _HERE / source, *more],
        check=True,
    )
    text = library.read_bytes()
    for function, offset in elf_of(library).functions.items():
        if function.startswith("cu") and text[offset] != _PUSH_RBP:
            raise RuntimeError(f"{function} does not begin with push %rbp")
    return library


def _driver(folder: Path, library: Path) -> Path:
    driver = folder / "driver"
    subprocess.run(
        ["cc", *_FLAGS, "-o", driver, _HERE / "driver.c", library, "-Wl,-rpath,$ORIGIN"],
        check=True,
    )
    return driver


class Driver:
    """The calling program, waiting for orders on its own CPU."""

    def __init__(self, program: Path, cpu: int, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [program, str(cpu), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid

    def order(self, function: int, batches: int, calls: int) -> None:
        """Lets it make ``batches`` times ``calls`` calls; ``answer`` says what they took."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{function} {batches} {calls}\n")
        self._process.stdin.flush()

    def ready(self, timeout_s: float) -> bool:
        """Whether it has an answer."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], timeout_s)[0])

    def answer(self, meanwhile: Callable[[], object] = lambda: None) -> Timing:
        """Waits for the end of an order; ``meanwhile`` is called every 20 ms."""
        assert self._process.stdout is not None
        while not self.ready(_POLL_S):
            meanwhile()
        meanwhile()
        fastest, median = map(float, self._process.stdout.readline().split())
        return Timing(fastest, median)

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Apart:
    """While it lasts this process leaves one CPU, ``cpu``, to the driver; both go before all others.

    So a machine that is not idle measures nearly what an idle one does.
    """

    def __init__(self) -> None:
        self._allowed = os.sched_getaffinity(0)
        self._priority = os.getpriority(os.PRIO_PROCESS, 0)
        self.cpu = max(self._allowed)

    def __enter__(self) -> Apart:
        os.sched_setaffinity(0, self._allowed - {self.cpu} or self._allowed)
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.setpriority(os.PRIO_PROCESS, 0, self._priority)
        os.sched_setaffinity(0, self._allowed)

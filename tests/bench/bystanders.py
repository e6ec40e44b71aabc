"""What programs that nobody watches pay: for a switch and for a CUDA call, while gputop watches others.

Without probes, with empty programs on the same tracepoints, under bpftrace's count of switches and under
gputop, in turn: CPU time of both processes of a ping-pong, so that it does not matter who else runs. A call:
without probes, with an empty pair, under gputop.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from statistics import median

from probes.code import libraries
from probes.ebpf import attacher, bpfcall, loader
from tests.bench import calls
from tests.bench.rows import Row
from tests.bench.workload import Apart
from tests.conftest import missing_for_bpftrace
from tests.ebpf.recording import bpftrace

LAUNCH_BOUND = 1.05  # without sessions (Linux 6.13) it is a trap more
OWN_BOUND = 1.05  # nothing of gputop's is in its way
SWITCH_BOUND = 1.11  # empty programs on the same tracepoints take 1.08; a look-up of a hash each made it 1.18
ROUNDS, BATCHES, TURNS = 15, 60, 100  # 30 ms a condition, batches of half a millisecond
RING_BYTES = 1 << 20
_BPFTRACE = "tracepoint:sched:sched_switch { @[cpu] = count(); }"
_EMPTY = "\n".join(
    (
        "#include <linux/types.h>",
        "#include <uapi/linux/ptrace.h>",
        *(f"int {name}(void *ctx) {{ return 0; }}" for name in loader.TRACEPOINTS.values()),
    )
)


class PingPong:
    """Two processes on one CPU that nobody watches."""

    def __init__(self, folder: Path, cpu: int) -> None:
        program = folder / "switches"
        source = Path(__file__).with_name("switches.c")
        subprocess.run(["cc", "-O1", "-o", program, source], check=True)
        self._process = subprocess.Popen(
            [program, str(cpu)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def switch_ns(self) -> float:
        """CPU time of a switch with its share of two system calls, in the fastest batch."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{BATCHES} {TURNS}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline().split()[0])

    def close(self) -> None:
        self._process.communicate()


@contextmanager
def _empty(programs: dict[str, int]) -> Iterator[None]:
    links = [bpfcall.attach_raw_tracepoint(program, name) for name, program in programs.items()]
    try:
        yield
    finally:
        for link in links:
            os.close(link)


@contextmanager
def _gputop(programs: loader.Programs) -> Iterator[None]:
    links = attacher.Attachments(programs)
    try:
        links.attach_scheduler()
        yield
    finally:
        links.close()


def rows(folder: Path) -> list[Row]:
    """A switch and a launch of who is not watched."""
    return [_switch(folder), *_launch(folder)]


def _launch(folder: Path) -> list[Row]:
    """In empty pairs of entry and return probes; and beside ``--pid``, which probes another process alone."""
    path, program = calls.build(folder)
    library = libraries.target(path)
    assert library is not None
    launch = calls.LIGHT["cudaLaunchKernel"]
    found: list[tuple[float, float, float, float]] = []

    def took(driver: calls.Driver) -> float:
        driver.order(launch, BATCHES, TURNS)
        return driver.answer().fastest_ns

    with Apart() as place, calls.Driver(program, place.cpu) as driver:
        empty, ours = calls.Empty(library), calls.Gputop(library, os.getpid())
        for _ in range(ROUNDS):
            bare = took(driver)
            with empty.attached():
                pair = took(driver)
            with ours.attached():
                traced = took(driver)
            with ours.attached(os.getpid()):
                found.append((bare, pair, traced, took(driver)))
        lost = ours.close()
    if lost or ours.calls:
        raise RuntimeError(f"{ours.calls} calls of a bystander were seen, {lost} records lost")
    ratio = median((traced - bare) / (pair - bare) for bare, pair, traced, _ in found)
    beside = median(own / bare for bare, _, _, own in found)
    bare, pair, traced, own = (median(times) for times in zip(*found, strict=True))
    detail = f"{bare:.0f} ns without, {pair:.0f} with an empty pair, {traced:.0f} under gputop"
    return [
        Row("launch of a bystander / empty pair", ratio, "", LAUNCH_BOUND, detail),
        Row("launch of a bystander beside --pid / without", beside, "", OWN_BOUND, f"{own:.0f} ns beside"),
    ]


def _switch(folder: Path) -> Row:
    """Under gputop against none, with the others beside."""
    module, _, empty, _ = loader.load_text(_EMPTY, (), loader.TRACEPOINTS, (), multi=True)
    ours = loader.load(loader.Options(False, RING_BYTES, os.getpid(), "off"))
    under: dict[str, Callable[[], AbstractContextManager[None]]] = {
        "none": nullcontext,
        "empty programs": lambda: _empty(empty),
        "gputop": lambda: _gputop(ours),
    }
    if not missing_for_bpftrace():
        under["bpftrace's count of switches"] = lambda: bpftrace(_BPFTRACE, folder / "bystanders.txt")
    found: dict[str, list[float]] = {name: [] for name in under}
    with Apart() as place:
        pair = PingPong(folder, place.cpu)
        for _ in range(ROUNDS):
            for name, attached in under.items():
                with attached():
                    found[name].append(pair.switch_ns())
        pair.close()
    ours.module.close()
    module.close()
    ratio = {
        name: median(took / bare for took, bare in zip(times, found["none"], strict=True))
        for name, times in found.items()
    }
    beside = ", ".join(f"{name} {ratio[name]:.3f}" for name in ratio if name not in ("none", "gputop"))
    detail = f"{median(found['none']):.0f} ns without; {beside}"
    return Row("switch of a bystander / without probes", ratio["gputop"], "", SWITCH_BOUND, detail)

"""What a call costs under other tools that time calls, against what it costs under gputop.

bpftrace adds times up in a histogram, or prints each call; perf records both ends; a program of bcc's sends
each call through a ring buffer or a perf buffer. Each traces the functions below and nothing else.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median

from probes.code import libraries
from tests.bench.calls import Costs, Driver, Empty, Gputop
from tests.bench.rows import Row
from tests.bench.workload import COUNTED, FRAMES, LIGHT, OWN_FRAMES, Apart, build
from tests.conftest import missing_for_bpftrace
from tests.waiting import wait_until

FUNCTIONS = {
    name: (LIGHT | COUNTED)[name] for name in ("cudaLaunchKernel", "cudaStreamSynchronize", "cudaMemcpyAsync")
}
ROUNDS, BATCHES, CALLS = 5, 200, 100
BOUND = 1.1  # of each that tells calls: ahead of them, but for the noise of five rounds
HISTOGRAM = "bpftrace, histograms"  # tells no calls
_GROUP = "gputop_bench"
_BCC = Path(__file__).with_name("bcc_calls.py")
Tool = Callable[[], AbstractContextManager[None]]


def rows(folder: Path) -> list[Row]:
    """A row a tool that is installed: gputop's price in that tool's, of the function where it is worst."""
    path, program = build(folder)
    library = libraries.target(path)
    assert library is not None
    made = ROUNDS * BATCHES * CALLS * len(FUNCTIONS)
    with Apart() as place, Driver(program, place.cpu, str(FRAMES - OWN_FRAMES)) as driver:
        lost: dict[str, int] = {}
        tools = _tools(path, folder, driver.pid, lost)
        empty, gputop = Empty(library), Gputop(library, driver.pid, "off")
        lined = Gputop(library, driver.pid)
        found: list[dict[str, Costs]] = []
        for _ in range(ROUNDS):
            costs = {"": _measure(driver)}
            with empty.attached():
                costs["empty pair"] = _measure(driver)
            with gputop.attached():
                costs["gputop"] = _measure(driver, gputop)
            with lined.knowing([]):
                costs["gputop with lines"] = _measure(driver, lined)
            for name, tool in tools.items():
                with tool():
                    costs[name] = _measure(driver)
            found.append(costs)
        for one in (gputop, lined):
            if one.close() or one.calls != made:
                raise RuntimeError(f"{one.calls} calls seen of {made}")
    return [_row(name, found, lost.get(name), made) for name in tools]


def _measure(driver: Driver, gputop: Gputop | None = None) -> Costs:
    costs = {}
    for name, number in FUNCTIONS.items():
        driver.order(number, BATCHES, CALLS)
        costs[name] = driver.answer(gputop.drain if gputop else lambda: None).median_ns
    return costs


def _row(tool: str, found: list[dict[str, Costs]], lost: int | None, made: int) -> Row:
    ratios, texts = [], []
    for name in FUNCTIONS:

        def price(under: str, name: str = name) -> float:
            return median(
                (costs[under][name] - costs[""][name]) / (costs["empty pair"][name] - costs[""][name])
                for costs in found
            )

        ratios.append(price("gputop") / price(tool))
        ours = f"{price('gputop'):.2f} ({price('gputop with lines'):.2f} with lines)"
        texts.append(f"{name.removeprefix('cuda')} {ours} and {price(tool):.2f} empty pairs")
    if lost is not None:
        texts.append(f"it lost {lost / made:.1%} of the calls")
    bound = None if tool == HISTOGRAM else BOUND
    return Row(f"a call under gputop / {tool}", max(ratios), "", bound, "; ".join(texts))


# -- the tools -----------------------------------------------------------------------------------------


def _tools(library: Path, folder: Path, pid: int, lost: dict[str, int]) -> dict[str, Tool]:
    found: dict[str, Tool] = {}
    if not missing_for_bpftrace():
        found[HISTOGRAM] = lambda: _bpftrace(library, folder, HISTOGRAM, "@took[func] = hist({});", lost)
        name = "bpftrace, each call"
        found[name] = lambda: _bpftrace(library, folder, name, 'printf("%d %d\\n", tid, {});', lost)
        if shutil.which("perf"):
            found["perf record"] = lambda: _perf(library, folder, pid, lost)
    for kind in ("ring", "perf"):
        found[f"bcc, {kind} buffer"] = lambda kind=kind: _bcc(library, kind, lost)  # type: ignore[misc]
    return found


@contextmanager
def _bpftrace(library: Path, folder: Path, name: str, told: str, lost: dict[str, int]) -> Iterator[None]:
    entries = ",".join(f"uprobe:{library}:{function}" for function in FUNCTIONS)
    returns = ",".join(f"uretprobe:{library}:{function}" for function in FUNCTIONS)
    script = (
        'BEGIN { printf("ready\\n"); } interval:ms:50 { printf("ready\\n"); } '
        f"{entries} {{ @since[tid] = nsecs; }} "
        f"{returns} /@since[tid]/ {{ {told.format('nsecs - @since[tid]')} delete(@since[tid]); }}"
    )
    output = folder / "bpftrace.txt"
    with output.open("w") as file:
        tracer = subprocess.Popen(
            ["bpftrace", "-B", "line", "-e", script], stdout=file, stderr=subprocess.PIPE, text=True
        )
        # an interval is attached after what stands before it
        wait_until(lambda: output.read_text().count("ready") > 1, "bpftrace to attach")
        try:
            yield
        finally:
            tracer.send_signal(signal.SIGINT)
            errors = tracer.communicate(timeout=60)[1]
    if name != HISTOGRAM:
        said = [
            int(count) for count in re.findall(r"Lost (\d+)", errors + output.read_text(errors="replace"))
        ]
        lost[name] = lost.get(name, 0) + sum(said)


@contextmanager
def _perf(library: Path, folder: Path, pid: int, lost: dict[str, int]) -> Iterator[None]:
    probe = ["perf", "probe", "--quiet"]
    added = [
        word
        for function in FUNCTIONS
        for at in (function, f"{function}%return")
        for word in ("--add", f"{_GROUP}:{function}{'_end' if at != function else ''}={at}")
    ]
    subprocess.run([*probe, "-x", str(library), *added], check=True, capture_output=True)
    try:
        data, control, answer = (folder / name for name in ("perf.data", "perf.control", "perf.answer"))
        for fifo in (control, answer):
            if not fifo.exists():
                os.mkfifo(fifo)
        command = ["perf", "record", "--quiet", "-e", f"{_GROUP}:*", "-p", str(pid), "-o", str(data)]
        tracer = subprocess.Popen(
            [*command, "-D", "-1", f"--control=fifo:{control},{answer}"], stderr=subprocess.PIPE, text=True
        )
        with control.open("w") as ask, answer.open() as hear:
            ask.write("enable\n")
            ask.flush()
            hear.readline()
        try:
            yield
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.communicate(timeout=60)
        report = subprocess.run(
            ["perf", "report", "--stats", "-i", str(data)], capture_output=True, text=True, check=True
        )
        samples = sum(int(count) for count in re.findall(r"^\s*SAMPLE events:\s+(\d+)", report.stdout, re.M))
        missing = BATCHES * CALLS * len(FUNCTIONS) - samples // 2
        lost["perf record"] = lost.get("perf record", 0) + max(0, missing)
    finally:
        subprocess.run([*probe, "--del", f"{_GROUP}:*"], check=True, capture_output=True)


@contextmanager
def _bcc(library: Path, kind: str, lost: dict[str, int]) -> Iterator[None]:
    tracer = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.bcc_calls", str(library), kind, *FUNCTIONS],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert tracer.stdout is not None
    if tracer.stdout.readline() != "ready\n":
        raise RuntimeError("bcc did not attach")
    try:
        yield
    finally:
        tracer.send_signal(signal.SIGINT)
        came = int(tracer.communicate(timeout=60)[0].split()[0])
    name = f"bcc, {kind} buffer"
    lost[name] = lost.get(name, 0) + BATCHES * CALLS * len(FUNCTIONS) - came

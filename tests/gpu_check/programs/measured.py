"""A loop in phases that are asked for on standard input: ``begin``, ``run SECONDS``, ``profile STEPS FILE``.

``run SECONDS FILE`` ends once the file is there. Each is answered by a line of JSON with the loop's own
clock. Nothing of gputop is imported: this runs in the machine's own Python. Before ``begin`` no function of
CUDA is called, so that a recorder sees the first one.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

import torch

WARM_UP_S = 1.0


def answer(**said: object) -> None:
    print(json.dumps({"pid": os.getpid(), **said}), flush=True)


def serve(make: Callable[[], Callable[[], object]]) -> None:
    """Does what it is asked for; ``make`` makes one unit of work."""
    answer(ready=True)
    sys.stdin.readline()
    step = make()
    count, began = 0, time.monotonic_ns()
    while count < 3 or time.monotonic_ns() - began < WARM_UP_S * 1e9:
        step()
        count += 1
    torch.cuda.synchronize()
    answer(warm=True)
    for line in sys.stdin:
        what, *more = line.split()
        if what == "run":
            answer(**run(step, float(more[0]), *more[1:]))
        elif what == "profile":
            answer(**profiled(step, int(more[0]), more[1]))
        else:
            return


def run(step: Callable[[], object], seconds: float, until: str = "") -> dict[str, int]:
    units, began = 0, time.monotonic_ns()
    while time.monotonic_ns() - began < seconds * 1e9 and not (until and os.path.exists(until)):
        step()
        units += 1
    torch.cuda.synchronize()
    return {"units": units, "began": began, "ended": time.monotonic_ns()}


def profiled(step: Callable[[], object], steps: int, file: str) -> dict[str, object]:
    """Some steps under torch.profiler; its trace is left in a file."""
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        torch.cuda.synchronize()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    profile.export_chrome_trace(file)
    return {"units": steps}


def sized(
    make: Callable[[int], Callable[[], object]], size: int, at_least_ms: float = 12.0
) -> Callable[[], object]:
    """A step of at least so many milliseconds of GPU time: the size is doubled until it is one."""
    while True:
        step = make(size)
        step()
        torch.cuda.synchronize()
        began = time.monotonic_ns()
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        if time.monotonic_ns() - began >= 3e6 * at_least_ms or size >= 1 << 20:
            return step
        size *= 2

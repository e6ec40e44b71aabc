"""A stop-watch for loops: warm-up is left out, and a line of JSON tells how long a unit of work takes."""

from __future__ import annotations

import json
import os
import random
import time
from contextlib import suppress

SECONDS = float(os.environ.get("SECONDS", "5"))
SEED = int(os.environ.get("SEED", "1"))
WARM_UP = 5
TASKS = "/proc/self/task"


def delayed_ns() -> int:
    """How long this process's threads were runnable and had no CPU, ns, since each began (schedstat)."""
    delayed = 0
    for thread in os.listdir(TASKS):
        with suppress(FileNotFoundError, ProcessLookupError), open(f"{TASKS}/{thread}/schedstat") as stat:
            delayed += int(stat.read().split()[1])  # if it has not ended meanwhile
    return delayed


class Clock:
    """Counts units of work (steps, batches, requests).

    Args:
        warm_up: So many units are left out.
        seconds: After so long ``tick`` says that it is enough; ``SECONDS`` in the environment without it.
    """

    def __init__(self, warm_up: int = WARM_UP, seconds: float = SECONDS) -> None:
        self._warm_up, self._seconds = warm_up, seconds
        self._units = 0
        self._began, self._delayed = time.monotonic_ns(), delayed_ns()

    def tick(self) -> bool:
        """A unit is done; whether it is enough."""
        self._units += 1
        now = time.monotonic_ns()
        if self._units == self._warm_up:
            self._began, self._delayed = now, delayed_ns()
        return self._units > self._warm_up and now - self._began > self._seconds * 1e9

    def report(self) -> None:
        """Prints how many units were done in how long."""
        ended = time.monotonic_ns()
        said = {
            "units": self._units - self._warm_up,
            "ns": ended - self._began,
            "delayed": max(delayed_ns() - self._delayed, 0),
            "warm_up": self._warm_up,
            "began": self._began,
            "ended": ended,
            "pid": os.getpid(),
        }
        print(json.dumps(said), flush=True)


def chosen(values: list[int], what: str = "") -> int:
    """One of the values, by ``SEED``."""
    return random.Random(f"{SEED}/{what}").choice(values)

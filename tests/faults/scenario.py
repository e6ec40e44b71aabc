"""A scenario: a script with one injected cause of known size, and what must be reported of it.

A script is text. A line ``role NAME KIND QUEUE CPU NICE`` begins a thread or process (the first is the
main thread); each line after it is ``LABEL OPERATION ARGUMENTS``. The label says whose fault the time of the
operation is if the GPU is idle meanwhile: a cause, ``-`` for calls, ``@ROLE|CAUSE`` for a wait (whatever that
role does, else the cause), ``BLOCKED~CPU`` for two causes by what the thread did. QUEUE is the label of the
time in which the role was off its CPU while it burned.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Language = Literal["c", "python"]
MS = 1_000_000

# what a parameter may be; every run draws anew
RANGES: dict[str, tuple[float, float]] = {
    "kernel_ms": (0.2, 50.0),
    "steps": (20, 500),
    "streams": (1, 3),
}
WALL_MS = 750.0  # what the steps of one run should take
LONGEST_MS = 1300.0  # and what they may at most, where 20 steps take long
SWITCH_NS = 4000
THROTTLED_AFTER_S = 0.8
LIMIT_MS = 2000.0  # on a machine that is busy otherwise, the main role ends its outermost loop then

PROVED = frozenset({"proved"})
STRONG = frozenset({"strong"})
EITHER = frozenset({"proved", "strong"})


@dataclass(frozen=True, slots=True)
class Expected:
    """What must be reported of one cause.

    ``bound`` is "proved" when the time itself must be right, "between" when the truth only has to lie within
    what is said, "none" when nothing may be said to be certain. Calls on files are one cause with CPU time
    that samples find in them.
    """

    cause: str
    levels: frozenset[str]
    kind: Literal["idle", "waste"] = "idle"
    bound: Literal["proved", "between", "none"] = "proved"
    within: str = ""  # the label of CPU time inside the same call, which may be reported with it


@dataclass(frozen=True, slots=True)
class Scenario:
    """One drawn run. ``expected`` in the order in which it must be reported; empty for negative controls."""

    id: str
    title: str
    script: str
    expected: tuple[Expected, ...]
    steps: int
    language: Language = "c"
    attached: bool = False  # gputop comes when the program already runs
    streams: str = "n"
    blocking: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    outside: str = ""  # a script of a program that gputop does not watch
    server_ms: float = 0.0  # a server that answers after so long
    quota: float = 0.0  # CPU quota of the program's control group
    throttle_mhz: int = 0  # the GPU's clock from THROTTLED_AFTER_S on
    nominal_ns: int = 0  # of a kernel at the full clock
    ranks: int = 0  # of NCCL, each with a device of its own
    kill_after_s: float = 0.0  # SIGKILL
    compare: bool = True  # whether all idle time is held to the truth
    events: int = 0  # single long gaps that must be reported as such
    tolerance: float = 0.05
    switches: int = 0  # a step's: the kernel's CPU clock and its tracepoints are SWITCH_NS apart
    limit_ms: float = LIMIT_MS
    parameters: str = ""


class Draw:
    """Draws parameters for one scenario; the same seed gives the same."""

    def __init__(self, seed: int, name: str) -> None:
        self.random = random.Random(f"{seed}/{name}")
        self.said: list[str] = []
        self.blocking = False
        self.streams = "n"

    def say(self, name: str, value: object) -> None:
        """Notes a parameter for the table."""
        self.said.append(f"{name}={value}")

    def near(self, name: str, value: float, spread: float = 0.3) -> float:
        """A value around the catalogue's."""
        drawn = round(value * self.random.uniform(1 - spread, 1 + spread), 3)
        self.say(name, drawn)
        return drawn

    def kernel(
        self, beside_ms: float, least: float | None = None, most: float | None = None
    ) -> tuple[int, int]:
        """Duration of a step's kernel in ns and the number of steps, so that the run stays short."""
        low, high = RANGES["kernel_ms"]
        fewest, largest = RANGES["steps"]
        low, high = max(low, least or low), min(high, most or high, LONGEST_MS / fewest - beside_ms)
        kernel = low if high <= low else low * (high / low) ** self.random.random()
        steps = int(min(max(WALL_MS / (kernel + beside_ms), fewest), largest))
        self.say("kernel_ms", round(kernel, 2))
        self.say("steps", steps)
        return int(kernel * MS), steps

    def how(self, *, streams: bool = True, blocking: bool | None = None) -> None:
        """Streams, and how a wait is done."""
        self.blocking = self.random.random() < 0.5 if blocking is None else blocking
        if streams:
            count = self.random.randint(*map(int, RANGES["streams"]))
            self.streams = "".join(self.random.choice("nb") for _ in range(count))
        self.say("sync", "block" if self.blocking else "spin")
        self.say("streams", self.streams)

    def language(self) -> Language:
        """C or Python."""
        drawn: Language = "python" if self.random.random() < 0.4 else "c"
        self.say("in", drawn)
        return drawn

    def attached(self) -> bool:
        """Whether gputop comes later."""
        late = self.random.random() < 0.15
        if late:
            self.say("attach", "mid-run")
        return late


Maker = Callable[[Draw], Scenario]
SCENARIOS: dict[str, Maker] = {}


def scenario(name: str) -> Callable[[Maker], Maker]:
    """Registers the function that draws a scenario."""

    def register(make: Maker) -> Maker:
        assert name not in SCENARIOS, name
        SCENARIOS[name] = make
        return make

    return register


def role(name: str, kind: str = "main", queue: str = "C13", cpu: int = 1, nice: int = 0) -> str:
    """The first line of a role."""
    return f"role {name} {kind} {queue} {cpu} {nice}\n"


def lines(*parts: str | tuple[int, str]) -> str:
    """Operations; a pair is a loop of so many rounds (0: for ever)."""
    text = ""
    for part in parts:
        if isinstance(part, str):
            text += part.rstrip("\n") + "\n"
        else:
            text += f"- loop {part[0]}\n{part[1]}- end\n"
    return text


def launches(draw: Draw, kernel: int) -> str:
    """A kernel on each stream; all but the first stream have been waited for when this is over."""
    count = len(draw.streams)
    text = "".join(f"- launch {stream} {kernel} 1\n" for stream in range(count))
    return text + "".join(f"C15 sync {stream}\n" for stream in range(1, count))


WARM = lines("- launch 0 100000 1", "- devsync", "- gate")

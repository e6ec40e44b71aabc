"""What a workload is, and the words that start one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gputop.process.isolation import isolated

MIB = 1 << 20
Steps = Iterator[int]


def steps_until(deadline: float | None) -> Steps:
    """Numbers steps until ``deadline`` (time.monotonic), or for ever; one at least on slow machines."""
    step = 0
    while not step or deadline is None or time.monotonic() < deadline:
        yield step
        step += 1


@dataclass(frozen=True, slots=True)
class Story:
    """A workload by name; ``run`` takes the steps to do and returns how many were done."""

    name: str
    run: Callable[[Steps], int]

    @property
    def title(self) -> str:
        """What it shows, from the function's docstring."""
        return (self.run.__doc__ or "").strip()


# The words that start a workload, and whether a command is one.

_MODULE = "gputop.demo"
ALONE = "--alone"


def words_of(name: str, duration_s: float | None = None) -> list[str]:
    """What starts a workload, in an environment that has the simulated GPU.

    Args:
        name: One of ``STORIES``.
        duration_s: When it ends; None: when it is stopped.
    """
    return isolated(_MODULE, name, *([str(duration_s)] if duration_s else []))


def is_workload(command: Sequence[str]) -> bool:
    """Whether a command is one of them, started by us or as ``gputop demo NAME --alone``."""
    own = isolated(_MODULE)
    if list(command[: len(own)]) == own:
        return True
    return (
        len(command) > 1 and Path(command[0]).name == "gputop" and command[1] == "demo" and ALONE in command
    )

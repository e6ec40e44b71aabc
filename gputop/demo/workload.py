"""The type of a demo program, and the command that starts one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gputop.process.isolation import isolated

MIB = 1 << 20
Steps = Iterator[int]


def steps_until(deadline: float | None) -> Steps:
    """Yield the numbers of steps until ``deadline`` (time.monotonic), or for ever; at least one."""
    step = 0
    while not step or deadline is None or time.monotonic() < deadline:
        yield step
        step += 1


@dataclass(frozen=True, slots=True)
class Story:
    """A demo program; ``run`` iterates over the steps and returns how many were done."""

    name: str
    run: Callable[[Steps], int]

    @property
    def title(self) -> str:
        """The docstring of ``run``."""
        return (self.run.__doc__ or "").strip()


_MODULE = "gputop.demo"
ALONE = "--alone"


def words_of(name: str, duration_s: float | None = None) -> list[str]:
    """Return the command of a demo program, for an environment with the simulated GPU.

    Args:
        name: One of ``STORIES``.
        duration_s: When it ends; None: never.
    """
    return isolated(_MODULE, name, *([str(duration_s)] if duration_s else []))


def is_workload(command: Sequence[str]) -> bool:
    """True if a command is a demo program, started by gputop or as ``gputop demo NAME --alone``."""
    own = isolated(_MODULE)
    if list(command[: len(own)]) == own:
        return True
    return (
        len(command) > 1 and Path(command[0]).name == "gputop" and command[1] == "demo" and ALONE in command
    )

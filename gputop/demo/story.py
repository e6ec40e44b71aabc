"""What a workload is: a function that runs steps until its clock says stop, and its name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

KIB = 1 << 10
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

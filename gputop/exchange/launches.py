"""Kernel names and launch shapes: columns beside those of calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gputop.engine.calls.launch_counts import launching
from gputop.engine.facts import Facts
from probes.arrays import each
from probes.schema import ALIASED, Records
from probes.shapes import Shape
from probes.stacks.stack_samples import kernel_number


def launches_of(calls: Records, facts: Facts) -> npt.NDArray[np.bool_]:
    """Return which CALL records launch a kernel that they name by a handle, as a mask."""
    different, place = np.unique(calls["op"], return_inverse=True)
    wanted: npt.NDArray[np.bool_] = launching(facts.api(op)[0] for op in different.tolist())[
        place.reshape(-1)
    ]
    return wanted


def kernel_names(calls: Records, facts: Facts) -> list[str | None]:
    """Return the name of the kernel that each call launches; None without a launch, or a name."""
    found: list[str | None] = [None] * len(calls)
    names: dict[tuple[int, int], str | None] = {}
    for row in np.flatnonzero(launches_of(calls, facts)).tolist():
        key = int(calls["pid"][row]), int(calls["aux"][row])
        if key not in names:
            frame = next(iter(facts.stacks.frames(kernel_number(*key))), None)
            names[key] = frame.function if frame is not None else None
        found[row] = names[key]
    return found


def shapes_of(calls: Records, facts: Facts) -> list[Shape | None]:
    """Return the launch shape of each call; None without a launch, or if unknown."""
    return each(np.where(launches_of(calls, facts), calls.view(ALIASED)["shape"], 0), facts.shapes.get)


def size_columns(shapes: list[Shape | None]) -> dict[str, list[Any]]:
    """Return shapes as columns of a table: ``grid_x`` … ``block_z``, ``shared_bytes``."""
    columns: dict[str, list[Any]] = {
        f"{what}_{axis}": [None if one is None else getattr(one, what)[place] for one in shapes]
        for what in ("grid", "block")
        for place, axis in enumerate("xyz")
    }
    columns["shared_bytes"] = [None if one is None else one.shared_bytes for one in shapes]
    return columns

"""Samples of threads that are on a CPU between two calls, some times a second, as a table."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt

from probes.samples import PlacesData
from probes.schema import NO_SYSCALL

PLACE_COLUMNS = np.dtype(
    [
        ("time", "<i8"),
        ("tid", "<i8"),
        ("stack", "<u8"),
        ("pid", "<u4"),
        ("syscall", "<u2"),  # that it was in, NO_SYSCALL outside of one
        ("descriptor", "<u4"),  # that this was given, if it takes one
        ("file", "<i4"),  # what that was, a number of Descriptors
    ]
)


def no_places() -> npt.NDArray[np.void]:
    """The table of a recording without samples."""
    return np.zeros(0, PLACE_COLUMNS)


def places_of(data: PlacesData) -> npt.NDArray[np.void]:
    """The data of a sample ``places`` as a table; what is damaged is left out."""
    names = {"time": "time", "tid": "tid", "stack": "stack"}
    if "syscall" in data:
        names |= {"pid": "pid", "syscall": "syscall", "argument": "descriptor"}
    columns = {column: cast("list[int]", data.get(name, [])) for name, column in names.items()}
    table = np.zeros(min(map(len, columns.values())), PLACE_COLUMNS)
    table["syscall"] = NO_SYSCALL
    for name, values in columns.items():
        table[name] = values[: len(table)]
    return table

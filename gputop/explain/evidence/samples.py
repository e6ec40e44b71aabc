"""Samples of threads that are on a CPU between two calls, some times a second, as a table."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from probes.samples import PlacesData

PLACE_COLUMNS = np.dtype([("time", "<i8"), ("tid", "<i8"), ("stack", "<u8")])


def no_places() -> npt.NDArray[np.void]:
    """The table of a recording without samples."""
    return np.zeros(0, PLACE_COLUMNS)


def places_of(data: PlacesData) -> npt.NDArray[np.void]:
    """The data of a sample ``places`` as a table; what is damaged is left out."""
    columns = [data.get("time", ()), data.get("tid", ()), data.get("stack", ())]
    table = np.zeros(min(map(len, columns)), PLACE_COLUMNS)
    for name, values in zip(("time", "tid", "stack"), columns, strict=True):
        table[name] = values[: len(table)]
    return table

"""Births and ends of threads and processes, as a table."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from probes.schema import ALIASED, ExitFlag, Kind, Records

LIFE_COLUMNS = np.dtype(
    [("at", "<i8"), ("tid", "<u4"), ("pid", "<u4"), ("maker", "<u4"), ("kind", "|u1"), ("dead", "|b1")]
)


def lives_of(records: Records) -> npt.NDArray[np.void]:
    """FORK, EXEC, EXIT and JOIN records as rows of ``LIFE_COLUMNS``."""
    rows = records.view(ALIASED)
    table = np.zeros(len(rows), LIFE_COLUMNS)
    for name, own in (("at", "t_end"), ("tid", "tid"), ("pid", "pid"), ("kind", "kind")):
        table[name] = rows[own]
    table["maker"] = np.where(rows["kind"] == Kind.FORK, rows["next_tid"], 0)
    table["dead"] = (rows["kind"] == Kind.EXIT) & ((rows["flags"] & ExitFlag.GROUP_DEAD) != 0)
    return table

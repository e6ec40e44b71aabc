"""The functions of a session as columns: what each means for the question whether the GPU has work.

The table of functions says it (probes/api.py). A session brings a list of its own, which may be older: its
rows are the table's by their names, and what the table does not have goes by its group.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from probes import api
from probes.api_semantics import D2D, D2H, H2D, Group, Role, Trait, usual_role

__all__ = ["D2D", "D2H", "H2D", "ApiTable", "Group", "Role", "Trait"]

_GROUPS: dict[str, Group] = {group.name.lower(): group for group in Group}


class ApiTable:
    """The API table of a session, as columns that are indexed by ``op``.

    Args:
        rows: ``[name, layer, group]`` of each op, as the ``apis`` sample has them.
        proves: False where a recording lacks what proofs rest on: then no call gives or proves anything.
    """

    def __init__(self, rows: Sequence[Sequence[str]], *, proves: bool = True) -> None:
        self.names: tuple[str, ...] = tuple(str(row[0]) for row in rows)
        size = max(len(rows), 1)
        self.role: npt.NDArray[np.uint8] = np.zeros(size, np.uint8)
        self.group: npt.NDArray[np.uint8] = np.zeros(size, np.uint8)
        self._traits: npt.NDArray[np.uint8] = np.zeros(size, np.uint8)
        for number, (name, row) in enumerate(zip(self.names, rows, strict=True)):
            known = api.BY_OP[api.OP_OF[name]] if name in api.OP_OF else None
            group = str(row[2]) if len(row) > 2 else ""
            role = known.role if known else usual_role(group)
            self.role[number] = role if proves else Role.OTHER
            self.group[number] = _GROUPS.get(group, Group.OTHER)
            self._traits[number] = known.traits if known else Trait.NONE

    def name(self, op: int) -> str:
        """The function's name."""
        return self.names[op] if 0 <= op < len(self.names) else f"function {op}"

    def has(self, column: npt.NDArray[np.uint16], trait: Trait) -> npt.NDArray[np.bool_]:
        """Which calls are calls of functions with a trait."""
        chosen: npt.NDArray[np.bool_] = (self._traits & np.uint8(trait)) != 0
        return chosen.take(column, mode="clip")

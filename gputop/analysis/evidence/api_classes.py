"""Functions by their effect on the GPU's queue, and a profiler's activities beside calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from probes import api
from probes.activities import (
    COPY,
    FILL,
    GRAPH,
    KERNEL,
    ON_GPU,
    TABLE,
    TEXTS,
    Table,
    activity_rows,
)
from probes.api_semantics import D2D, D2H, H2D, Group, Role, Trait, usual_role

__all__ = [
    "COPY",
    "D2D",
    "D2H",
    "FILL",
    "GRAPH",
    "H2D",
    "KERNEL",
    "ON_GPU",
    "ApiTable",
    "Group",
    "Role",
    "Trait",
]

_GROUPS: dict[str, Group] = {group.name.lower(): group for group in Group}


class ApiTable:
    """The API table of a session, as columns that are indexed by ``op``.

    Args:
        rows: ``[name, layer, group]`` of each op, as the ``apis`` sample has them.
        proves: False where a recording lacks the base of proofs: then no call has a role.
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
        """Return the function's name."""
        return self.names[op] if 0 <= op < len(self.names) else f"function {op}"

    def has(self, column: npt.NDArray[np.uint16], trait: Trait) -> npt.NDArray[np.bool_]:
        """Return the calls of functions with a trait."""
        chosen: npt.NDArray[np.bool_] = (self._traits & np.uint8(trait)) != 0
        return chosen.take(column, mode="clip")


# Activities beside calls, by other tools as a rule: kernels, operators, intervals off the CPU.

# of a thread; these lie within each other
OPERATOR: Final = "operator"  # of a framework
RANGE: Final = "range"  # named by the program: record_function, NVTX, roctx
PYTHON: Final = "python"  # a function
SPAN: Final = "span"  # named by the program, and in no order with others
GPU_RANGE: Final = "GPU range"  # a range as the GPU ran it
WAIT: Final = "wait"  # for a GPU, as CUPTI reports it: whole device, stream or event
OS_CALL: Final = "os call"
OFF_CPU: Final = "off the CPU"
OVERHEAD: Final = "overhead"  # work of the profiler itself


class Activities:
    """Rows of all samples of a file, with their texts as numbers."""

    def __init__(self, rows: Table, texts: Sequence[str]) -> None:
        # dtype ``TABLE``, by begin; ``what``, ``name`` and ``detail`` are places in ``texts``
        self.rows = rows
        self.texts = tuple(texts)  # kinds, names of kernels and operators, shapes

    def of(self, *what: str) -> Table:
        """Return the rows of some kinds."""
        numbers = [number for number, text in enumerate(self.texts) if text in what]
        return self.rows[np.isin(self.rows["what"], numbers)]


class ActivityGatherer:
    """Consumes samples."""

    def __init__(self) -> None:
        self._parts: list[Table] = []
        self._texts: dict[str, int] = {}

    def consume(self, data: Mapping[str, Any], *only: str) -> int:
        """Consume a sample, or its rows of some kinds; return the number of rows.

        Raises:
            ValueError: It is damaged.
        """
        rows, names = activity_rows(data)
        if only:
            rows = rows[np.isin(rows["what"], [place for place, text in enumerate(names) if text in only])]
            used = set(np.concatenate([rows[name] for name in TEXTS]).tolist())
            names = [text if place in used else "" for place, text in enumerate(names)]
        texts = np.array([self._number(text) for text in names], np.int32)
        for name in TEXTS:
            rows[name] = texts[rows[name]]
        self._parts.append(rows)
        return len(rows)

    def drop(self, before_ns: int) -> None:
        """Forget the samples all of whose rows ended before a moment."""
        self._parts = [rows for rows in self._parts if int(rows["end"].max(initial=0)) >= before_ns]

    def copy(self) -> ActivityGatherer:
        """Return a fork of the state; tables never change."""
        other = ActivityGatherer()
        other._parts, other._texts = list(self._parts), dict(self._texts)
        return other

    def _number(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def table(self) -> Activities:
        """Return all activities."""
        rows = np.concatenate([np.zeros(0, TABLE), *self._parts])
        return Activities(rows[np.argsort(rows["begin"], kind="stable")], list(self._texts))

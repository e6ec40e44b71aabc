"""What was measured beside calls, by others as a rule: kernels, operators, stays off the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

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

__all__ = ("COPY", "FILL", "GRAPH", "KERNEL", "ON_GPU")  # of the GPU itself, as a file calls them
# what a thread did; these lie within each other
OPERATOR: Final = "operator"  # of a framework
RANGE: Final = "range"  # named by the program: record_function, NVTX, roctx
PYTHON: Final = "python"  # a function
SPAN: Final = "span"  # named by the program, and in no order with others
GPU_RANGE: Final = "GPU range"  # a range as the GPU ran it
WAIT: Final = "wait"  # for a GPU, as CUPTI tells it: whole device, stream or event
OS_CALL: Final = "os call"
OFF_CPU: Final = "off the CPU"
OVERHEAD: Final = "overhead"  # work of the profiler itself


class Activities:
    """Rows of all samples of a file, with their texts as numbers.

    Attributes:
        rows: dtype ``TABLE``, by begin; ``what``, ``name`` and ``detail`` are places in ``texts``.
        texts: What was done, names of kernels and operators, shapes.
    """

    def __init__(self, rows: Table, texts: Sequence[str]) -> None:
        self.rows = rows
        self.texts = tuple(texts)

    def of(self, *what: str) -> Table:
        """Those that are of some kind."""
        numbers = [number for number, text in enumerate(self.texts) if text in what]
        chosen: Table = self.rows[np.isin(self.rows["what"], numbers)]
        return chosen


class ActivityGatherer:
    """Takes samples in."""

    def __init__(self) -> None:
        self._parts: list[Table] = []
        self._texts: dict[str, int] = {}

    def take(self, data: Mapping[str, Any]) -> int:
        """Takes one in; returns how many rows it has.

        Raises:
            ValueError: It is damaged.
        """
        rows, told = activity_rows(data)
        texts = np.array([self._number(text) for text in told], np.int32)
        for name in TEXTS:
            rows[name] = texts[rows[name]]
        self._parts.append(rows)
        return len(rows)

    def drop(self, before_ns: int) -> None:
        """Forgets what had ended before a moment, as far as a whole sample of it had."""
        self._parts = [rows for rows in self._parts if int(rows["end"].max(initial=0)) >= before_ns]

    def copy(self) -> ActivityGatherer:
        """One that goes on by itself; what was taken in never changes."""
        other = ActivityGatherer()
        other._parts, other._texts = list(self._parts), dict(self._texts)
        return other

    def _number(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def table(self) -> Activities:
        """All of them."""
        rows = np.concatenate([np.zeros(0, TABLE), *self._parts])
        return Activities(rows[np.argsort(rows["begin"], kind="stable")], list(self._texts))

"""What others measured and gputop does not: kernels, block I/O, stays off the CPU without states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from probes.source import ACTIVITY, Sample

# what the GPU itself did
ON_GPU: Final = frozenset({"kernel", "copy", "fill"})
_ROWS: Final = 5_000  # of one sample, whose size is bounded

# of one activity; -1 where it is not known
FIELDS: Final = ("begin", "end", "pid", "tid", "device", "stream", "bytes", "call_begin", "call_tid")
TABLE: Final = np.dtype([(name, "<i8") for name in FIELDS] + [("what", "<i4"), ("name", "<i4")])

Table = npt.NDArray[np.void]


class Activities:
    """Rows of all samples of a file, with their texts as numbers.

    Attributes:
        rows: dtype ``TABLE``, by begin; ``what`` and ``name`` are places in ``texts``.
        texts: What was done, and names of kernels.
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

    def take(self, data: Mapping[str, Any]) -> None:
        """Takes one in.

        Raises:
            ValueError: Its columns are of different lengths.
        """
        texts = np.array([self._number(str(text)) for text in data["texts"]], np.int32)
        part = np.zeros(len(data["begin"]), TABLE)
        for name in FIELDS:
            part[name] = data[name]
        for name in ("what", "name"):
            part[name] = texts[np.array(data[name], np.int64)]
        self._parts.append(part)

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


def activity_samples(rows: Sequence[Mapping[str, Any]], time_ns: int) -> list[Sample]:
    """Activities as samples.

    Args:
        rows: Of each ``what``, ``name`` and what is known of ``FIELDS``.
        time_ns: The moment that they are told at.
    """
    samples = []
    for first in range(0, len(rows), _ROWS):
        part = rows[first : first + _ROWS]
        texts: dict[str, int] = {}
        data: dict[str, Any] = {name: [int(row.get(name, -1)) for row in part] for name in FIELDS}
        for name in ("what", "name"):
            data[name] = [texts.setdefault(str(row.get(name, "")), len(texts)) for row in part]
        samples.append(Sample(ACTIVITY, time_ns, {**data, "texts": list(texts)}))
    return samples

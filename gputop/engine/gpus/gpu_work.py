"""GPU work in files with kernel times: kernels by name, copies and fills, with counts and durations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gputop.engine.accumulator import Part
from gputop.engine.calls.kernel_names import short_names
from gputop.format import escape_text, format_count, format_ns, format_percent
from probes.activities import KERNEL, ON_GPU, activity_rows
from probes.samples import sample_data
from probes.source import ACTIVITY, Sample

_MOST: Final = 20_000  # different ones; further ones are one row
_SHOWN: Final = 20  # of a GPU, in text
_REST: Final = "further kernels"

Key = tuple[int, str, str]  # GPU, what, name


@dataclass(frozen=True, slots=True)
class GpuWork:
    """One kind of a GPU's work: a kernel, or copies or fills of a name."""

    gpu: int
    what: str
    name: str
    count: int
    sum_ns: int
    max_ns: int


class WorkSums(Part):
    """The sums of ``activity`` samples."""

    def __init__(self) -> None:
        self._sums: dict[Key, list[int]] = {}

    def add_sample(self, sample: Sample) -> None:
        if (data := sample_data(sample, ACTIVITY)) is None:
            return
        rows, texts = activity_rows(data)
        rows = rows[np.isin(rows["what"], [place for place, text in enumerate(texts) if text in ON_GPU])]
        if not len(rows):
            return
        keys, first, which = np.unique(
            rows[["device", "what", "name"]], return_index=True, return_inverse=True
        )
        length = rows["end"] - rows["begin"]
        count = np.bincount(which.reshape(-1))
        total, most = np.zeros(len(keys), int), np.zeros(len(keys), int)
        np.add.at(total, which.reshape(-1), length)
        np.maximum.at(most, which.reshape(-1), length)
        for place, row in enumerate(rows[first].tolist()):
            named = dict(zip(rows.dtype.names or (), row, strict=True))
            key = named["device"], texts[named["what"]], texts[named["name"]]
            self._add(key, int(count[place]), int(total[place]), int(most[place]))

    def _add(self, key: Key, count: int, total: int, most: int) -> None:
        if key not in self._sums and len(self._sums) >= _MOST:
            key = key[0], key[1], _REST
        known = self._sums.setdefault(key, [0, 0, 0])
        known[0] += count
        known[1] += total
        known[2] = max(known[2], most)

    def payload(self) -> dict[str, Any]:
        return {"gpu_work": [[*key, *sums] for key, sums in self._sums.items()]}

    def merge(self, data: Mapping[str, Any]) -> None:
        """Add the payload of the next stretch.

        Raises:
            ValueError, TypeError: The data are invalid.
        """
        for gpu, what, name, count, total, most in data.get("gpu_work", ()):
            self._add((int(gpu), str(what), str(name)), int(count), int(total), int(most))

    def rows(self) -> tuple[GpuWork, ...]:
        """Return the work by GPU, most time first."""
        rows = [GpuWork(*key, *sums) for key, sums in self._sums.items()]
        return tuple(sorted(rows, key=lambda row: (row.gpu, -row.sum_ns, row.what, row.name)))


def work_text(rows: tuple[GpuWork, ...]) -> list[str]:
    """Return a table for each GPU."""
    lines: list[str] = []
    for gpu in dict.fromkeys(row.gpu for row in rows):
        mine = [row for row in rows if row.gpu == gpu]
        whole = max(sum(row.sum_ns for row in mine), 1)
        kernels = [row.name for row in mine if row.what == KERNEL]
        short = dict(zip(kernels, short_names(kernels), strict=True))
        lines += ["", f"GPU {gpu}" if gpu >= 0 else "a GPU that is not named"]
        lines.append(f"  {'COUNT':>9}{'SUM':>8}{'SHARE':>7}{'MEAN':>8}{'MAX':>8}  WORK")
        lines += [
            f"  {format_count(row.count):>9}{format_ns(row.sum_ns):>8}"
            f"{format_percent(100 * row.sum_ns / whole):>5} %{format_ns(row.sum_ns // row.count):>8}"
            f"{format_ns(row.max_ns):>8}  {escape_text(short.get(row.name, row.name) or row.what)}"
            for row in mine[:_SHOWN]
        ]
        if len(mine) > _SHOWN:
            rest = sum(row.sum_ns for row in mine[_SHOWN:])
            lines.append(f"  {'':>9}{format_ns(rest):>8}  {len(mine) - _SHOWN} more")
    return lines

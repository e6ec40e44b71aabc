"""Two recordings compared by kernel: the GPU time of equal work, where both hold the GPU's own clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from gputop.analysis.answer.exact_report import ExactReport
from gputop.documents.fields import Mark, marked
from gputop.documents.shared_schema import one_of

KernelBecame = Annotated[str, one_of("gone", "new", "slower", "faster", "more", "fewer", "same")]
_LEAST = 0.05  # as of other figures: two runs of one program differ by as much


@dataclass(frozen=True, slots=True)
class KernelSide:
    """The runs of one name in one recording, by unit of work, and how long one takes."""

    ns: float
    runs: float
    run_ns: float


@dataclass(frozen=True, slots=True)
class KernelChange:
    """The kernels of one name, in all processes; None where a recording has none."""

    name: str
    before: KernelSide | None
    after: KernelSide | None

    @property
    @marked(Mark())
    def change(self) -> KernelBecame:
        """``new``, ``gone``; ``slower`` or ``faster`` runs; else ``more`` or ``fewer``, or ``same``."""
        if self.before is None or self.after is None:
            return "new" if self.before is None else "gone"
        for more, less, was, now in (
            ("slower", "faster", self.before.run_ns, self.after.run_ns),
            ("more", "fewer", self.before.runs, self.after.runs),
        ):
            if abs(now - was) > _LEAST * max(was, now):
                return more if now > was else less
        return "same"

    @property
    def moved_ns(self) -> float:
        """By how much a unit of work takes longer on the GPU."""
        before, after = (one.ns if one is not None else 0.0 for one in (self.before, self.after))
        return after - before


def kernel_changes(
    before: ExactReport | None, after: ExactReport | None, units: tuple[float, float]
) -> tuple[KernelChange, ...]:
    """What became of each kernel, the largest difference first; none where one has no exact kernels."""
    if before is None or after is None:
        return ()
    sides = [dict(_sides(one, count)) for one, count in zip((before, after), units, strict=True)]
    names = dict.fromkeys((*sides[0], *sides[1]))
    rows = [KernelChange(name, sides[0].get(name), sides[1].get(name)) for name in names]
    return tuple(sorted(rows, key=lambda row: (-abs(row.moved_ns), row.name)))


def _sides(report: ExactReport, units: float) -> Iterator[tuple[str, KernelSide]]:
    sums: dict[str, tuple[int, int]] = {}
    for one in report.kernels:
        ns, runs = sums.get(one.name, (0, 0))
        sums[one.name] = ns + one.ns, runs + one.runs
    for name, (ns, runs) in sums.items():
        yield name, KernelSide(ns / units, runs / units, ns / runs)

"""What was launched, by kernel: how often, how often a step, at which lines, in which shapes.

Those are facts; time on a GPU is an estimate with its error, or it is not told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gputop.engine.fills import smaller
from gputop.engine.kernels import library_of, small_among
from gputop.engine.lines import Line
from gputop.explain.answer.sums import counted
from gputop.explain.estimates.kerneltimes import GpuTimeOf
from probes.shapes import Shape


@dataclass(frozen=True, slots=True)
class KernelLaunches:
    """The launches of one process that have one name; "" is the name of all that have none.

    Attributes:
        file: Has the host function of that name.
        handles: How many handles have this name.
        stepped: The launches that were made within a step; 0 where no steps were found in the process.
        lines: Line -> launches made there; others have no line that is known.
        shapes: Shape -> launches in it; others have none that is known.
        captured: Launches that went into a graph, and did not run then.
        gpu: The GPU time of all of them, estimated; None where it cannot be told from that of others.
    """

    pid: int
    name: str
    file: str
    handles: int
    launches: int
    stepped: int
    lines: Mapping[Line, int]
    shapes: Mapping[Shape, int]
    captured: int
    gpu: GpuTimeOf | None

    @property
    def key(self) -> tuple[int, str, str]:
        """What tells it from others."""
        return self.pid, self.name, self.file

    @property
    def library(self) -> str:
        """Whose kernel it is; "" where that is not known."""
        return library_of(self.file)

    @property
    def first_lines(self) -> tuple[tuple[Line, int], ...]:
        """The lines, most launches first."""
        return tuple(sorted(self.lines.items(), key=lambda row: (-row[1], row[0])))

    @property
    def unplaced(self) -> int:
        """Launches whose line is not known."""
        return self.launches - sum(self.lines.values())

    def joined(self, later: KernelLaunches) -> KernelLaunches:
        """This, and what came next; ``handles`` is that of the part with more of them."""
        return replace(
            self,
            handles=max(self.handles, later.handles),
            launches=self.launches + later.launches,
            stepped=self.stepped + later.stepped,
            lines=counted(self.lines, later.lines),
            shapes=counted(self.shapes, later.shapes),
            captured=self.captured + later.captured,
            gpu=_both(self.gpu, later.gpu),
        )


def _both(one: GpuTimeOf | None, other: GpuTimeOf | None) -> GpuTimeOf | None:
    """The time of two parts together; their errors may have one reason, so they add up."""
    if one is None or other is None:
        return None
    return GpuTimeOf(one.ns + other.ns, one.error_ns + other.error_ns)


@dataclass(frozen=True, slots=True)
class KernelReport:
    """The launches of ``over_ns``, of processes of which some kernel has a name; most launches first.

    ``steps`` are those that were looked at, by process: the complete ones of them that were found. ``fill``
    are the threads that fill a GPU (``gputop/engine/fills.py``).
    """

    over_ns: int
    steps: Mapping[int, int]
    rows: tuple[KernelLaunches, ...]
    fill: int | None = None

    def small(self, row: KernelLaunches) -> int | None:
        """Launches with fewer threads than fill the GPU; None where that is not known."""
        return small_among(row.shapes, self.fill)

    def per_second(self, row: KernelLaunches) -> float:
        """Launches a second of the time that was explained."""
        return row.launches * 1e9 / max(self.over_ns, 1)

    def per_step(self, row: KernelLaunches) -> float | None:
        """Launches a step; None where no steps were found in the process."""
        steps = self.steps.get(row.pid, 0)
        return row.stepped / steps if steps else None

    def joined(self, later: KernelReport) -> KernelReport:
        """This, and what came next."""
        rows = {row.key: row for row in self.rows}
        for row in later.rows:
            rows[row.key] = rows[row.key].joined(row) if row.key in rows else row
        return KernelReport(
            self.over_ns + later.over_ns,
            counted(self.steps, later.steps),
            in_order(rows.values()),
            smaller(self.fill, later.fill),
        )

    def of(self, pids: frozenset[int] | None) -> KernelReport | None:
        """Of these processes, or of all; None where nothing is left."""
        rows = tuple(row for row in self.rows if pids is None or row.pid in pids)
        return replace(self, rows=rows) if rows else None


def in_order(rows: Iterable[KernelLaunches]) -> tuple[KernelLaunches, ...]:
    """Most launches first."""
    return tuple(sorted(rows, key=lambda row: (-row.launches, row.key)))

"""What was launched, by kernel: how often, how often a step, at which lines. Counts, no time on a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gputop.engine.kernels import library_of
from gputop.engine.lines import Line
from gputop.explain.answer.sums import counted


@dataclass(frozen=True, slots=True)
class KernelLaunches:
    """The launches of one process that have one name; "" is the name of all that have none.

    Attributes:
        file: Has the host function of that name.
        handles: How many handles have this name.
        stepped: The launches that were made within a step; 0 where no steps were found in the process.
        lines: Line -> launches made there; others have no line that is known.
    """

    pid: int
    name: str
    file: str
    handles: int
    launches: int
    stepped: int
    lines: Mapping[Line, int]

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
        )


@dataclass(frozen=True, slots=True)
class KernelReport:
    """The launches of ``over_ns``, of processes of which some kernel has a name; most launches first.

    ``steps`` are those that were looked at, by process: the complete ones of them that were found.
    """

    over_ns: int
    steps: Mapping[int, int]
    rows: tuple[KernelLaunches, ...]

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
            self.over_ns + later.over_ns, counted(self.steps, later.steps), in_order(rows.values())
        )

    def of(self, pids: frozenset[int] | None) -> KernelReport | None:
        """Of these processes, or of all; None where nothing is left."""
        rows = tuple(row for row in self.rows if pids is None or row.pid in pids)
        return replace(self, rows=rows) if rows else None


def in_order(rows: Iterable[KernelLaunches]) -> tuple[KernelLaunches, ...]:
    """Most launches first."""
    return tuple(sorted(rows, key=lambda row: (-row.launches, row.key)))

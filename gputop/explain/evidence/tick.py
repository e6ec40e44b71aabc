"""What came between two marks of a session, as tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gputop.explain.evidence.evidence import Columns, Table


@dataclass(slots=True)
class Tick:
    """What came between two marks, already as columns."""

    mark_ns: int = 0
    rows: int = 0  # of all tables, once it is closed
    calls: list[Columns] = field(default_factory=list)
    inner: list[Columns] = field(default_factory=list)
    slices: list[Columns] = field(default_factory=list)
    on_cpu: list[Table] = field(default_factory=list)
    moves: list[Table] = field(default_factory=list)
    places: list[Table] = field(default_factory=list)

    def close(self, mark_ns: int) -> None:
        """Ends it with a mark."""
        columns, tables = (*self.calls, *self.inner, *self.slices), (*self.on_cpu, *self.moves)
        self.mark_ns, self.rows = mark_ns, sum(map(len, columns)) + sum(map(len, tables))

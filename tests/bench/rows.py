"""One row a figure: what was measured, what it may be, and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

OK, TOO_MUCH, NO_BOUND = "ok", "TOO MUCH", "-"


@dataclass(frozen=True, slots=True)
class Row:
    """A figure; smaller is better.

    Attributes:
        name: What it is.
        value: What was measured.
        unit: Of value and bound; empty for ratios, whose bounds are above 1.
        bound: The most it may be; None when it is only reported.
        detail: Where it comes from: parts, repetitions.
        slack: Factor on the bound.
    """

    name: str
    value: float
    unit: str
    bound: float | None
    detail: str = ""
    slack: float = 1.0

    @property
    def limit(self) -> float | None:
        """The bound with its slack; of a ratio, only what lies above 1 is stretched."""
        if self.bound is None:
            return None
        return self.bound * self.slack if self.unit else 1 + (self.bound - 1) * self.slack

    @property
    def verdict(self) -> str:
        """Whether it is within its bound."""
        if self.limit is None:
            return NO_BOUND
        return OK if self.value <= self.limit else TOO_MUCH

    def to_json(self) -> dict[str, Any]:
        """Plain data; the bound includes the slack."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "bound": self.limit,
            "verdict": self.verdict,
            "detail": self.detail,
        }


HEADINGS = ("what", "measured", "at most", "verdict", "detail")


def figure(value: float | None, unit: str) -> str:
    """A number with its unit, three digits that count."""
    if value is None:
        return "-"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}".rstrip()


def heading() -> str:
    """The first line of the table."""
    return _line(HEADINGS)


def line(row: Row) -> str:
    """The row as a line of the table."""
    return _line(
        (row.name, figure(row.value, row.unit), figure(row.limit, row.unit), row.verdict, row.detail)
    )


def _line(cells: Sequence[str]) -> str:
    name, value, bound, verdict, detail = cells
    return f"{name:<46}{value:>12}{bound:>12}  {verdict:<9} {detail}".rstrip()


def exceeded(rows: Iterable[Row]) -> list[Row]:
    """The rows above their bounds."""
    return [row for row in rows if row.verdict == TOO_MUCH]

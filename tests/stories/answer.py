"""What gputop says of a run and of a change: the JSON of its commands; keys may be missing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests import inside
from tests.stories.recording import Run

SAYS_NOTHING = "nothing"


class AnswerError(Exception):
    """The command failed."""


def _asked(command: str, *arguments: str) -> dict[str, Any]:
    told = inside.run(command, *arguments, "--json")
    if told.returncode not in (0, 3):
        raise AnswerError(f"gputop {command}: status {told.returncode}: {told.stderr.strip()[-600:]}")
    said: dict[str, Any] = json.loads(told.stdout)
    return said


@dataclass(frozen=True, slots=True)
class Answer:
    """What the stories judge of an explanation. Shares are of the span, None where nothing is reported."""

    report: dict[str, Any]

    @property
    def span_ns(self) -> int:
        """The time that idleness is counted over, all GPUs together."""
        return int(self.report["span_ns"])

    def _share(self, key: str) -> float | None:
        ns = self.report["gpu_idle_ns"].get(key)
        return None if ns is None or not self.span_ns else ns / self.span_ns

    @property
    def proved(self) -> float | None:
        """What is proved; the lower bound where the report knows no other."""
        told = self._share("proved")
        return self._share("lower") if told is None else told

    @property
    def lower(self) -> float | None:
        """At least."""
        return self._share("lower")

    @property
    def upper(self) -> float | None:
        """At most."""
        return self._share("upper")

    @property
    def estimate(self) -> float | None:
        """The best figure."""
        return self._share("estimate")

    @property
    def bound_by(self) -> str | None:
        """The class; None where the report has none."""
        told = self.report.get("class")
        return None if told is None else str(told)

    @property
    def findings(self) -> list[dict[str, Any]]:
        """What is blamed, most important first."""
        return list(self.report["findings"])

    @property
    def first(self) -> str:
        """The first cause."""
        return str(self.findings[0]["cause"]) if self.findings else SAYS_NOTHING

    @property
    def lines(self) -> set[tuple[str, int]]:
        """Where the first finding says it is: its own line and those of its chain."""
        if not self.findings:
            return set()
        told = [self.findings[0]["line"], *(link["line"] for link in self.findings[0]["chain"])]
        return {(line["file"], line["line"]) for line in told if line}

    @property
    def max_gain_ns(self) -> int | None:
        """What the change of the first finding can win."""
        return int(self.findings[0]["max_gain_ns"]) if self.findings else None


def explained(run: Run) -> Answer:
    """``gputop explain --json``."""
    return Answer(_asked("explain", str(run.recording)))


@dataclass(frozen=True, slots=True)
class Difference:
    """The part of a comparison that the stories judge."""

    report: dict[str, Any]

    @property
    def unit(self) -> str:
        """What is compared."""
        return str(self.report["unit"])

    @property
    def ratio(self) -> float | None:
        """Time of a unit of work after the change over that before, None where it is not reported."""
        for measure in self.report["measures"]:
            if measure["name"] == "duration_ns":
                before, after = measure["before"]["usual"], measure["after"]["usual"]
                return after / before if before and after else None
        return None


def compared(before: Run, after: Run) -> Difference:
    """``gputop diff --json``."""
    return Difference(_asked("diff", str(before.recording), str(after.recording)))

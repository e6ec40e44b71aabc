"""CUDA graphs: which are made where and how often, what they hold; and launches that would fit one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gputop.documents.explain_schema import GraphsJson
from gputop.engine.lines import Line, line_json
from gputop.explain.answer.sums import counted
from gputop.format import format_count, format_ns

REBUILT = 3  # graphs of one line, from which on it counts that hardly any is launched twice
_SHOWN = 4  # of each kind, in a text


@dataclass(frozen=True, slots=True)
class MadeGraphs:
    """The graphs that one process makes at one line.

    Attributes:
        line: Of the call that instantiates them; None where that is not known.
        instantiated: How many there were.
        updated: How often one was given other arguments in place (``cudaGraphExecUpdate``).
        launches: How often one of them was launched.
        kernels: (least, most) launches that went into one; None where a capture was not seen as a whole.
    """

    pid: int
    line: Line | None
    instantiated: int
    updated: int
    launches: int
    kernels: tuple[int, int] | None

    @property
    def rebuilt(self) -> bool:
        """Whether hardly any of them is launched twice."""
        return self.instantiated >= REBUILT and self.launches < 2 * self.instantiated

    def joined(self, later: MadeGraphs) -> MadeGraphs:
        """These, and what came next."""
        known = [one.kernels for one in (self, later) if one.instantiated]
        spans = [one for one in known if one is not None]
        whole = len(spans) == len(known) > 0
        return replace(
            self,
            instantiated=self.instantiated + later.instantiated,
            updated=self.updated + later.updated,
            launches=self.launches + later.launches,
            kernels=(min(one[0] for one in spans), max(one[1] for one in spans)) if whole else None,
        )


@dataclass(frozen=True, slots=True)
class Fitting:
    """Launches that follow each other in the same kernels, shapes and streams in nearly every step.

    Attributes:
        first, last: The lines of the first and the last of them; None where they are not known.
        launches: How many they are, in each step.
        steps: In so many they were the same.
        of_steps: So many steps were looked at.
        host_ns: From the first one's begin to the last one's end, usually.
    """

    pid: int
    first: Line | None
    last: Line | None
    launches: int
    steps: int
    of_steps: int
    host_ns: int


@dataclass(frozen=True, slots=True)
class GraphReport:
    """``unseen``: launches of graphs whose making was not seen, by process."""

    made: tuple[MadeGraphs, ...] = ()
    unseen: Mapping[int, int] | None = None
    fitting: tuple[Fitting, ...] = ()

    def joined(self, later: GraphReport) -> GraphReport:
        """This, and what came next; of launches that would fit one those of the part with more steps."""
        made = {(one.pid, one.line): one for one in self.made}
        for one in later.made:
            key = one.pid, one.line
            made[key] = made[key].joined(one) if key in made else one
        steps = [sum(one.of_steps for one in part.fitting) for part in (self, later)]
        return GraphReport(
            in_order(made.values()),
            counted(self.unseen or {}, later.unseen or {}),
            later.fitting if steps[1] > steps[0] else self.fitting,
        )

    def of(self, pids: frozenset[int] | None) -> GraphReport | None:
        """Of these processes, or of all; None where nothing is left."""
        made = tuple(one for one in self.made if pids is None or one.pid in pids)
        unseen = {pid: n for pid, n in (self.unseen or {}).items() if pids is None or pid in pids}
        fitting = tuple(one for one in self.fitting if pids is None or one.pid in pids)
        return GraphReport(made, unseen, fitting) if made or unseen or fitting else None


def in_order(made: Iterable[MadeGraphs]) -> tuple[MadeGraphs, ...]:
    """Most instantiations first."""
    return tuple(sorted(made, key=lambda one: (-one.instantiated, one.pid, one.line or Line("", 0, ""))))


def graphs_json(report: GraphReport) -> GraphsJson:
    """The key ``graphs``."""
    return {
        "made": [
            {
                "pid": one.pid,
                "line": line_json(one.line),
                "instantiated": one.instantiated,
                "updated": one.updated,
                "launches": one.launches,
                "kernels_least": one.kernels[0] if one.kernels is not None else None,
                "kernels_most": one.kernels[1] if one.kernels is not None else None,
            }
            for one in report.made
        ],
        "unseen": [{"pid": pid, "launches": count} for pid, count in sorted((report.unseen or {}).items())],
        "fitting": [
            {
                "pid": one.pid,
                "first": line_json(one.first),
                "last": line_json(one.last),
                "launches": one.launches,
                "steps": one.steps,
                "of_steps": one.of_steps,
                "host_ns": one.host_ns,
            }
            for one in report.fitting
        ],
    }


def graph_texts(report: GraphReport) -> list[str]:
    """Lines of text, the first of each kind."""
    texts = [_made_text(one) for one in report.made[:_SHOWN]]
    if unseen := sum((report.unseen or {}).values()):
        texts.append(f"{format_count(unseen)} launches of graphs whose making was not seen")
    return ["CUDA graphs:", *(f"  {text}" for text in (*texts, *_fitting_texts(report.fitting)[:_SHOWN]))]


def _made_text(made: MadeGraphs) -> str:
    at = f" at {made.line.text()}" if made.line is not None else ""
    held = ""
    if made.kernels is not None:
        least, most = made.kernels
        held = f", {least} kernels each" if least == most else f", {least} to {most} kernels each"
    updated = f", updated {format_count(made.updated)} times" if made.updated else ""
    rebuilt = ": made anew for nearly every launch" if made.rebuilt else ""
    return (
        f"instantiated {format_count(made.instantiated)} times{at}{held}{updated}, launched "
        f"{format_count(made.launches)} times{rebuilt}"
    )


def _fitting_texts(fitting: Sequence[Fitting]) -> list[str]:
    """One for all that lie between the same lines of a process: they differ in figures only."""
    alike: dict[tuple[int, Line | None, Line | None], list[Fitting]] = {}
    for one in fitting:
        alike.setdefault((one.pid, one.first, one.last), []).append(one)
    return [_fitting_text(found) for found in alike.values()]


def _fitting_text(found: Sequence[Fitting]) -> str:
    one, least = found[0], min(found, key=lambda other: other.steps)
    ends = [line.text() for line in (one.first, one.last) if line is not None]
    where = f" from {ends[0]} to {ends[1]}" if len(ends) == 2 else ""
    counts = sorted({other.launches for other in found})
    launches = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    times, each, together = (f"{len(found)} times ", " each", " together") if len(found) > 1 else ("",) * 3
    host = format_ns(sum(other.host_ns for other in found))
    return (
        f"{times}{launches} launches a step{where} would fit one{each}, if their memory stays where it is: "
        f"the same kernels in the same shapes in {least.steps} of {least.of_steps} steps, "
        f"in {host} of the host's time{together}"
    )

"""Launches by kernel: rate, count per step, lines and shapes.

Time on a GPU is an estimate with its error, or it is not reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from gputop.analysis.estimates.estimate import GpuTimeOf
from gputop.documents.additive import (
    COUNTED,
    MOST,
    SUM,
    Adds,
    added_up,
    by_key,
    merged,
    of_processes,
    rows_by,
)
from gputop.documents.fields import FLAT, HIDDEN, Mark, marked
from gputop.documents.shared_schema import ShapeJson
from gputop.engine.calls.launch_counts import (
    NAMELESS,
    ByShape,
    folded,
    library_of,
    most_first,
    shapes_json,
    small_among,
)
from gputop.engine.calls.stack_table import Line
from gputop.engine.gpus.nvml_rows import smaller
from gputop.format import format_count, format_ns, format_percent

_LINES = 8  # of a kernel, in JSON


@dataclass(frozen=True, slots=True)
class KernelLine:
    """A line, and the launches of a kernel that were made there."""

    line: Annotated[Line, FLAT]
    launches: int


def _lines_of(lines: Mapping[Line, int]) -> list[KernelLine]:
    return [KernelLine(*row) for row in _most(lines)[:_LINES]]


def _most(lines: Mapping[Line, int]) -> list[tuple[Line, int]]:
    return sorted(lines.items(), key=lambda row: (-row[1], row[0]))


def _shapes_of(shapes: ByShape) -> list[ShapeJson]:
    return shapes_json(most_first(shapes))


def _both(one: GpuTimeOf | None, other: GpuTimeOf | None) -> GpuTimeOf | None:
    """Return the time of two parts together; their errors may have one reason, so they add up."""
    if one is None or other is None:
        return None
    return GpuTimeOf(one.ns + other.ns, one.error_ns + other.error_ns)


@dataclass(frozen=True, slots=True)
class KernelLaunches:
    """The launches of one process under one name; "" is the name of all without one.

    Attributes:
        file: The file of the host function of that name.
        handles: Number of handles with this name.
        stepped: Launches within a step; 0 where the process has no steps.
        lines: Line -> launches made there, where the line is known.
        shapes: Shape -> its launches, where the shape is known.
        captured: Launches into a graph, which did not run then.
        gpu: Their GPU time, estimated; None where it cannot be separated from others'.
    """

    pid: int
    name: str
    file: str
    handles: Annotated[int, MOST]
    launches: Annotated[int, SUM]
    stepped: Annotated[int, SUM, HIDDEN]
    lines: Annotated[Mapping[Line, int], COUNTED, Mark(schema=tuple[KernelLine, ...], make=_lines_of)]
    shapes: Annotated[ByShape, COUNTED, Mark(schema=list[ShapeJson], make=_shapes_of)]
    captured: Annotated[int, SUM]
    gpu: Annotated[GpuTimeOf | None, Adds(_both), Mark("gpu_ns")]

    @property
    def key(self) -> tuple[int, str, str]:
        """Its identity."""
        return self.pid, self.name, self.file

    @property
    @marked(Mark())
    def library(self) -> str:
        """The library of the kernel; "" where that is not known."""
        return library_of(self.file)

    @property
    def first_lines(self) -> list[tuple[Line, int]]:
        """The lines, most launches first."""
        return _most(self.lines)

    @property
    @marked(Mark())
    def unshaped(self) -> int:
        """Launches whose shape is not known."""
        return self.launches - sum(self.shapes.values())

    @property
    @marked(Mark())
    def unplaced(self) -> int:
        """Launches whose line is not known."""
        return self.launches - sum(self.lines.values())


def _most_launches(row: KernelLaunches) -> tuple[int, tuple[int, str, str]]:
    return -row.launches, row.key


def most_launches_first(rows: Iterable[KernelLaunches]) -> tuple[KernelLaunches, ...]:
    """Sort rows, most launches first."""
    return tuple(sorted(rows, key=_most_launches))


@dataclass(frozen=True, slots=True)
class LaunchedKernel:
    """The launches of one process under one name, with their rates by time and by its steps."""

    row: Annotated[KernelLaunches, FLAT]
    per_second: float
    per_step: float | None
    small: int | None


@dataclass(frozen=True, slots=True)
class KernelReport:
    """The launches of ``over_ns``, of processes with some named kernel; most launches first.

    ``steps`` are the complete steps by process. ``fill`` is the number of threads that fill a GPU
    (``gputop/engine/gpus/nvml_rows.py``).
    """

    over_ns: Annotated[int, SUM]
    steps: Annotated[Mapping[int, int], COUNTED]
    rows: Annotated[tuple[KernelLaunches, ...], rows_by(lambda row: row.key, _most_launches)]
    fill: Annotated[int | None, Adds(smaller)] = None

    def small(self, row: KernelLaunches) -> int | None:
        """Return the launches with fewer threads than fill the GPU; None: not known."""
        return small_among(row.shapes, self.fill)

    def per_second(self, row: KernelLaunches) -> float:
        """Return the launches per second of the explained time."""
        return row.launches * 1e9 / max(self.over_ns, 1)

    def per_step(self, row: KernelLaunches) -> float | None:
        """Return the launches per step; None where the process has no steps."""
        steps = self.steps.get(row.pid, 0)
        return row.stepped / steps if steps else None

    def launched(self) -> tuple[LaunchedKernel, ...]:
        """Return the rows as the document has them."""
        return tuple(
            LaunchedKernel(
                row,
                round(self.per_second(row), 3),
                None if (times := self.per_step(row)) is None else round(times, 3),
                self.small(row),
            )
            for row in self.rows
        )

    def of(self, pids: frozenset[int] | None) -> KernelReport | None:
        """Return the launches of these processes, or of all; None without any."""
        mine = of_processes(self, pids)
        return mine if mine.rows else None


# Launches by kernel as lines of text.

_SHOWN, _SHOWN_LINES = 8, 2  # kernels that a text lists, and lines of each


def kernel_texts(report: KernelReport) -> list[str]:
    """Return a heading, then a line for each kernel, indented, with its time where that can be estimated."""
    alike = merged((), report.rows, lambda row: (row.pid, folded(row.name), row.library))
    rows = sorted(alike, key=lambda row: -row.launches)
    texts = ["Launched most often:", *(f"  {_text(report, row)}" for row in rows[:_SHOWN])]
    if rest := rows[_SHOWN:]:
        count = format_count(sum(row.launches for row in rest))
        texts.append(f"  {len(rest)} more kernels, {count} launches together")
    return texts


def _text(report: KernelReport, row: KernelLaunches) -> str:
    times = report.per_step(row)
    steps = f", {per_step_text(times)} a step" if times else ""
    lines = ", ".join(
        f"{line.text()} ({format_count(count)})" for line, count in row.first_lines[:_SHOWN_LINES]
    )
    whose = f" of {row.library}" if row.library else ""
    if len({one.pid for one in report.rows}) > 1:
        whose += f", process {row.pid}"
    often = f"{format_count(report.per_second(row))} launches a second{steps}"
    into = f", {format_count(row.captured)} of all into graphs" if row.captured else ""
    gpu_time = f", GPU time {gpu_text(row.gpu)}" if row.gpu is not None else ""
    return f"{folded(row.name) or NAMELESS}{whose}: {often}{into}{gpu_time}{' at ' + lines if lines else ''}"


def gpu_text(time: GpuTimeOf) -> str:
    """Return ``about 1.2s, give or take 40ms``; ``1.2s`` by the GPU's own clock."""
    if not time.error_ns:
        return format_ns(time.ns)
    return f"about {format_ns(time.ns)}, give or take {format_ns(time.error_ns)}"


def per_step_text(times: float) -> str:
    """Return ``3``, ``2.5``, ``0.1``, ``<0.1``."""
    if 0 < times < 0.05:
        return "<0.1"
    return f"{times:.0f}" if times >= 100 or times == int(times) else f"{times:.1f}"


# CUDA graphs by the line that makes them, and launches that would fit one.

REBUILT = 3  # graphs of one line, from which on they may be rebuilt for each launch
_GRAPHS_SHOWN = 4  # of each kind, in a text


@dataclass(frozen=True, slots=True)
class MadeGraphs:
    """The graphs that one process makes at one line.

    Attributes:
        line: Of the call that instantiates them; None: not known.
        instantiated: Number of graphs.
        updated: Updates of arguments in place (``cudaGraphExecUpdate``).
        launches: Launches of these graphs.
        kernels: (least, most) launches in one; None where a capture is not complete.
    """

    pid: int
    line: Line | None
    instantiated: Annotated[int, SUM]
    updated: Annotated[int, SUM]
    launches: Annotated[int, SUM]
    kernels: Annotated[tuple[int, int] | None, HIDDEN]

    @property
    @marked(Mark())
    def kernels_least(self) -> int | None:
        """The fewest launches that went into one."""
        return self.kernels[0] if self.kernels is not None else None

    @property
    @marked(Mark())
    def kernels_most(self) -> int | None:
        """The most launches that went into one."""
        return self.kernels[1] if self.kernels is not None else None

    @property
    def rebuilt(self) -> bool:
        """True if hardly any of them is launched twice."""
        return self.instantiated >= REBUILT and self.launches < 2 * self.instantiated

    def joined(self, later: MadeGraphs) -> MadeGraphs:
        """Return these and those of a later part."""
        known = [one.kernels for one in (self, later) if one.instantiated]
        spans = [one for one in known if one is not None]
        whole = len(spans) == len(known) > 0
        kernels = (min(one[0] for one in spans), max(one[1] for one in spans)) if whole else None
        return replace(added_up(self, later), kernels=kernels)


@dataclass(frozen=True, slots=True)
class Fitting:
    """Launches that follow each other in the same kernels, shapes and streams in nearly every step.

    Attributes:
        first, last: The lines of the first and the last of them; None: not known.
        launches: Their number in each step.
        steps: Steps in which they were the same.
        of_steps: Steps that were compared.
        host_ns: The median time from the first one's begin to the last one's end.
    """

    pid: int
    first: Line | None
    last: Line | None
    launches: int
    steps: int
    of_steps: int
    host_ns: int


@dataclass(frozen=True, slots=True)
class UnseenGraphs:
    """Launches of graphs whose instantiation is not in the recording."""

    pid: int
    launches: int


def _unseen(launches: Mapping[int, int]) -> tuple[UnseenGraphs, ...]:
    return tuple(UnseenGraphs(*row) for row in sorted(launches.items()))


def _made_in_both(one: Sequence[MadeGraphs], later: Sequence[MadeGraphs]) -> tuple[MadeGraphs, ...]:
    earlier, others = ({(row.pid, row.line): row for row in rows} for rows in (one, later))
    return graphs_in_order(by_key(earlier, others, MadeGraphs.joined).values())


def _of_more_steps(one: tuple[Fitting, ...], later: tuple[Fitting, ...]) -> tuple[Fitting, ...]:
    return max((one, later), key=lambda rows: sum(row.of_steps for row in rows))


@dataclass(frozen=True, slots=True)
class GraphReport:
    """CUDA graphs; ``unseen``: by process, launches of graphs whose instantiation was not recorded."""

    made: Annotated[tuple[MadeGraphs, ...], Adds(_made_in_both)] = ()
    unseen: Annotated[Mapping[int, int], COUNTED, Mark(schema=tuple[UnseenGraphs, ...], make=_unseen)] = (
        field(default_factory=dict)
    )
    fitting: Annotated[tuple[Fitting, ...], Adds(_of_more_steps)] = ()

    def of(self, pids: frozenset[int] | None) -> GraphReport | None:
        """Return the graphs of these processes, or of all; None without any."""
        unseen = {pid: n for pid, n in self.unseen.items() if pids is None or pid in pids}
        mine = replace(of_processes(self, pids), unseen=unseen)
        return mine if mine.made or mine.unseen or mine.fitting else None


def graphs_in_order(made: Iterable[MadeGraphs]) -> tuple[MadeGraphs, ...]:
    """Sort graphs, most instantiations first."""
    return tuple(sorted(made, key=lambda one: (-one.instantiated, one.pid, one.line or Line("", 0, ""))))


def graph_texts(report: GraphReport) -> list[str]:
    """Return lines of text, the first of each kind."""
    texts = [_made_text(one) for one in report.made[:_GRAPHS_SHOWN]]
    if unseen := sum(report.unseen.values()):
        texts.append(f"{format_count(unseen)} launches of graphs whose instantiation was not recorded")
    texts += _fitting_texts(report.fitting)[:_GRAPHS_SHOWN]
    return ["CUDA graphs:", *(f"  {text}" for text in texts)]


def _made_text(made: MadeGraphs) -> str:
    at = f" at {made.line.text()}" if made.line is not None else ""
    held = ""
    if made.kernels is not None:
        held = f", {' to '.join(map(str, dict.fromkeys(made.kernels)))} kernels each"
    updated = f", updated {format_count(made.updated)} times" if made.updated else ""
    rebuilt = ": made anew for nearly every launch" if made.rebuilt else ""
    return (
        f"instantiated {format_count(made.instantiated)} times{at}{held}{updated}, launched "
        f"{format_count(made.launches)} times{rebuilt}"
    )


def _fitting_texts(fitting: Sequence[Fitting]) -> list[str]:
    """Return one text for all between the same lines of a process: they differ in figures only."""
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


# GPUs by their own clock: kernels by name, their queue delay, exposed copies and communication.

_FEWEST = 20  # launches, for a queue delay
_AHEAD, _BEHIND = 0.8, 0.2  # of them that met a busy GPU: the host is ahead, or does not get ahead


@dataclass(frozen=True, slots=True)
class ExactLine:
    """A line, and the GPU time of what it launched."""

    line: Annotated[Line, FLAT]
    ns: int


def _exact_lines(lines: Mapping[Line, int]) -> list[ExactLine]:
    return [ExactLine(*row) for row in _most(lines)[:_LINES]]


@dataclass(frozen=True, slots=True)
class ExactKernel:
    """The runs of one process's kernels of one name, or of a graph.

    Attributes:
        linked: Runs whose launch is known; the delays are of these.
        delay_ns: From the begin of their launches to their own, summed.
        ahead: Runs that were launched while the GPU was at work.
        lines: ns by the line of their launches, where it is known.
    """

    pid: int
    name: str
    runs: Annotated[int, SUM]
    ns: Annotated[int, SUM]
    longest_ns: Annotated[int, MOST]
    linked: Annotated[int, SUM]
    delay_ns: Annotated[int, SUM]
    longest_delay_ns: Annotated[int, MOST]
    ahead: Annotated[int, SUM]
    lines: Annotated[Mapping[Line, int], COUNTED, Mark(schema=list[ExactLine], make=_exact_lines)]

    @property
    def first_lines(self) -> list[tuple[Line, int]]:
        """The lines, most time first."""
        return _most(self.lines)

    @property
    def usual_delay_ns(self) -> int | None:
        """The mean delay; None where no launch is known."""
        return self.delay_ns // self.linked if self.linked else None


@dataclass(frozen=True, slots=True)
class ExactGpu:
    """One GPU, ns; exposed work ran alone."""

    label: str
    busy_ns: Annotated[int, SUM]
    copies_ns: Annotated[int, SUM]
    exposed_copies_ns: Annotated[int, SUM]
    communication_ns: Annotated[int, SUM]
    exposed_communication_ns: Annotated[int, SUM]


def _most_time(one: ExactKernel) -> tuple[int, int, str]:
    return -one.ns, one.pid, one.name


def _larger(one: int | None, later: int | None) -> int | None:
    return max((error for error in (one, later) if error is not None), default=None)


@dataclass(frozen=True, slots=True)
class ExactReport:
    """GPUs by their own clock.

    Attributes:
        error_ns: The error of the GPU's times on the host's clock; None: not known.
    """

    gpus: Annotated[tuple[ExactGpu, ...], rows_by(lambda one: one.label)] = ()
    kernels: Annotated[tuple[ExactKernel, ...], rows_by(lambda one: (one.pid, one.name), _most_time)] = ()
    error_ns: Annotated[int | None, Adds(_larger)] = None

    def of(self, pids: frozenset[int] | None) -> ExactReport | None:
        """Return the kernels of these processes, or of all; None where no GPU's own times are known."""
        return of_processes(self, pids) if self.gpus else None


def longest_first(kernels: Iterable[ExactKernel]) -> tuple[ExactKernel, ...]:
    """Sort kernels, most GPU time first."""
    return tuple(sorted(kernels, key=_most_time))


def exact_texts(report: ExactReport) -> list[str]:
    """Return a heading, a line for each GPU, the queue delay, and one for each kernel, indented."""
    error = "" if report.error_ns is None else f", within {format_ns(report.error_ns)} of the host's"
    texts = [f"By the GPU's own clock{error}:"]
    texts += [f"  {_gpu_text(one)}" for one in report.gpus]
    if delay := delay_text(report.kernels):
        texts.append(f"  {delay}")
    rows = longest_first(merged((), report.kernels, lambda one: (one.pid, folded(one.name))))
    several = len({one.pid for one in rows}) > 1
    texts += [f"  {_kernel_text(one, several=several)}" for one in rows[:_SHOWN]]
    if rest := rows[_SHOWN:]:
        texts.append(f"  {len(rest)} more kernels, {format_ns(sum(one.ns for one in rest))} together")
    return texts


def _gpu_text(one: ExactGpu) -> str:
    parts = [f"{one.label} was busy for {format_ns(one.busy_ns)}"]
    for name, ns, alone in (
        ("copies and fills", one.copies_ns, one.exposed_copies_ns),
        ("communication", one.communication_ns, one.exposed_communication_ns),
    ):
        if ns:
            exposed = f"{format_percent(100 * alone / ns)} % of it exposed" if alone else "overlapped"
            parts.append(f"{name} {format_ns(ns)}, {exposed}")
    return "; ".join(parts)


def delay_text(kernels: Iterable[ExactKernel]) -> str:
    """Return the mean queue delay, and whether the host is ahead; "" for few kernels."""
    mine = tuple(kernels)
    linked = sum(one.linked for one in mine)
    if linked < _FEWEST:
        return ""
    share = sum(one.ahead for one in mine) / linked
    usual = format_ns(sum(one.delay_ns for one in mine) // linked)
    host = ": the host is ahead of the GPU" if share >= _AHEAD else ""
    if share <= _BEHIND:
        host = ": the host does not get ahead"
    return (
        f"queue delay {usual} on average; {format_percent(100 * share)} % of {format_count(linked)} launches "
        f"met a busy GPU{host}"
    )


def _kernel_text(one: ExactKernel, *, several: bool) -> str:
    delay = one.usual_delay_ns
    waited = f", queue delay {format_ns(delay)}" if delay is not None else ""
    where = ", ".join(f"{line.text()} ({format_ns(ns)})" for line, ns in one.first_lines[:_SHOWN_LINES])
    whose = f", process {one.pid}" if several else ""
    return (
        f"{folded(one.name)}{whose}: {format_ns(one.ns)} in {format_count(one.runs)} runs, longest "
        f"{format_ns(one.longest_ns)}{waited}{f' at {where}' if where else ''}"
    )

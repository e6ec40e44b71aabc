"""What GPUs did by their own clock: kernels by name, their queue delay, exposed copies and communication."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from gputop.documents.additive import COUNTED, MOST, SUM, merged
from gputop.documents.fields import FLAT, Mark
from gputop.engine.calls.launch_counts import folded
from gputop.engine.calls.stack_table import Line
from gputop.format import format_count, format_ns, format_percent

_SHOWN, _SHOWN_LINES, _LINES = 8, 2, 8
_FEWEST = 20  # kernels, of whose launches something is said
_AHEAD, _BEHIND = 0.8, 0.2  # of them that met a busy GPU: the host is ahead, or does not get ahead


@dataclass(frozen=True, slots=True)
class ExactLine:
    """A line, and the GPU time of what it launched."""

    line: Annotated[Line, FLAT]
    ns: int


def _lines_of(lines: Mapping[Line, int]) -> list[ExactLine]:
    return [ExactLine(*row) for row in _longest(lines)[:_LINES]]


def _longest(lines: Mapping[Line, int]) -> list[tuple[Line, int]]:
    return sorted(lines.items(), key=lambda row: (-row[1], row[0]))


@dataclass(frozen=True, slots=True)
class ExactKernel:
    """The runs of one process's kernels of one name, or of a graph.

    Attributes:
        linked: Runs whose launch is known; the figures of delays are of these.
        delay_ns: From the begin of their launches to their own, all together.
        ahead: Runs that were launched while the GPU was at work.
        lines: ns by the line that launched them; of others it is not known.
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
    lines: Annotated[Mapping[Line, int], COUNTED, Mark(schema=list[ExactLine], make=_lines_of)]

    @property
    def first_lines(self) -> list[tuple[Line, int]]:
        """The lines, most time first."""
        return _longest(self.lines)

    @property
    def usual_delay_ns(self) -> int | None:
        """The mean; None where no launch is known."""
        return self.delay_ns // self.linked if self.linked else None


@dataclass(frozen=True, slots=True)
class ExactGpu:
    """One GPU, ns; what is exposed ran while nothing else did."""

    label: str
    busy_ns: Annotated[int, SUM]
    copies_ns: Annotated[int, SUM]
    exposed_copies_ns: Annotated[int, SUM]
    communication_ns: Annotated[int, SUM]
    exposed_communication_ns: Annotated[int, SUM]


@dataclass(frozen=True, slots=True)
class ExactReport:
    """What GPUs did by their own clock.

    Attributes:
        error_ns: How far the GPU's times may be off the host's; None: not known.
    """

    gpus: tuple[ExactGpu, ...] = ()
    kernels: tuple[ExactKernel, ...] = ()
    error_ns: int | None = None

    def joined(self, later: ExactReport) -> ExactReport:
        """This, and what came next."""
        gpus = merged(self.gpus, later.gpus, lambda one: one.label)
        kernels = merged(self.kernels, later.kernels, lambda one: (one.pid, one.name))
        errors = [one for one in (self.error_ns, later.error_ns) if one is not None]
        return ExactReport(tuple(gpus), longest_first(kernels), max(errors, default=None))

    def of(self, pids: frozenset[int] | None) -> ExactReport | None:
        """Kernels of these processes, or of all; None where no GPU's own times are known."""
        kernels = tuple(one for one in self.kernels if pids is None or one.pid in pids)
        return replace(self, kernels=kernels) if self.gpus else None


def longest_first(kernels: Iterable[ExactKernel]) -> tuple[ExactKernel, ...]:
    """Most GPU time first."""
    return tuple(sorted(kernels, key=lambda one: (-one.ns, one.pid, one.name)))


def exact_texts(report: ExactReport) -> list[str]:
    """A heading, a line for each GPU, the queue delay, and one for each kernel, indented."""
    error = "" if report.error_ns is None else f", within {format_ns(report.error_ns)} of the host's"
    texts = [f"By the GPU's own clock{error}:"]
    texts += [f"  {_gpu_text(one)}" for one in report.gpus]
    if said := delay_text(report.kernels):
        texts.append(f"  {said}")
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
    """What queue delays say of the host: a head start, or none; "" of few kernels."""
    mine = tuple(kernels)
    linked = sum(one.linked for one in mine)
    if linked < _FEWEST:
        return ""
    share = sum(one.ahead for one in mine) / linked
    usual = format_ns(sum(one.delay_ns for one in mine) // linked)
    said = (
        ": the host is ahead of the GPU"
        if share >= _AHEAD
        else ": the host does not get ahead"
        if share <= _BEHIND
        else ""
    )
    return (
        f"queue delay {usual} on average; {format_percent(100 * share)} % of {format_count(linked)} launches "
        f"met a busy GPU{said}"
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

"""What GPUs did by their own clock: kernels by name, their queue delay, exposed copies and communication."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gputop.analysis.answer.memory_report import counted
from gputop.documents.explain_schema import ExactJson
from gputop.engine.calls.launch_counts import folded
from gputop.engine.calls.stack_table import Line
from gputop.format import format_count, format_ns, format_percent

_SHOWN, _SHOWN_LINES, _LINES = 8, 2, 8
_FEWEST = 20  # kernels, of whose launches something is said
_AHEAD, _BEHIND = 0.8, 0.2  # of them that met a busy GPU: the host is ahead, or does not get ahead


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
    runs: int
    ns: int
    longest_ns: int
    linked: int
    delay_ns: int
    longest_delay_ns: int
    ahead: int
    lines: Mapping[Line, int]

    @property
    def first_lines(self) -> tuple[tuple[Line, int], ...]:
        """The lines, most time first."""
        return tuple(sorted(self.lines.items(), key=lambda row: (-row[1], row[0])))

    @property
    def usual_delay_ns(self) -> int | None:
        """The mean; None where no launch is known."""
        return self.delay_ns // self.linked if self.linked else None

    def joined(self, later: ExactKernel) -> ExactKernel:
        """These, and those that came next."""
        return replace(
            self,
            runs=self.runs + later.runs,
            ns=self.ns + later.ns,
            longest_ns=max(self.longest_ns, later.longest_ns),
            linked=self.linked + later.linked,
            delay_ns=self.delay_ns + later.delay_ns,
            longest_delay_ns=max(self.longest_delay_ns, later.longest_delay_ns),
            ahead=self.ahead + later.ahead,
            lines=counted(self.lines, later.lines),
        )


@dataclass(frozen=True, slots=True)
class ExactGpu:
    """One GPU, ns; what is exposed ran while nothing else did."""

    busy_ns: int
    copies_ns: int
    exposed_copies_ns: int
    communication_ns: int
    exposed_communication_ns: int

    def joined(self, later: ExactGpu) -> ExactGpu:
        """This, and what came next."""
        return ExactGpu(*(getattr(self, name) + getattr(later, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class ExactReport:
    """By GPU, by kernel; ``error_ns``: how far the GPU's times may be off the host's, None: not known."""

    gpus: Mapping[str, ExactGpu] = field(default_factory=dict)
    kernels: tuple[ExactKernel, ...] = ()
    error_ns: int | None = None

    def joined(self, later: ExactReport) -> ExactReport:
        """This, and what came next."""
        gpus = dict(self.gpus)
        for label, one in later.gpus.items():
            gpus[label] = gpus[label].joined(one) if label in gpus else one
        kernels = {(one.pid, one.name): one for one in self.kernels}
        for kernel in later.kernels:
            key = kernel.pid, kernel.name
            kernels[key] = kernels[key].joined(kernel) if key in kernels else kernel
        errors = [one for one in (self.error_ns, later.error_ns) if one is not None]
        return ExactReport(gpus, longest_first(kernels.values()), max(errors, default=None))

    def of(self, pids: frozenset[int] | None) -> ExactReport | None:
        """Kernels of these processes, or of all; None where no GPU's own times are known."""
        kernels = tuple(one for one in self.kernels if pids is None or one.pid in pids)
        return replace(self, kernels=kernels) if self.gpus else None


def longest_first(kernels: Iterable[ExactKernel]) -> tuple[ExactKernel, ...]:
    """Most GPU time first."""
    return tuple(sorted(kernels, key=lambda one: (-one.ns, one.pid, one.name)))


def exact_json(report: ExactReport) -> ExactJson:
    """The key ``exact``."""
    return {
        "error_ns": report.error_ns,
        "gpus": [
            {
                "label": label,
                "busy_ns": one.busy_ns,
                "copies_ns": one.copies_ns,
                "exposed_copies_ns": one.exposed_copies_ns,
                "communication_ns": one.communication_ns,
                "exposed_communication_ns": one.exposed_communication_ns,
            }
            for label, one in report.gpus.items()
        ],
        "kernels": [
            {
                "pid": one.pid,
                "name": one.name,
                "runs": one.runs,
                "ns": one.ns,
                "longest_ns": one.longest_ns,
                "linked": one.linked,
                "delay_ns": one.delay_ns,
                "longest_delay_ns": one.longest_delay_ns,
                "ahead": one.ahead,
                "lines": [{**line.to_json(), "ns": ns} for line, ns in one.first_lines[:_LINES]],
            }
            for one in report.kernels
        ],
    }


def exact_texts(report: ExactReport) -> list[str]:
    """A heading, a line for each GPU, the queue delay, and one for each kernel, indented."""
    error = "" if report.error_ns is None else f", within {format_ns(report.error_ns)} of the host's"
    texts = [f"By the GPU's own clock{error}:"]
    texts += [f"  {_gpu_text(label, one)}" for label, one in report.gpus.items()]
    if said := delay_text(report.kernels):
        texts.append(f"  {said}")
    alike: dict[tuple[int, str], ExactKernel] = {}
    for one in report.kernels:
        key = one.pid, folded(one.name)
        alike[key] = alike[key].joined(one) if key in alike else one
    rows = longest_first(alike.values())
    several = len({one.pid for one in rows}) > 1
    texts += [f"  {_kernel_text(one, several=several)}" for one in rows[:_SHOWN]]
    if rest := rows[_SHOWN:]:
        texts.append(f"  {len(rest)} more kernels, {format_ns(sum(one.ns for one in rest))} together")
    return texts


def _gpu_text(label: str, one: ExactGpu) -> str:
    parts = [f"{label} was busy for {format_ns(one.busy_ns)}"]
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

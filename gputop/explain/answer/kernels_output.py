"""Launches by kernel as JSON (docs/json.md) and as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.documents.explain_schema import LaunchedKernelJson
from gputop.engine.kernels import NAMELESS, folded, most_first
from gputop.engine.kernels_output import shapes_json
from gputop.explain.answer.kernels import KernelLaunches, KernelReport
from gputop.explain.estimates.kerneltimes import GpuTimeOf
from gputop.format import format_count, format_ns

_LINES = 8  # of a kernel, in JSON; ``launches`` and ``unplaced`` tell what others have
_SHOWN, _SHOWN_LINES = 8, 2  # kernels of which a text tells, and lines of each


def kernels_json(report: KernelReport) -> list[LaunchedKernelJson]:
    """The key ``kernels``."""
    return [
        {
            "pid": row.pid,
            "name": row.name,
            "file": row.file,
            "library": row.library,
            "handles": row.handles,
            "launches": row.launches,
            "per_second": round(report.per_second(row), 3),
            "per_step": None if (times := report.per_step(row)) is None else round(times, 3),
            "lines": [{**line.to_json(), "launches": count} for line, count in row.first_lines[:_LINES]],
            "unplaced": row.unplaced,
            "shapes": shapes_json(most_first(row.shapes)),
            "unshaped": row.launches - sum(row.shapes.values()),
            "small": report.small(row),
            "captured": row.captured,
            "gpu_ns": None
            if row.gpu is None
            else {"estimate": round(row.gpu.ns), "error": round(row.gpu.error_ns)},
        }
        for row in report.rows
    ]


def kernel_texts(report: KernelReport) -> list[str]:
    """A heading, then one for each kernel, indented; how long it ran where that can be estimated."""
    rows = _by_shown_name(report.rows)
    texts = ["Launched most often:", *(f"  {_text(report, row)}" for row in rows[:_SHOWN])]
    if rest := rows[_SHOWN:]:
        count = format_count(sum(row.launches for row in rest))
        texts.append(f"  {len(rest)} more kernels, {count} launches together")
    return texts


def _by_shown_name(rows: Sequence[KernelLaunches]) -> list[KernelLaunches]:
    """One for all whose names look the same once their templates are folded, most launches first."""
    alike: dict[tuple[int, str, str], KernelLaunches] = {}
    for row in rows:
        key = row.pid, folded(row.name), row.library
        alike[key] = alike[key].joined(row) if key in alike else row
    return sorted(alike.values(), key=lambda row: -row.launches)


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
    took = f", GPU time {gpu_text(row.gpu)}" if row.gpu is not None else ""
    return f"{folded(row.name) or NAMELESS}{whose}: {often}{into}{took}{' at ' + lines if lines else ''}"


def gpu_text(time: GpuTimeOf) -> str:
    """``about 1.2s, give or take 40ms``; ``1.2s`` where the GPU's own clock tells it."""
    if not time.error_ns:
        return format_ns(time.ns)
    return f"about {format_ns(time.ns)}, give or take {format_ns(time.error_ns)}"


def per_step_text(times: float) -> str:
    """``3``, ``2.5``, ``0.1``, ``<0.1``."""
    if 0 < times < 0.05:
        return "<0.1"
    return f"{times:.0f}" if times >= 100 or times == int(times) else f"{times:.1f}"

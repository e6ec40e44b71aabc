"""The explanation's details of one process as lines: kernels, memory, failed calls, ranks."""

from __future__ import annotations

import math
from typing import NamedTuple

from gputop.analysis.answer.kernel_report import (
    KernelLaunches,
    KernelReport,
    exact_texts,
    longest_first,
    per_step_text,
)
from gputop.analysis.answer.memory_report import BEFORE, KINDS, leak_line, shortage_lines
from gputop.analysis.answer.picture import RankTimes
from gputop.analysis.answer.report import Report
from gputop.documents.additive import counted, merged
from gputop.engine.calls.failed_calls import failure_line, launch_line
from gputop.engine.calls.launch_counts import NAMELESS, by_folded_name, folded, shape_text
from gputop.engine.calls.stack_table import Line as SourceLine
from gputop.engine.frame import Frame, ProcessRow
from gputop.format import format_bytes, format_count, format_counted, format_ns, format_percent
from gputop.ui.model.look import Glyphs, Line, paragraph

_SHAPES_FROM, _SHAPE_WIDTH = 110, 24  # columns of the pane, of a shape


class _Explained(NamedTuple):
    """Kernels of one folded name in the explanation; ``gpu``: GPU time and its error as shares."""

    per_step: float | None = None
    line: SourceLine | None = None
    gpu: tuple[float, float] | None = None


def kernel_lines(
    frame: Frame, row: ProcessRow, width: int, glyphs: Glyphs, report: Report | None = None
) -> list[Line]:
    """Return a heading, and a line for each name without template arguments.

    ``SMALL%`` is the share of launches with fewer threads than fill the GPU, of those with a known shape;
    ``SHAPE`` the most frequent one. Launches per second are of the frame; launches per step, their main
    source line, and their estimated GPU time with its error (``GPU%`` of the explained time) are of the
    explanation.
    """
    seconds, total = frame.window_ns / 1e9, sum(kernel.launches for kernel in row.kernels)
    known = _explained(report, row.pid)
    timed = any(one.gpu is not None for one in known.values())
    shapes = width >= _SHAPES_FROM
    shape_head = f"{'SHAPE':<{_SHAPE_WIDTH}} " if shapes else ""
    gpu_head = f"{'GPU%':>6} " if timed else ""
    head = f" {'LAUNCH/s':>8} {'/STEP':>6} {'SHARE%':>6} {'SMALL%':>6} {gpu_head} {'LIBRARY':<16} "
    head += f"{shape_head}KERNEL"
    lines: list[Line] = [((head, "head"),)]
    for kernel in by_folded_name(row.kernels):
        share = format_percent(100 * kernel.launches / max(total, 1))
        several = f"  {kernel.kernels} kernels" if kernel.kernels > 1 else ""
        explained = known.get((kernel.name, kernel.library), _Explained())
        step = "-" if explained.per_step is None else per_step_text(explained.per_step)
        small = "-" if kernel.small is None else format_percent(100 * kernel.small / kernel.shaped)
        gpu = f"{_gpu_text(explained.gpu, glyphs):>6} " if timed else ""
        lead = f" {format_count(kernel.launches / seconds):>8} {step:>6} {share:>6} {small:>6} {gpu} "
        whose = glyphs.shown(kernel.library or "-")[:16]
        shape = "-" if kernel.shape is None else shape_text(kernel.shape)
        at = f"  {glyphs.shown(explained.line.brief)}" if explained.line is not None else ""
        spans = [
            (lead, "value"),
            (f"{whose:<16} ", "dim"),
            *([(f"{shape:<{_SHAPE_WIDTH}} ", "value")] if shapes else []),
            (glyphs.shown(kernel.name), "unknown" if kernel.name == NAMELESS else ""),
            (several + at, "dim"),
        ]
        lines.append(glyphs.line(spans, width))
    return lines


def exact_lines(report: Report | None, pid: int, width: int, glyphs: Glyphs) -> list[Line]:
    """Return the process's kernels by the GPU's own clock, if known, most time first.

    ``DELAY`` is the mean time from launch to begin; ``AHEAD%`` the share launched while the GPU was busy.
    """
    exact = report.exact if report is not None else None
    rows = [one for one in exact.kernels if one.pid == pid] if exact is not None else []
    if exact is None or report is None or not rows:
        return []
    head = f" {'RUNS':>8} {'GPU%':>6} {'LONGEST':>8} {'DELAY':>8} {'AHEAD%':>6}  KERNEL, BY THE GPU'S CLOCK"
    lines: list[Line] = [((head, "head"),)]
    for one in longest_first(merged((), rows, lambda one: folded(one.name))):
        delay, ahead = "-", "-"
        if (usual := one.usual_delay_ns) is not None:
            delay, ahead = format_ns(usual), format_percent(100 * one.ahead / one.linked)
        share = format_percent(100 * one.ns / max(report.duration_ns, 1))
        lead = (
            f" {format_count(one.runs):>8} {share:>6} {format_ns(one.longest_ns):>8} {delay:>8} {ahead:>6}  "
        )
        line = next((line for line, _ns in one.first_lines), None)
        at = f"  {glyphs.shown(line.brief)}" if line is not None else ""
        name = glyphs.shown(folded(one.name))
        lines.append(glyphs.line([(lead, "value"), (name, ""), (at, "dim")], width))
    texts = exact_texts(exact)[1 : 2 + len(exact.gpus)]
    lines += [glyphs.line([(f" {text.strip()}", "dim")], width) for text in texts]
    return lines


def _explained(report: Report | None, pid: int) -> dict[tuple[str, str], _Explained]:
    """Return the kernels of the explanation by folded name and library."""
    kernels = report.kernels if report is not None else None
    if kernels is None:
        return {}
    alike: dict[tuple[str, str], list[KernelLaunches]] = {}
    for row in kernels.rows:
        if row.pid == pid:
            alike.setdefault((folded(row.name) or NAMELESS, row.library), []).append(row)
    return {key: _together(kernels, rows) for key, rows in alike.items()}


def _together(kernels: KernelReport, rows: list[KernelLaunches]) -> _Explained:
    steps = [step for row in rows if (step := kernels.per_step(row)) is not None]
    lines: dict[SourceLine, int] = {}
    for row in rows:
        lines = counted(lines, row.lines)
    times = [row.gpu for row in rows if row.gpu is not None]
    gpu = None
    if len(times) == len(rows):  # else it would be incomplete
        over = max(kernels.over_ns, 1)
        gpu = sum(one.ns for one in times) / over, sum(one.error_ns for one in times) / over
    return _Explained(sum(steps) if steps else None, _most(lines), gpu)


def _gpu_text(gpu: tuple[float, float] | None, glyphs: Glyphs) -> str:
    """Return ``41±3``, in percent, or ``-``."""
    if gpu is None:
        return "-"
    return f"{100 * gpu[0]:.0f}{'+-' if glyphs.ascii else '±'}{math.ceil(100 * gpu[1])}"


def _most(lines: dict[SourceLine, int]) -> SourceLine | None:
    return max(lines, key=lambda one: (lines[one], one), default=None)


def memory_lines(report: Report | None, pid: int, width: int, glyphs: Glyphs) -> list[Line]:
    """Return failed allocations, newest first, leaks, then the memory held by source line."""
    memory = report.memory if report is not None else None
    held = next((one for one in memory.processes if one.pid == pid), None) if memory else None
    if memory is None or held is None:
        return []
    lines: list[Line] = []
    for one in sorted(memory.shortages, key=lambda one: -one.time_ns):
        if one.pid == pid:
            first, *rest = shortage_lines(one)
            lines += _wrapped(first, width, glyphs, "alert")
            lines += [line for text in rest for line in _wrapped(text, width, glyphs, "")]
    for leak in memory.leaks:
        if leak.pid == pid:
            lines += _wrapped(leak_line(leak), width, glyphs, "warn")
    until = "held until its end" if held.ended else "holds"
    head = f"{until} {format_bytes(held.held)} of the GPU (at most {format_bytes(held.peak)})"
    if held.pinned:
        head += f", {format_bytes(held.pinned)} page-locked"
    if not held.whole:
        head += f", and {BEFORE}"
    if held.strangers:
        head += f"; it freed {format_counted(held.strangers, 'allocation')} from before it was watched"
    lines += _wrapped(head, width, glyphs, "value")
    if held.lines:
        lines.append(((f" {'HELD':>6} {'BLOCKS':>6} {'ALLOC':>6} {'CALLS':>6}  {'KIND':<11} LINE", "head"),))
    for row in held.lines:
        place = row.line.text() if row.line is not None else "unknown"
        shown = (
            f" {format_bytes(row.held):>6} {format_count(row.pieces):>6} {format_bytes(row.allocated):>6} "
            f"{format_count(row.takes):>6}  {KINDS.get(row.use, row.use):<11} "
        )
        text = glyphs.shown(place)
        token = "" if row.held else "dim"
        lines.append(glyphs.line([(shown, token), (text, token)], width))
    return lines


def _wrapped(text: str, width: int, glyphs: Glyphs, token: str) -> list[Line]:
    indent = 1 + len(text) - len(text.lstrip())
    return paragraph(text.strip(), token, width, glyphs, indent=indent)


def failed_lines(report: Report | None, pid: int, width: int, glyphs: Glyphs) -> list[Line]:
    """Return a process's failed calls, newest first; below a sticky error the launches before it."""
    every = report.failures if report is not None else ()
    failures = sorted((one for one in every if one.pid == pid), key=lambda one: -one.last_ns)
    lines: list[Line] = []
    for failure in failures:
        lines += paragraph(failure_line(failure), "alert" if failure.error.sticky else "", width, glyphs)
        if failure.error.sticky:
            text = "every later call of the process fails"
            if failure.launches:
                text += "; not known to have ended before it:"
            lines += paragraph(text, "warn", width, glyphs, indent=3)
        for launch in failure.launches:
            lines += paragraph(launch_line(launch, failure.first_ns), "dim", width, glyphs, indent=5)
    return lines


def rank_lines(report: Report | None, frame: Frame, pid: int, width: int, glyphs: Glyphs) -> list[Line]:
    """Return a heading, and a line for each rank of the job on this machine; that of ``pid`` is marked.

    ``LAST%`` is the share of the collectives in which it came last, ``LATE`` its mean delay after the first
    rank, ``WAITS`` its mean wait for the last one, ``FINDING`` its own largest finding.
    """
    ranks = report.ranks.ranks if report is not None and report.ranks is not None else ()
    rows = {row.pid: row for row in frame.processes}
    head = f"  {'RANK':>5} {'PID':>8} {'GPU':<8} {'LAST%':>6} {'LATE':>8} {'WAITS':>8} {'COLL':>6}  FINDING"
    lines: list[Line] = [((head, "head"),)]
    for one in ranks:
        row = rows.get(one.pid)
        rank = dict(row.belongs).get("rank") if row is not None else None
        each = max(one.collectives, 1)
        last = 100 * one.last / each
        spans = [
            (f"{'>' if one.pid == pid else ' '} {'-' if rank is None else rank:>5} {one.pid:>8} ", "value"),
            (f"{one.brief_gpu[:8] or '-':<8} ", "dim"),
            (f"{format_percent(last):>6} ", "warn" if last >= 50 and len(ranks) > 2 else "value"),
            (f"{format_ns(one.late_ns / each):>8} {format_ns(one.ahead_ns / each):>8} ", "value"),
            (f"{format_count(one.collectives):>6}  ", "dim"),
            (glyphs.shown(_finding(report, one)), ""),
        ]
        lines.append(glyphs.line(spans, width))
    return lines


def _finding(report: Report | None, one: RankTimes) -> str:
    """Return the title of the rank's largest finding."""
    from gputop.analysis.findings.gap_findings import LATE

    own = [found for found in report.findings if found.pid == one.pid] if report is not None else []
    return next((found.title for found in own if found.cause not in LATE), "")

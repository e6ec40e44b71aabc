"""One frame and its verdict as text or JSON, for ``--once``: no escape codes, no Textual."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from gputop.analysis.answer.wording import what_if_text
from gputop.commands.flags import filter_text, shown_gpus
from gputop.commands.screen.looks import draws_ascii
from gputop.documents.fields import document
from gputop.engine.frame import Frame, GpuRow, ProcessRow
from gputop.engine.frame_json import frame_to_json
from gputop.format import escape_text, fit, format_bytes, format_clock, format_count, width_of
from gputop.process.stdio import put, show
from gputop.process.terminal import terminal_width
from gputop.ui.model import header
from gputop.ui.model.answer.why import ended_text
from gputop.ui.model.gpus import gpu_list, gpu_page, gpu_text
from gputop.ui.model.gpus.only_gpus import report_of_gpus, with_unwatched
from gputop.ui.model.listing import process_table
from gputop.ui.model.listing.filter import narrowed, parse_filter
from gputop.ui.model.listing.memory_shares import MemorySizes
from gputop.ui.model.look import ASCII, UNICODE, Glyphs, plain, wrap
from gputop.ui.model.process import call_table, line_table
from gputop.ui.model.table import Column, Context, needed

if TYPE_CHECKING:
    from gputop.analysis.window import Verdict


def print_frame(
    options: argparse.Namespace,
    frame: Frame,
    verdict: Verdict | None,
    outcome: str = "",
    output: Sequence[str] = (),
) -> None:
    """Print the verdict and one frame, as filtered by flags; raises like ``put``."""
    every = len(frame.processes) + len(frame.unwatched)
    gpus = shown_gpus(options)
    if verdict is not None and gpus:
        report = report_of_gpus(verdict.report, frame, gpus)
        verdict = replace(verdict, report=report) if report.gpus else None
    frame = narrowed(frame, parse_filter(filter_text(options)), gpus)
    if options.json:
        report_json = document(verdict.report) if verdict is not None else None
        put(json.dumps({**frame_to_json(frame), "verdict": report_json}) + "\n")
        return
    hidden = every - len(frame.processes) - len(frame.unwatched)
    width, plain = terminal_width(sys.stdout), draws_ascii(options)
    text = render_text(frame, width=width, ascii_only=plain, hidden=hidden, outcome=outcome, output=output)
    show(verdict_text(verdict, width, frame.time_ns, ascii_only=plain) + text)


def verdict_text(verdict: Verdict | None, width: int | None, now_ns: int, *, ascii_only: bool = False) -> str:
    """Return the sentences above the frame, and an empty line; "" without a verdict.

    Without a finding they hold the advice, as for a busy GPU; with several causes, what is left without each.
    """
    if verdict is None:
        return ""
    report = verdict.report
    lines = [f"why, {report.duration_ns / 1e9:.1f} s: {report.verdict}"]
    if verdict.ended is not None:
        lines.append(f"{ended_text(verdict.ended, now_ns)}; no process makes CUDA calls now")
    if report.diagnosis is not None and not report.findings:
        lines += [f"> {advice}" for advice in report.diagnosis.advice]
    lines += [text for text in (what_if_text(report),) if text]
    shown = [escape_text(text, ascii_only=ascii_only) for text in lines]
    return "\n".join(textwrap.fill(text, width) if width else text for text in shown) + "\n\n"


T = TypeVar("T")
UNLIMITED = 200  # widest cell where the width of the text is not limited


def render_text(
    frame: Frame,
    *,
    width: int | None,
    ascii_only: bool = False,
    hidden: int = 0,
    outcome: str = "",
    output: Sequence[str] = (),
) -> str:
    """Return the frame as lines of text, each with a newline.

    Args:
        frame: The frame.
        width: The widest line; ``None``: unlimited. Tables are cut, sentences are wrapped.
        ascii_only: Draw with ASCII.
        hidden: The number of processes that flags hide.
        outcome: How the command ended.
        output: The command's output.
    """
    frame = with_unwatched(frame)
    glyphs = ASCII if ascii_only else UNICODE
    blocks = [
        _top(frame, glyphs, width),
        _gpus(frame, glyphs, width),
        _processes(frame, glyphs, width, process_table.waiting(frame, outcome, output, hidden)),
    ]
    if frame.storms:
        traced = frame.calls_observed
        blocks.append([plain(header.storm_spans(storm, glyphs, traced=traced)) for storm in frame.storms])
    for row in frame.processes:
        blocks += _details(frame, row, glyphs)
    out: list[str] = []
    for block in blocks:
        if block:
            out += [*([""] if out else []), *block]
    cut = (line if width is None else glyphs.clip(line, width) for line in out)
    return "".join(line.rstrip() + "\n" for line in cut)


def _sentence(text: str, width: int | None, head: str = "") -> list[str]:
    """Return a sentence as lines; those after the first are indented by the head's width."""
    if width is None:
        return [head + text]
    lines = wrap(text, max(width - width_of(head), 1))
    return [(head if row == 0 else " " * width_of(head)) + line for row, line in enumerate(lines)]


def _top(frame: Frame, glyphs: Glyphs, width: int | None) -> list[str]:
    clock = format_clock(frame.wall_ns, frame.utc_offset_s, millis=True)
    facts = [
        f"gputop {clock}",
        f"window {frame.window_ns / 1e9:.2f}s",
        f"lost {frame.lost.events}",
        *([f"{format_count(frame.events_per_second)} events/s"] if frame.calls_observed else []),
        f"{header.calls_text(frame)} calls/s",
        f"gputop {frame.own_cpu_percent:.1f}% cpu {format_bytes(frame.own_rss_bytes)} rss",
    ]
    problem_texts = [glyphs.shown(text) for text in frame.problems]
    problems = [line for text in problem_texts for line in _sentence(text, width, f"{glyphs.warning} ")]
    return ["  ".join(facts), *problems]


def _table(heads: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as aligned columns, each as wide as its widest cell."""
    widths = [
        max([width_of(title), *(width_of(row[place]) for row in rows)])
        for place, (title, _) in enumerate(heads)
    ]
    out = []
    for row in ([title for title, _ in heads], *rows):
        cells = [fit(text, widths[i], right=heads[i][1]) for i, text in enumerate(row)]
        out.append("  ".join(cells).rstrip())
    return out


def _gpus(frame: Frame, glyphs: Glyphs, width: int | None) -> list[str]:
    """Return a line for each GPU, then their problems, instances and processes."""
    if not frame.gpus:
        return _sentence(gpu_list.no_gpu_sentence(frame), width)
    columns = [column for column in gpu_list.COLUMNS if gpu_list.offered(column, frame.gpus, glyphs)]
    heads = [("GPU", True), ("NAME", False), ("UTIL", True), *((column.title, True) for column in columns)]
    rows = []
    for gpu in frame.gpus:
        name = glyphs.shown(gpu.name)
        cells = [str(gpu.index), name, gpu_text.percent_text(gpu.utilization_percent)]
        rows.append([*cells, *(column.text(gpu, glyphs) for column in columns)])
    return [*_table(heads, rows), *(line for gpu in frame.gpus for line in _more_of(gpu, glyphs))]


def _more_of(gpu: GpuRow, glyphs: Glyphs) -> list[str]:
    trouble = gpu_text.trouble(gpu, glyphs)
    notes = [trouble[0]] if trouble else []
    notes += [] if gpu.lost else gpu_text.reasons(gpu)
    lines = [f"GPU {gpu.index} {sentence}" for sentence in notes]
    tables = (("instances", gpu_page.instances(gpu, glyphs)), ("processes", gpu_page.processes(gpu, glyphs)))
    for title, table in tables if gpu.processes or gpu.mig else ():
        lines += [f"{title} of GPU {gpu.index}", *(plain(line) for line in table[1:])] if table else []
    return lines


def _listed(
    columns: Sequence[Column[T]], rows: Sequence[T], context: Context, rank: Callable[[T], Any]
) -> list[str]:
    ordered = sorted(rows, key=rank, reverse=True)
    cells = [[column.cell(row, context, UNLIMITED)[0] for column in columns] for row in ordered]
    return _table([(column.title, column.right) for column in columns], cells)


def _processes(frame: Frame, glyphs: Glyphs, width: int | None, absent: Sequence[str]) -> list[str]:
    if not frame.processes:
        return [line for text in absent for line in _sentence(text, width)]
    context = process_table.context_of(frame, glyphs)
    sizes = MemorySizes()
    sizes.show(frame)
    columns = [one for one in process_table.process_table(sizes=sizes).columns if one.key != "spark"]
    return _listed(
        needed(columns, frame.processes), frame.processes, context, lambda row: row.calls_per_second
    )


def _details(frame: Frame, row: ProcessRow, glyphs: Glyphs) -> list[list[str]]:
    """Return tables of the process's calls, threads and lines, each with a title."""
    who = f"{row.pid} {glyphs.shown(row.name)}"
    of_calls = call_table.call_context(frame, row, glyphs)
    context = call_table.call_context(frame, None, glyphs)
    scale = call_table.histogram_scale(of_calls)
    calls = _listed(call_table.CALL_COLUMNS, row.calls, of_calls, lambda call: call.sum_ns)
    threads = _listed(
        call_table.THREAD_COLUMNS, row.threads, context, lambda thread: thread.involuntary_switches
    )
    lines = _listed(line_table.COLUMNS, line_table.line_uses(row), context, lambda use: use.sum_ns)
    return [
        [f"calls of {who}" + (f", {scale}" if scale else ""), *calls] if row.calls else [],
        [f"threads of {who}", *threads] if row.threads else [],
        [f"lines of {who}", *lines] if row.lines else [],
    ]

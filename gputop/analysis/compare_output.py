"""A comparison as text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from gputop.analysis.answer.wording import idle_words
from gputop.analysis.compare import CauseChange, Diff, KernelChange, Spread
from gputop.engine.calls.launch_counts import folded
from gputop.format import brief, escape_text, fit, format_ns

_TRIFLE, _MOST_KERNELS = 0.01, 10  # share of the kernels' time below which a row is left out; rows shown
_LEAST_NAME = 24  # columns for the first cell, however narrow the terminal
_WORDS = {
    "duration_ns": "duration",
    "idle_ns": "GPU idle",
    "calls": "CUDA calls",
    "launches": "kernel launches",
    "voluntary_switches": "switches, blocked",
    "involuntary_switches": "switches, preempted",
}


def diff_to_text(diff: Diff, width: int = 100) -> str:
    """Return the comparison as text for a terminal."""
    sentence = escape_text(diff.sentence[0].upper() + diff.sentence[1:])
    lines = [*textwrap.wrap(sentence, width, subsequent_indent="  "), ""]
    for word, side in (("before", diff.before), ("after", diff.after)):
        report = side.report
        steps = f"{report.steps.count} steps, " if report.steps is not None else ""
        lines.append(f"{word}: {steps}{idle_words(['the GPU'], report.idle, report.span_ns)}")
    lines.append("")
    head = f"A {diff.unit.upper()}"
    rows: list[tuple[str, ...]] = [(head, "BEFORE", "(p25–p75)", "AFTER", "(p25–p75)", "")]
    for one in diff.measures:
        exact = not one.name.endswith("_ns")
        figures = *_spread_text(one.before, exact), *_spread_text(one.after, exact)
        rows.append((_WORDS[one.name], *figures, "" if one.clear else "no clear change"))
    lines += _table(rows, width)
    if diff.causes:
        rows = [(f"CAUSE, A {diff.unit.upper()}", "BEFORE", "(p25–p75)", "AFTER", "(p25–p75)", "")]
        rows += [_cause_text(row) for row in diff.causes]
        lines += ["", *_table(rows, width)]
        for row in diff.causes:
            if row.line is not None:
                place = f"{row.cause} at {row.line.full_text()}"
                lines += textwrap.wrap(escape_text(place), width, subsequent_indent="  ")
    if shown := _kernels_shown(diff):
        rows = [(f"KERNEL, A {diff.unit.upper()}", "BEFORE", "(runs)", "AFTER", "(runs)", "")]
        lines += ["", *_table([*rows, *map(_kernel_text, shown)], width)]
    for note in diff.notes:
        lines += textwrap.wrap(escape_text(f"! {note}"), width, subsequent_indent="  ")
    return "\n".join(lines) + "\n"


def _spread_text(spread: Spread | None, exact: bool) -> tuple[str, str]:
    if spread is None:
        return "-", ""

    def text(value: float) -> str:
        return f"{value:.1f}".removesuffix(".0") if exact else format_ns(value) if value else "0"

    low, high = spread.quartiles
    # a mean of a few long steps: the host runs ahead, and waits now and then
    mostly = "" if low / 2 <= spread.usual <= max(2 * high, 1) else "mostly "
    return text(spread.usual), f"{mostly}{text(low)} to {text(high)}"


def _cause_text(row: CauseChange) -> tuple[str, ...]:
    cells: list[str] = []
    for loss, spread in ((row.before, row.spread_before), (row.after, row.spread_after)):
        loss_text = "-" if loss is None else f"{'' if row.proved else '<'}{format_ns(loss) if loss else '0'}"
        cells += [
            loss_text,
            _spread_text(spread, exact=False)[1] if spread is not None and loss is not None else "",
        ]
    return (f"{row.cause} {row.title}", *cells, str(row.change))


def _kernels_shown(diff: Diff) -> list[KernelChange]:
    """The kernels that differ by more than ``_TRIFLE`` of the kernels' time."""
    whole = max(
        sum(side.ns for row in diff.kernels if (side := getattr(row, which)) is not None)
        for which in ("before", "after")
    )
    rows = [row for row in diff.kernels if row.change != "same" and abs(row.moved_ns) > _TRIFLE * whole]
    return rows[:_MOST_KERNELS]


def _kernel_text(row: KernelChange) -> tuple[str, ...]:
    cells: list[str] = []
    for side in (row.before, row.after):
        cells += (
            ["-", ""]
            if side is None
            else [format_ns(side.ns), f"{side.runs:.1f} of {format_ns(side.run_ns)}"]
        )
    return (folded(row.name), *cells, row.change)


def _table(rows: Sequence[tuple[str, ...]], width: int) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    widths[0] = max(min(widths[0], width - sum(widths[1:]) - 2 * len(widths[1:])), _LEAST_NAME)
    lines = []
    for row in rows:
        cells = [fit(brief(row[0], widths[0]), widths[0])]
        # a figure is right-aligned, its range follows
        for column, cell in enumerate(row[1:], 1):
            right = column % 2 and column < len(row) - 1
            cells.append(cell.rjust(widths[column]) if right else cell.ljust(widths[column]))
        lines.append("  ".join(cells).rstrip())
    return lines

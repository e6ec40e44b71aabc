"""One step of the selected process as a waterfall: the host above the GPU.

By importance: the calls of the thread that makes the steps, the GPU, its idle time with causes, the thread's
states, the legend, further threads. With few colours, calls have letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gputop.analysis.answer.picture import (
    BLOCKED,
    CALL_WORDS,
    COLUMNS,
    FAMILIES,
    QUEUED,
    RUNNING,
    GpuTimes,
    HostTime,
    OneStep,
)
from gputop.analysis.answer.wording import step_joules
from gputop.format import SPARKS, clip, format_count, format_joules, format_ns
from gputop.playback.feed import Explained
from gputop.ui.model.answer.whylines import figure, unit_of
from gputop.ui.model.look import Glyphs, Line, Span, line_width, merged

if TYPE_CHECKING:
    from gputop.analysis.answer.report import Report

NO_STEP = "no repeating step found in this process"
LETTERS = ("S", "C", "H", "A", "O")  # of the calls, as CALL_WORDS; those of the causes' families
_ASLEEP = "▂"  # as in the timeline
_BARS_ASCII = " .+*#"  # signs without another meaning in a lane
_LABEL = 8
_SEEN = 0.05  # of a cell: idle time from which on its cause is named
_UNLIKE = 0.1  # of the median step: a larger difference of the mean is shown
_SHORT = {  # words of a narrow legend
    "own code": "code",
    "on CPU": "CPU",
    "waits for a CPU": "queued",
    "GPU busy": "busy",
    "presumably busy": "presumed",
}
_MOST = 0.5  # of a cell

Cells = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Row:
    """A line with its place from the top, and how soon it leaves a low pane (the highest first)."""

    place: tuple[int, int]
    rank: int
    line: Line


def call_token(kind: int) -> str:
    """Return the token of a kind of call: that of causes about such calls."""
    return f"cause.{LETTERS[kind]}" if LETTERS[kind] != "O" else "pending"


def step_of(explained: Explained, pid: int) -> OneStep | None:
    """Return the step of a process, None without steps."""
    return next((step for step in explained.steps if step.pid == pid), None)


def title(step: OneStep | None, report: Report | None) -> str:
    """Return ``step: median 9.8ms of 548``, with its own length and the mean if they differ."""
    if step is None:
        return "one step"
    steps = report.steps if report is not None else None
    mean_ns = steps.usual_ns if steps is not None and steps.pid == step.pid else step.median_ns
    median_ns = step.median_ns
    mean = f", mean {format_ns(mean_ns)}" if abs(mean_ns - median_ns) > _UNLIKE * median_ns else ""
    unlike = abs(step.length_ns - median_ns) > _UNLIKE * median_ns
    own = f" of {format_ns(step.length_ns)}" if unlike else ""
    known = report is not None and steps is not None and steps.pid == step.pid
    count = steps.count if known and steps is not None else step.count
    joules = step_joules(report) if known and report is not None else None
    energy = f", {format_joules(joules)}" if joules is not None else ""
    together = steps.together if known and steps is not None else 1
    unclear = f", {together} may be one" if together > 1 else ""
    return f"step{own}: median {format_ns(median_ns)} of {format_count(count)}{mean}{energy}{unclear}"


def waterfall_lines(
    step: OneStep | None, width: int, height: int, glyphs: Glyphs, *, letters: bool = False
) -> list[Line]:
    """Return the most important lines of a step that fit; ``letters``: with few colours."""
    if step is None:
        return [glyphs.line([(f" {NO_STEP}", "unknown")], width)][: max(height, 0)]
    count = max(width - _LABEL - 1, 8)
    rows = _rows(step, count, glyphs, letters=letters or glyphs.ascii)
    kept = sorted(rows, key=lambda row: row.rank)[: max(height, 0)]
    ordered = sorted(kept, key=lambda row: row.place)
    return [glyphs.line(row.line, width) for row in ordered]


def cells_of(columns: npt.NDArray[np.int64], count: int) -> Cells:
    """Return ns per column, ``[…, COLUMNS]``, in ``count`` other columns, with the same sums."""
    edges = np.arange(count + 1) * COLUMNS / count
    flat = columns.reshape(-1, COLUMNS)
    sums = np.concatenate([np.zeros((len(flat), 1)), np.cumsum(flat, axis=1)], axis=1)
    places = np.arange(COLUMNS + 1)
    at = [np.interp(edges, places, row) for row in sums]
    return np.diff(np.array(at), axis=1).reshape(*columns.shape[:-1], count)


def _rows(step: OneStep, count: int, glyphs: Glyphs, *, letters: bool) -> list[_Row]:
    whole = cells_of(np.diff(step.edges), count)
    rows: list[_Row] = []
    for place, host in enumerate(step.hosts):
        name = "host" if not place else str(host.tid)
        calls = _calls(host, whole, glyphs, letters=letters)
        rows.append(_Row((0, 2 * place), 6 if place else 0, _line(name, calls, glyphs)))
        if not place:
            states = _states(host, whole, glyphs, letters=letters)
            rows.append(_Row((0, 1), 4, _line(" CPU", states, glyphs)))
    for place, gpu in enumerate(step.gpus):
        lane = _line(gpu.label, _gpu(gpu, whole, glyphs), glyphs)
        rows.append(_Row((1, 2 * place), 7 if place else 1, lane))
        idle = _line(" idle", _idle(step, gpu, whole, glyphs), glyphs)
        rows.append(_Row((1, 2 * place + 1), 8 if place else 2, idle))
    return [*rows, _Row((2, 0), 5, _legend(rows, _LABEL + count, glyphs, letters=letters))]


def _line(name: str, spans: Sequence[Span], glyphs: Glyphs) -> Line:
    return merged([(glyphs.fit(name, _LABEL - 1) + " ", "head"), *spans])


# -- the host -----------------------------------------------------------------------------------------


def _calls(host: HostTime, whole: Cells, glyphs: Glyphs, *, letters: bool) -> list[Span]:
    """Return a thread's calls, in runs of a kind with its name and count; own code is a rule."""
    calls = cells_of(host.calls, len(whole))
    inside, kinds = calls.sum(axis=0), np.argmax(calls, axis=0)
    kind = np.where(inside > _SEEN * whole, kinds, -1).tolist()
    full = (inside >= _MOST * whole).tolist()
    runs = [(key, len(list(cells))) for key, cells in groupby(zip(kind, full, strict=True))]
    longest = {one: max(length for (other, _), length in runs if other == one) for one in set(kind)}
    spans: list[Span] = []
    named: set[int] = set()
    for (one, most), length in runs:
        if one < 0:
            spans.append((glyphs.rule * length, "rule"))
            continue
        token, sign = call_token(one), _call_sign(one, glyphs, full=most, letters=letters)
        text = f"{CALL_WORDS[one]} {'x' if glyphs.ascii else '×'}{format_count(host.counts[one])}"
        if one in named or length != longest[one] or length < len(text) + 2:
            spans.append((sign * length, token))
            continue
        named.add(one)
        spans += [(sign, token), (text, "value"), (sign * (length - len(text) - 1), token)]
    return spans


def _call_sign(kind: int, glyphs: Glyphs, *, full: bool, letters: bool) -> str:
    """Return a block, or half a block for less than half of a cell; as letters, capital or small."""
    if letters:
        return LETTERS[kind] if full else LETTERS[kind].lower()
    return glyphs.full if full else "▄"


def _states(host: HostTime, whole: Cells, glyphs: Glyphs, *, letters: bool) -> list[Span]:
    """Return a thread's states: on a CPU, waiting for one, blocked, or unknown."""
    states = cells_of(host.states, len(whole))
    parts = np.stack([states[RUNNING], states[QUEUED], states[BLOCKED:].sum(axis=0)])
    parts = np.concatenate([parts, [whole - states.sum(axis=0)]])
    dash, unknown = ("~", "?") if glyphs.ascii else ("━", "░")
    asleep = "_" if glyphs.ascii else _ASLEEP
    signs = ((dash, "busy"), ("P" if letters else dash, "cause.P"), (asleep, "dim"), (unknown, "unknown"))
    return [signs[one] for one in np.argmax(parts, axis=0).tolist()]


# -- the GPU ------------------------------------------------------------------------------------------


def _gpu(gpu: GpuTimes, whole: Cells, glyphs: Glyphs) -> list[Span]:
    """Return the GPU's busy time as bars; idle is blank, mostly unknown cells are hatched."""
    busy, presumed = cells_of(np.stack([gpu.busy, gpu.presumed]), len(whole))
    idle = cells_of(_idle_ns(gpu), len(whole))
    unknown = whole - busy - presumed - idle
    signs, hatched = (_BARS_ASCII, "?") if glyphs.ascii else (SPARKS, "░")
    most = len(signs) - 1
    shares = np.clip((busy + presumed) / np.maximum(whole, 1e-9), 0, 1)
    height = np.ceil(shares * most - 1e-6).astype(np.int64).tolist()
    spans: list[Span] = []
    cells = zip(height, (unknown > _MOST * whole).tolist(), (presumed > busy).tolist(), strict=True)
    for level, open_, presumably in cells:
        if open_:
            spans.append((hatched, "unknown"))
        else:
            full = glyphs.full if level == most else signs[level]
            spans.append((full, "unsure" if presumably else "busy"))
    return spans


def _idle_ns(gpu: GpuTimes) -> npt.NDArray[np.int64]:
    nothing = np.zeros(COLUMNS, np.int64)
    return np.asarray(sum((one.ns for one in gpu.idle), nothing))


def _idle(step: OneStep, gpu: GpuTimes, whole: Cells, glyphs: Glyphs) -> list[Span]:
    """Return runs of idle time by the cause of most of it, each with that cause's time."""
    causes = list(dict.fromkeys((one.cause, one.family) for one in gpu.idle))
    if not causes:
        return []
    nothing = np.zeros(COLUMNS, np.int64)
    every = [
        sum((one.ns for one in gpu.idle if (one.cause, one.family) == cause), nothing) for cause in causes
    ]
    sure = [
        sum((one.ns for one in gpu.idle if (one.cause, one.family) == cause and one.proved), nothing)
        for cause in causes
    ]
    ns, proved = cells_of(np.stack(every), len(whole)), cells_of(np.stack(sure), len(whole))
    most = np.where(ns.sum(axis=0) > _SEEN * whole, np.argmax(ns, axis=0), -1).tolist()
    spans: list[Span] = []
    at = 0
    for one, cells in groupby(most):
        length = len(list(cells))
        if one < 0:
            spans.append((" " * length, ""))
        else:
            number, family = causes[one]
            total, known = ns[one, at : at + length].sum(), proved[one, at : at + length].sum()
            about = "~" if known < _MOST * total else ""
            unit, name = unit_of(step.length_ns)
            texts = [f"{about}{figure(total / unit)} {name} {number or '?'}", number or "?"]
            spans.append((_bracket(texts, length, glyphs), f"cause.{FAMILIES[family].letter}"))
        at += length
    return spans


def _bracket(texts: Sequence[str], length: int, glyphs: Glyphs) -> str:
    """Return ``├── 3.7 ms C05 ──┤``, as far as it fits."""
    left, rule, right = ("|", "-", "|") if glyphs.ascii else ("├", "─", "┤")
    for text in texts:
        room = length - len(text) - 2
        if room >= 2:
            before = (room - 2) // 2
            return f"{left}{rule * before} {text} {rule * (room - 2 - before)}{right}"
    return clip(texts[-1], length, "") if length >= len(texts[-1]) else rule * length


def _legend(rows: Sequence[_Row], width: int, glyphs: Glyphs, *, letters: bool) -> Line:
    """Return the meaning of the signs in use, as many as fit."""
    shown = {(char, token) for row in rows for text, token in row.line[1:] for char in set(text)}
    dash, hatched = ("~", "?") if glyphs.ascii else ("━", "░")
    signs = [
        (_call_sign(kind, glyphs, full=True, letters=letters), call_token(kind), word)
        for kind, word in enumerate(CALL_WORDS)
        if {
            (_call_sign(kind, glyphs, full=full, letters=letters), call_token(kind)) for full in (True, False)
        }
        & shown
    ]
    more = (
        (glyphs.rule, "rule", "own code"), (dash, "busy", "on CPU"),
        ("P" if letters else dash, "cause.P", "waits for a CPU"),
        ("_" if glyphs.ascii else _ASLEEP, "dim", "blocked"), (hatched, "unknown", "unknown"),
    )  # fmt: skip
    signs += [(sign, token, word) for sign, token, word in more if (sign, token) in shown]
    bars = {token for char, token in shown if char not in (dash, " ")}
    guesses = (("busy", "GPU busy"), ("unsure", "presumably busy"))
    signs += [(glyphs.full, token, word) for token, word in guesses if token in bars]
    named = {text.split(" ")[0] for row in rows for text, token in row.line[1:] if token == "value"}
    short = [(sign, token, _SHORT.get(word, word)) for sign, token, word in signs]
    unnamed = [entry for entry in short if entry[2] not in named]  # not named on a bar
    for gap, entries in ((2, signs), (1, short), (1, unnamed)):
        spans: list[Span] = []
        for sign, token, word in entries:
            spans += [(" " * (gap if spans else 1), ""), (sign, token), (f" {word}", "dim")]
        if line_width(spans) <= width:
            break
    while line_width(spans) > width:
        del spans[-3:]
    return tuple(spans)

"""The lines of the WHY panel, one to five, from 60 columns on.

Five lines: heading, GPUs, two causes, fix. Four: one cause. Three: the GPUs are in the heading. A healthy
program has two.
"""

from __future__ import annotations

from collections.abc import Sequence

from gputop.analysis.answer.wording import percent_text
from gputop.format import NS_PER_S, brief, fit, format_joules, width_of
from gputop.ui.model.answer.why import Fix, GpuIdle, PanelCause, Why
from gputop.ui.model.look import Glyphs, Line, Span, line_width, merged, paragraph, spread, wrap

LEVEL_TOKENS = {"proved": "alert", "strong": "host", "hint": "warn"}
QUESTION = "WHY is the GPU idle?"
_LEAST_BAR, _MOST_BAR = 6, 100  # cells of a GPU's bar
WIDE = 0.3  # of the time: a range beyond this leaves open whether the GPU is idle at all
_CALM_WIDTH = 72  # columns of the one GPU of a program in which nothing is wrong
_CAUSE_BARS = (24, 16, 8, 0)  # cells of a cause's bar, where there is room
_FIX = " FIX 1 "
_MOST_PLACE = 28  # columns of a source line
_LEAST_TITLE = 24  # columns of a title before other columns go
_NOTHING = 0.01  # of a range's upper end: a smaller lower end is 0
_EIGHTHS = " ▏▎▍▌▋▊▉"
_SIGNS = (("█", "▒", "░"), ("#", "+", ":"))  # proved, estimated, unknown
_TOKENS = ("host", "warn", "unknown")
_WORDS = ("proved idle", "estimated", "unknown")


def why_lines(why: Why, width: int, height: int, glyphs: Glyphs, *, titled: bool = True) -> list[Line]:
    """Return at most ``height`` lines of ``width`` columns; without ``titled`` the heading is left out."""
    if not why.gpus:
        return _sentence(why.text, width, height, glyphs, titled=titled)
    room = height - titled
    long = not why.causes and not _fits_beside(why, width, glyphs)
    merge = titled and room < 3 and (bool(why.causes) or long)  # the GPUs move into the heading
    lines: list[Line] = []
    if titled and not merge:
        lines.append(_heading_line(why, width, glyphs))
    elif merge:
        lines.append(_short_heading(why, width, glyphs))
    body = _body(why, width, room, glyphs, with_gpus=not merge)
    lines += [glyphs.line(line, width) for line in body]
    return [aged(line) for line in lines[:height]] if why.old else lines[:height]


def heading(why: Why, glyphs: Glyphs) -> list[Span]:
    """Return the question, the explained time and its age, the class and its level, doubts."""
    spans: list[Span] = [(QUESTION, "title")]
    if why.when:
        spans += [("  ", ""), (why.when, "warn" if why.old else "dim")]
    if why.kind:
        level = f", {why.level}" if why.level else ""
        spans += [("  ", ""), (why.kind, "" if why.calm else "value"), (level, "dim")]
    spans += [(f"  {glyphs.warning} {doubt}", "warn") for doubt in why.doubts]
    return spans


def _heading_line(why: Why, width: int, glyphs: Glyphs) -> Line:
    left = [(" ", ""), *heading(why, glyphs)]
    if line_width(left) > width:
        left = [(" WHY", "title"), *left[2:]]
    if not why.calm or why.more:
        every = f"all {why.more + len(why.causes)}" if why.causes else "page"
        return merged(spread(left, [(f" [w] {every} ", "key")], width))
    return glyphs.line(left, width)


def _short_heading(why: Why, width: int, glyphs: Glyphs) -> Line:
    """Return class, age and GPUs in one line; without room the age is left out."""
    for when in (why.when, ""):
        left: list[Span] = [(" WHY ", "title")]
        left += [(when, "warn" if why.old else "dim")] if when else []
        if why.kind:
            left += [("  " if when else "", ""), (why.kind, "" if why.calm else "value")]
        left += [(f" {glyphs.warning} {doubt}", "warn") for doubt in why.doubts]
        room = width - line_width(left) - 2
        gpus = _beside(why, room, glyphs)
        if line_width(gpus) <= room:
            break
    return glyphs.line([*left, ("  ", ""), *gpus], width)


def _beside(why: Why, room: int, glyphs: Glyphs) -> Line:
    """Return the GPUs with bars, their figures, or one figure for all."""
    if room >= _cell_least(why.gpus[:1]):
        return _gpu_rows(why, room, 1, glyphs, legend=False)[0]
    figures = _figures(why, room, glyphs)
    if line_width(figures) <= room:
        return figures
    return ((f"idle {all_idle_text(why.gpus, glyphs)}", "dim" if why.calm else "value"),)


def _body(why: Why, width: int, room: int, glyphs: Glyphs, *, with_gpus: bool) -> list[Line]:
    """Return the lines below the heading."""
    gpu_rows = len(_gpu_rows(why, width, room, glyphs, legend=True)) if with_gpus else 0
    free = max(room - gpu_rows - len(why.causes), 1)
    fix = _fix_lines(why.fix, width, free, glyphs) if why.fix is not None and room > 1 else []
    if not why.causes:
        lines = paragraph(why.text, "dim", width, glyphs)
        if not with_gpus:
            return lines[:room]
        if _fits_beside(why, width, glyphs) or (len(why.gpus) == 1 and room < 2):
            return [_calm_line(why, width, glyphs)][:room]
        return [*_gpu_rows(why, width, max(room - 1, 1), glyphs, legend=True), *lines][:room]
    gpus: list[Line] = []
    if with_gpus:
        rows = max(room - len(why.causes) - len(fix), 1)
        gpus = _gpu_rows(why, width, rows, glyphs, legend=True)
    shown = why.causes[: max(room - len(gpus) - len(fix), 0)]
    return [*gpus, *_cause_lines(shown, width, glyphs, calm=why.calm), *fix][: max(room, 0)]


def _fits_beside(why: Why, width: int, glyphs: Glyphs) -> bool:
    """True if the sentence fits beside the one GPU."""
    needed = width_of(glyphs.shown(why.text)) + 2
    return len(why.gpus) == 1 and needed + _cell_least(why.gpus) <= width


def _calm_line(why: Why, width: int, glyphs: Glyphs) -> Line:
    """Return the one GPU and the sentence."""
    text = f"  {glyphs.shown(why.text)}"
    room = max(width - width_of(text), min(_cell_least(why.gpus), width))
    row = _gpu_rows(why, min(room, _CALM_WIDTH), 1, glyphs, legend=False)[0]
    return (*row, (text, "dim"))


def _sentence(text: str, width: int, height: int, glyphs: Glyphs, *, titled: bool) -> list[Line]:
    """Return the panel without a GPU."""
    lead = " WHY  " if titled else " "
    lines = paragraph(text, "unknown", width, glyphs, indent=0, lead=lead, lead_token="title")
    return [glyphs.line(line, width) for line in lines[:height]]


def aged(line: Line) -> Line:
    """Return the line in muted colours, except for its age."""
    return merged([(text, token if token in ("title", "warn", "key") else "unsure") for text, token in line])


# -- GPUs ---------------------------------------------------------------------------------------------


def range_text(low: float, high: float, glyphs: Glyphs) -> str:
    """Return ``47–72 %``, or ``47 %`` for equal ends."""
    return f"{percent_text(low, high, glyphs.dash)} %"


def about_text(gpu: GpuIdle, glyphs: Glyphs) -> str:
    """``~32 % (1–33 %)``, the sentence's estimate and how far it may be off; the range where that is all."""
    share = range_text(gpu.proved, gpu.high, glyphs)
    about = "" if gpu.about is None else range_text(gpu.about, gpu.about, glyphs)
    ends = [] if _vague(gpu) else [range_text(one, one, glyphs) for one in (gpu.proved, gpu.high)]
    known = about in ("", *ends)
    return share if known else f"~{about} ({share})"


def _vague(gpu: GpuIdle) -> bool:
    """True if the range alone says little: ``0–81 %`` with an estimate of 81 %."""
    return gpu.high - gpu.proved > WIDE


def all_idle_text(gpus: Sequence[GpuIdle], glyphs: Glyphs) -> str:
    """Return one figure for all GPUs: their mean range, or their mean estimate if that range is vague."""
    shares, count = [gpu.about for gpu in gpus if gpu.about is not None], len(gpus)
    low, high = sum(gpu.proved for gpu in gpus) / count, sum(gpu.high for gpu in gpus) / count
    if high - low > WIDE and len(shares) == count:
        return f"~{range_text(sum(shares) / count, sum(shares) / count, glyphs)}"
    return range_text(low, high, glyphs)


def idle_bar(gpu: GpuIdle, width: int, glyphs: Glyphs, *, calm: bool = False) -> list[Span]:
    """Return a GPU's time as a bar: proved idle, estimated, unknown, busy (blank)."""
    tokens = ("dim", "dim", "unknown") if calm else _TOKENS
    left, right = ("[", "]") if glyphs.ascii else ("▐", "▌")
    signs = _SIGNS[glyphs.ascii]
    spans: list[Span] = [(left, "rule")]
    cells, done, edge = max(width - 2, 0), 0.0, 0
    for part, sign, token in zip(gpu.parts, signs, tokens, strict=True):
        done += part
        upto = min(round(done * cells), cells)
        spans.append((sign * (upto - edge), token))
        edge = max(upto, edge)
    return [*spans, (" " * (cells - edge), ""), (right, "rule")]


def _name(gpu: GpuIdle, count: int) -> str:
    """Return the GPU's name, shorter with many GPUs; not just the number, which could be a cause's."""
    if count <= 2:
        return gpu.label
    return gpu.label.replace("GPU ", "GPU", 1).replace("an unknown device of process ", "GPU of ", 1)


def _gpu_text(gpu: GpuIdle, count: int, glyphs: Glyphs) -> str:
    share = range_text(gpu.proved, gpu.high, glyphs)
    if count > 2 and gpu.about is not None and _vague(gpu):
        return f"~{range_text(gpu.about, gpu.about, glyphs)}"
    if count > 2:
        return f"?{share}" if gpu.unestimated else share
    return f"idle unknown ({share})" if gpu.unestimated else f"idle {about_text(gpu, glyphs)}"


def _cell_least(gpus: Sequence[GpuIdle]) -> int:
    """Return the least columns of a GPU: name, range, bar."""
    count = len(gpus)
    text_width = 25 if any(gpu.unestimated for gpu in gpus) and count <= 2 else 13 if count <= 2 else 9
    return max(width_of(_name(gpu, count)) for gpu in gpus) + text_width + _LEAST_BAR + 4


def _cell_barless(gpus: Sequence[GpuIdle], glyphs: Glyphs) -> int:
    """Return the columns of a GPU without its bar, with a gap."""
    count = len(gpus)
    return max(width_of(f" {_name(gpu, count)} {_gpu_text(gpu, count, glyphs)}") for gpu in gpus) + 1


def _gpu_rows(why: Why, width: int, rows: int, glyphs: Glyphs, *, legend: bool) -> list[Line]:
    """Return the GPUs side by side; without room for all bars figures only, and of these the most idle."""
    gpus, count = list(why.gpus), len(why.gpus)
    least = _cell_least(gpus)
    barred = count == 1 or count <= max(width // least, 1) * rows
    if not barred and rows == 1:
        return [_figures(why, width, glyphs)]
    least = least if barred else _cell_barless(gpus, glyphs)
    across = max(min(width // least, count), 1)
    rows = max(min(rows, -(-count // across)), 1)
    hidden = max(count - across * rows, 0)
    if hidden:
        counted = len(hidden_text(count, [gpu.label for gpu in gpus])) + 2
        across = max(min((width - counted) // least, count), 1)
        hidden = max(count - across * rows, 0)
        kept = sorted(range(count), key=lambda place: -gpus[place].high)[: across * rows]
        gpus = [gpus[place] for place in sorted(kept)]
    more = f" +{hidden_text(hidden, [gpu.label for gpu in why.gpus])}" if hidden else ""
    key = _legend(gpus, glyphs) if legend and barred and not more else []
    if line_width(key) + least * across > width - _LEAST_BAR:
        key = []
    room = (width - max(line_width(key), len(more))) // across if barred else least
    lines: list[Line] = []
    for at in range(0, len(gpus), across):
        part = gpus[at : at + across]
        tail = [(more, "more")] if more and at + across >= len(gpus) else key if not at else []
        spans = [
            span for gpu in part for span in _gpu_cell(gpu, room, count, glyphs, calm=why.calm, barred=barred)
        ]
        lines.append(merged([*spans, *tail]))
    return lines


def _figures(why: Why, width: int, glyphs: Glyphs) -> Line:
    """Return the figures of the most idle GPUs in one line, as many as fit."""
    gpus, count = why.gpus, len(why.gpus)
    cells = [
        [
            (f" {glyphs.shown(_name(gpu, count))} ", "head"),
            (f"{_gpu_text(gpu, count, glyphs)} ", _token(gpu, calm=why.calm)),
        ]
        for gpu in gpus
    ]
    kept = sorted(range(count), key=lambda place: -gpus[place].high)
    more = ""
    while True:
        spans = [span for place in sorted(kept) for span in cells[place]]
        if line_width(spans) + len(more) <= width or len(kept) == 1:
            return merged([*spans, (more, "more")])
        del kept[-1]
        more = f" +{hidden_text(count - len(kept), [gpu.label for gpu in gpus])}"


def hidden_text(hidden: int, labels: Sequence[str]) -> str:
    """Return ``2 GPUs``; ``2 devices`` where some are known by their process only, and may be one GPU."""
    noun = "GPU" if all(label.startswith("GPU ") for label in labels) else "device"
    return f"{hidden} {noun}{'s' if hidden > 1 else ''}"


def _token(gpu: GpuIdle, *, calm: bool) -> str:
    return "unknown" if gpu.unestimated else "dim" if calm else "value"


def _gpu_cell(
    gpu: GpuIdle, width: int, count: int, glyphs: Glyphs, *, calm: bool, barred: bool
) -> list[Span]:
    name = f" {glyphs.shown(_name(gpu, count))} "
    share = f"{_gpu_text(gpu, count, glyphs)} "
    if count > 2 and barred:  # bars of many stand under each other
        share = fit(share, max(10, width_of(share)), right=False)
    bar = min(width - width_of(name) - width_of(share), _MOST_BAR + 2) if barred else 0
    token = _token(gpu, calm=calm)
    cells = [(name, "head"), (share, token), *(idle_bar(gpu, bar, glyphs, calm=calm) if bar > 2 else [])]
    return list(glyphs.line(cells, width))


def _legend(gpus: Sequence[GpuIdle], glyphs: Glyphs) -> list[Span]:
    """Return the meaning of the signs in use."""
    used = [any(gpu.parts[place] > 0 for gpu in gpus) for place in range(len(_SIGNS[0]))]
    spans: list[Span] = []
    for there, sign, token, word in zip(used, _SIGNS[glyphs.ascii], _TOKENS, _WORDS, strict=True):
        if there:
            spans += [(f"  {sign}", token), (f" {word}", "dim")]
    return [*spans, (" ", "")] if spans else spans


# -- causes -------------------------------------------------------------------------------------------


def _cause_lines(causes: Sequence[PanelCause], width: int, glyphs: Glyphs, *, calm: bool) -> list[Line]:
    """Return a line for each cause, in the same columns; the least important ones are left out first."""
    if not causes:
        return []
    shares = [range_text(cause.low, cause.high, glyphs) for cause in causes]
    wide = max(width_of(share) for share in shares)
    codes = [cause.number for cause in causes]
    levels = [cause.level for cause in causes]
    steps = [step_text(cause, glyphs) for cause in causes]
    places = [glyphs.clip_place(glyphs.shown(cause.line), _MOST_PLACE) for cause in causes]
    fixed = 3 + wide + 1 + max(map(len, codes)) + 2
    whole = max(width_of(brief(cause.title, 0)) for cause in causes)
    least = min(whole, max(_LEAST_TITLE, 2 * width // 5))
    level_w, step_w, place_w = (max(map(width_of, column)) for column in (levels, steps, places))
    bar, with_level, with_step, with_place = 0, True, True, True
    for bar, with_level, with_step, with_place in _choices():
        used = fixed + (bar + 2 if bar else 1) + (level_w + 1 if with_level else 0)
        used += (step_w + 2 if with_step and step_w else 0) + (place_w + 2 if with_place and place_w else 0)
        if used + (whole if with_level and not bar else least) <= width:  # a title is more than its level
            break
    room = max(width - used, 8)
    titles = [brief(glyphs.shown(cause.title), room) for cause in causes]
    room = min(room, max(width_of(text) for text in titles))
    lines: list[Line] = []
    for place, cause in enumerate(causes):
        spans: list[Span] = [
            (f" {place + 1} ", "head"),
            (fit(shares[place], wide, right=True) + " ", "value"),
        ]
        spans += [*_cause_bar(cause, bar, glyphs), (" ", "")] if bar else []
        spans.append((" " + glyphs.fit(titles[place], room), "" if calm else "value"))
        token = "dim" if calm else LEVEL_TOKENS.get(cause.level, "warn")
        spans.append((f" {codes[place]}", token))
        spans += [(" " + fit(levels[place], level_w), token)] if with_level else []
        spans += [("  " + fit(steps[place], step_w), "")] if with_step and step_w else []
        spans += [("  " + places[place], "value")] if with_place and places[place] else []
        lines.append(merged(spans))
    return lines


def _choices() -> list[tuple[int, bool, bool, bool]]:
    """Return (bar, level, step, source line), the fullest first."""
    wide = [(bar, True, True, True) for bar in _CAUSE_BARS]
    return [*wide, (0, False, True, True), (0, False, False, True), (0, False, False, False)]


def _cause_bar(cause: PanelCause, width: int, glyphs: Glyphs) -> list[Span]:
    """Return a bar of the cause's share: certain, and presumed."""
    solid, hatched, _ = _SIGNS[glyphs.ascii]
    low, high = (min(max(share, 0.0), 1.0) * width for share in (cause.low, cause.high))
    full, upto = round(low), round(high)
    if upto > full or glyphs.ascii:
        return [(solid * full, "host"), (hatched * (upto - full), "warn"), (" " * (width - upto), "")]
    eighths = round(low * 8)
    whole, rest = divmod(eighths, 8)
    text = solid * whole + (_EIGHTHS[rest] if rest else "")
    return [(fit(text, width), "host")]


def step_text(cause: PanelCause, glyphs: Glyphs) -> str:
    """Return the cost per step: ``3.7 of 9.8 ms/step``."""
    if cause.per_step_ns is None:
        return ""
    low, high = cause.per_step_ns
    most = max(cause.step_ns or 0, high)
    unit, name = unit_of(most)
    high_text, least = figure(high / unit), figure(low / unit) if low > _NOTHING * high else "0"
    if least != high_text:
        high_text = f"{least}{glyphs.dash}{high_text}"
    whole = f" of {figure(cause.step_ns / unit)}" if cause.step_ns is not None else ""
    return f"{high_text}{whole} {name}/step" + (" lost" if cause.overhead else "")


def unit_of(ns: float) -> tuple[int, str]:
    """Return the unit for a time, in ns and by name."""
    return next(
        ((unit, name) for unit, name in ((NS_PER_S, "s"), (1_000_000, "ms")) if ns >= unit), (1_000, "us")
    )


def figure(value: float) -> str:
    """Return a figure with at least two digits, or ``0``."""
    if value < 0.005:
        return "0"
    return f"{value:.2f}" if value < 0.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def _fix_lines(fix: Fix, width: int, rows: int, glyphs: Glyphs) -> list[Line]:
    """Return the change and its largest saving; with more lines in full, with its reason."""
    unit, name = unit_of(fix.saves_ns)
    most = f"{figure(fix.saves_ns / unit)} {name}{'/step' if fix.per_step else ''}"
    older = f" (from {fix.older_ns / NS_PER_S:.0f} s ago)" if fix.older_ns else ""
    joules = f", {format_joules(fix.saves_joules)}" if fix.saves_joules else ""
    saves = f" saves up to {most}{joules}{older} " if fix.saves_ns else ""
    token = "unsure" if older else "value"
    text, reason = (glyphs.shown(one) for one in (fix.text, fix.reason))
    if rows == 1 and older and width_of(text) > width - len(_FIX) - len(saves) - 1:
        saves = saves.replace(older, "")  # it is still drawn as old
    if rows == 1 and joules and width_of(text) > width - len(_FIX) - len(saves) - 1:
        saves = saves.replace(joules, "")
    room = max(width - len(_FIX) - len(saves) - 1, 8)
    first, *rest = wrap(text, room) if rows > 1 else [_clause(text, room, glyphs)]
    right: list[Span] = [(saves, "unsure" if older else "busy")] if saves else []
    lines = [merged(spread([(_FIX, "head"), (first, token)], right, width))]
    below = width - len(_FIX) - 1
    if rest:
        lines.append(_below(_clause(" ".join(rest), below, glyphs), token))
    if reason and len(lines) < rows:
        lines.append(_below(glyphs.clip(brief(reason, below), below), "dim"))
    return lines


def _below(text: str, token: str) -> Line:
    """Return a further line of the fix."""
    return ((" " * len(_FIX), ""), (text, token))


def _clause(text: str, room: int, glyphs: Glyphs) -> str:
    """Return an advice in ``room`` columns: brackets are cut first, then whole clauses from the end."""
    clause = brief(text, room)
    if width_of(clause) <= room:
        return clause
    ends = (clause.rfind(mark, 0, room - 1) for mark in (", ", "; ", " or "))
    end = max(ends)
    return f"{clause[:end]} {glyphs.ellipsis}" if end >= room // 2 else glyphs.clip(clause, room)

"""Where each pane stands: a pure function of the size, tested never to overlap or leave the screen."""

from __future__ import annotations

from dataclasses import dataclass

MIN_WIDTH, MIN_HEIGHT = 40, 10
BESIDE_WIDTH = 160  # calls and threads side by side
STACK_ROWS = 26  # processes, calls and threads under each other
TABS_ROWS = 11  # processes, and one of the details
DETAILS = ("calls", "threads", "lines")  # of the selected process; where there is room for two, lines stand
# in the place of calls
LEAST_ROWS = 5  # of a table with its title
WIDE_WIDTH, WIDE_HEIGHT = 180, 44  # findings and their chain are open, the tables stand side by side
FINDING_LINES = 7  # title and six findings, more where there are many GPUs; always as many: nothing jumps
CHAIN_LINES = 12
TIMELINE_LEAST = 4  # title, a GPU, a thread, the axis
CHART_ROWS, CHART_LINES = 15, 7  # calls with so many rows leave some to the chart of the selected one


@dataclass(frozen=True, slots=True)
class Placed:
    """A pane in its rectangle."""

    pane: str
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Needs:
    """What decides over the layout beside the size.

    Attributes:
        gpu_lines: Lines the GPU pane wants.
        storms: Storms to be listed.
        processes: Rows of the process table.
        threads: Rows of the thread table.
        banner: Lines below the verdict that tell what could not be observed.
        transport: Whether there is a transport line.
        log: Whether the output of the command is shown.
        focus: The pane the keys go to.
        detail: Which of DETAILS was looked at last.
        zoomed: Whether the focused pane has the screen.
        overlay: Whether a page (help, problems) covers the body.
        timeline: Lines the timeline wants, 0 where it is not shown.
        explained: Whether there can be findings, so that a big screen has panes for them.
    """

    gpu_lines: int = 1
    storms: int = 0
    processes: int = 0
    banner: int = 0
    transport: bool = False
    log: bool = False
    focus: str = "processes"
    detail: str = "calls"
    zoomed: bool = False
    overlay: bool = False
    timeline: int = 0
    explained: bool = False
    threads: int = 1_000


def tabs_of(pane: str, *, together: bool) -> tuple[str, ...]:
    """The details that share a place with this one, itself among them; none of other panes.

    Args:
        pane: The pane.
        together: Whether there is one place for all details.
    """
    if together and pane in DETAILS:
        return DETAILS
    return ("calls", "lines") if pane in ("calls", "lines") else ()


def too_small(width: int, height: int) -> bool:
    """Whether a screen of this size cannot show anything useful."""
    return width < MIN_WIDTH or height < MIN_HEIGHT


def gpu_room(height: int) -> int:
    """The most lines the GPU pane may have."""
    return max(1, height // 5 if height < 30 else height // 4)


def banner_room(height: int) -> int:
    """The most lines the banner may have."""
    return 1 if height < 20 else 3


def plan(width: int, height: int, needs: Needs) -> tuple[Placed, ...]:
    """The panes of a screen, from the top.

    Args:
        width: Columns of the terminal, at least 40.
        height: Lines of the terminal, at least 10.
        needs: What is to be shown.
    """
    out = [Placed("header", 0, 0, width, 1), Placed("verdict", 0, 1, width, 1)]
    top, bottom = 2, height - 1
    if needs.banner:
        out.append(Placed("banner", 0, top, width, min(needs.banner, banner_room(height))))
        top += out[-1].height
    tail = [Placed("footer", 0, bottom, width, 1)]
    if needs.transport:
        bottom -= 1
        tail.insert(0, Placed("transport", 0, bottom, width, 1))
    if needs.overlay or needs.zoomed:
        pane = "overlay" if needs.overlay else needs.focus
        return (*out, Placed(pane, 0, top, width, bottom - top), *tail)
    wide = needs.explained and width >= WIDE_WIDTH and height >= WIDE_HEIGHT
    if wide:
        left = width * 2 // 5
        lines = max(FINDING_LINES, _gpu_height(height, needs))
        out.append(Placed("findings", 0, top, left, lines))
        out.append(Placed("gpus", left + 1, top, width - left - 1, lines))
    else:
        out.append(Placed("gpus", 0, top, width, _gpu_height(height, needs)))
    top += out[-1].height
    storms = min(needs.storms, 1 if height < 16 else 2 if height < 30 else 4)
    if height >= 20:
        storms = max(storms, 1)  # the line stays when a storm ends: nothing below it jumps
    if storms:
        out.append(Placed("storms", 0, top, width, storms))
        top += storms
    if needs.log and bottom - top >= 8:
        lines = max(4, (bottom - top) // 4)
        bottom -= lines
        tail.insert(0, Placed("log", 0, bottom, width, lines))
    if wide and bottom - top >= CHAIN_LINES + TABS_ROWS:
        bottom -= CHAIN_LINES
        tail.insert(0, Placed("chain", 0, bottom, width, CHAIN_LINES))
    lines = _timeline_height(bottom - top, needs, wide=wide)
    if lines:
        bottom -= lines
        tail.insert(0, Placed("timeline", 0, bottom, width, lines))
    body = _columns if wide else _body
    return (*out, *body(width, top, bottom, needs), *tail)


def _gpu_height(height: int, needs: Needs) -> int:
    lines = min(needs.gpu_lines, gpu_room(height))
    return lines + 1 if height >= 30 else lines  # a title where there is room for it


def _timeline_height(rows: int, needs: Needs, *, wide: bool) -> int:
    """Lines of the timeline: a part of the body, nothing where the tables would be too low beside it."""
    if not needs.timeline:
        return 0
    share = 1 / 2 if wide else 3 / 10
    lines = min(needs.timeline, max(int(rows * share), TIMELINE_LEAST))
    if needs.focus == "timeline" and rows - lines < LEAST_ROWS:
        return rows
    return lines if rows - lines >= LEAST_ROWS else 0


def _columns(width: int, top: int, bottom: int, needs: Needs) -> list[Placed]:
    """Three columns: processes, calls over the chart of the selected one, threads."""
    rows = bottom - top
    left = width * 11 // 27
    middle = (width - left - 2) // 2
    right = width - left - middle - 2
    chart = CHART_LINES if rows >= CHART_ROWS and needs.detail != "lines" else 0
    out = [
        Placed("processes", 0, top, left, rows),
        Placed("lines" if needs.detail == "lines" else "calls", left + 1, top, middle, rows - chart),
        Placed("threads", left + middle + 2, top, right, rows),
    ]
    if chart:
        out.insert(2, Placed("chart", left + 1, bottom - chart, middle, chart))
    return out


def _body(width: int, top: int, bottom: int, needs: Needs) -> list[Placed]:
    first = "lines" if needs.detail == "lines" else "calls"
    rows = bottom - top
    if not rows:
        return []
    if rows < TABS_ROWS:
        pane = "processes" if needs.focus in ("gpus", "timeline", "findings") else needs.focus
        return [Placed(pane, 0, top, width, rows)]
    stack = STACK_ROWS - TIMELINE_LEAST if needs.timeline else STACK_ROWS
    # The process table takes what it needs and no more than half; the details have the rest.
    share = 0.36 if rows >= stack and width < BESIDE_WIDTH else 0.5
    table = max(5, min(needs.processes + 2, int(rows * share)))
    out = [Placed("processes", 0, top, width, table)]
    top += table
    rows -= table
    if width >= BESIDE_WIDTH:
        left = (width - 1) * 11 // 20
        return [
            *out,
            Placed(first, 0, top, left, rows),
            Placed("threads", left + 1, top, width - left - 1, rows),
        ]
    if rows + table >= stack:
        # few threads leave room for calls
        calls = rows - min(max(needs.threads + 2, LEAST_ROWS), rows // 2)
        return [
            *out,
            Placed(first, 0, top, width, calls),
            Placed("threads", 0, top + calls, width, rows - calls),
        ]
    return [*out, Placed(needs.detail, 0, top, width, rows)]

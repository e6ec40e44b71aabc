"""The screen without a terminal: takes frames and actions, gives lines. Owns every bit of view state."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.format import clip, escape_text
from gputop.frame import Frame, ProcessRow
from gputop.ui.feed import RecordingState
from gputop.ui.model import details, gpus, header, pages, processes
from gputop.ui.model.layout import MIN_HEIGHT, MIN_WIDTH, Needs, Placed, gpu_room, plan, too_small
from gputop.ui.model.look import ASCII, UNICODE, Line, fit_line, merged, wrap
from gputop.ui.model.panes import Panes
from gputop.ui.model.table import Table

LOG_LINES = 2_000
FOCI = ("processes", "calls", "threads", "gpus")


class Presenter:
    """State of the view, and the lines of the screen made from it and a frame.

    Attributes:
        frame: The frame shown.
        focus: The pane the keys go to.
        overlay: The page over the body: ``help``, ``problems`` or "".
        zoomed: Whether the focused pane has the body.
    """

    def __init__(self, mode: str, *, ascii_only: bool, selected_pid: int | None = None, title: str = "") -> None:
        """Start without a frame.

        Args:
            mode: ``live`` or ``replay``.
            ascii_only: Whether to draw with ASCII only.
            selected_pid: The process selected as soon as it appears.
            title: What is watched, for the header.
        """
        self.glyphs = ASCII if ascii_only else UNICODE
        self.mode = mode
        self.title = title
        self.frame: Frame | None = None
        self.focus = "processes"
        self.overlay = ""
        self.zoomed = False
        self.log_shown = False
        self.paused = False
        self.behind_ns = 0
        self.failure: str | None = None
        self.recording: RecordingState | None = None
        self.transport: header.TransportView | None = None
        self.native_lines = 0
        self.log: list[str] = []
        self.size = (80, 24)
        self.panes = Panes(self.glyphs)
        self._wanted_pid = selected_pid
        self._detail = "calls"
        self._detail_pid: int | None = None
        self._scroll = 0
        self._page = 1
        self._overlay_length = 0
        self._placed: tuple[Placed, ...] = ()

    @property
    def selected(self) -> ProcessRow | None:
        """The process whose calls and threads are shown."""
        return self.panes.processes.selected_row

    def show(self, frame: Frame) -> None:
        """Take a frame.

        Args:
            frame: What is shown from now on.
        """
        self.frame = frame
        table = self.panes.processes
        if self._wanted_pid is not None and any(row.pid == self._wanted_pid for row in frame.processes):
            table.selected, self._wanted_pid = self._wanted_pid, None
        table.update(frame.processes, frame.time_ns)
        self._show_details()

    def _show_details(self) -> None:
        row, frame = self.selected, self.frame
        if frame is None:
            return
        pid = row.pid if row else None
        if pid != self._detail_pid:
            self._detail_pid = pid
            self.panes.calls.reset()
            self.panes.threads.reset()
        self.panes.calls.update(row.calls if row else (), frame.time_ns)
        self.panes.threads.update(row.threads if row else (), frame.time_ns)

    def add_log(self, lines: Sequence[str]) -> None:
        """Take lines of output of the started command; the newest are kept."""
        self.log = (self.log + list(lines))[-LOG_LINES:]

    # -- actions ---------------------------------------------------------------------------------

    @property
    def _table(self) -> Table[ProcessRow] | Table[details.CallRow] | Table[details.ThreadRow] | None:
        return self.panes.table(self.focus)

    def act(self, name: str) -> None:
        """Do an action of the table of actions that concerns the view alone.

        Args:
            name: The action's name.
        """
        method = getattr(self, f"do_{name}", None)
        if method is not None:
            method()
            self._after()

    def _after(self) -> None:
        if self.frame is not None:
            table = self._table
            if table is not None and self.focus == "processes":
                table_rows = self.frame.processes
                self.panes.processes.update(table_rows, self.frame.time_ns)
            self._show_details()

    def _move(self, by: int) -> None:
        if self.overlay or self._table is None:
            self._scroll = max(0, min(self._scroll + by, self._overlay_length - self._page))
        else:
            self._table.move(by)

    def do_up(self) -> None:
        """The row above."""
        self._move(-1)

    def do_down(self) -> None:
        """The row below."""
        self._move(1)

    def do_page_up(self) -> None:
        """A page up."""
        self._move(-self._page_of())

    def do_page_down(self) -> None:
        """A page down."""
        self._move(self._page_of())

    def _page_of(self) -> int:
        height = next((placed.height for placed in self._placed if placed.pane in (self.focus, "overlay")), 3)
        return max(height - 3, 1)

    def do_home(self) -> None:
        """The first row."""
        self._move(-1_000_000)

    def do_end(self) -> None:
        """The last row."""
        self._move(1_000_000)

    def do_next_pane(self) -> None:
        """The keys go to the next pane."""
        self._focus_by(1)

    def do_previous_pane(self) -> None:
        """The keys go to the pane before."""
        self._focus_by(-1)

    def _focus_by(self, by: int) -> None:
        self.set_focus(FOCI[(FOCI.index(self.focus) + by) % len(FOCI)])

    def set_focus(self, pane: str) -> None:
        """The keys go to this pane from now on."""
        self.focus = pane
        self._scroll = 0
        if pane in ("calls", "threads"):
            self._detail = pane

    def do_open(self) -> None:
        """From the processes to the calls; in another pane zoom."""
        if self.overlay:
            self.overlay = ""
        elif self.focus == "processes":
            self.set_focus("calls")
        else:
            self.zoomed = not self.zoomed

    def do_back(self) -> None:
        """Out: the page, then the zoom, then to the processes."""
        if self.overlay:
            self.overlay = ""
        elif self.zoomed:
            self.zoomed = False
        else:
            self.set_focus("processes")

    def do_zoom(self) -> None:
        """The focused pane takes the body or gives it back."""
        self.zoomed = not self.zoomed
        self._scroll = 0

    def do_sort_left(self) -> None:
        """Sort by the column to the left."""
        if self._table:
            self._table.shift_sort(-1)

    def do_sort_right(self) -> None:
        """Sort by the column to the right."""
        if self._table:
            self._table.shift_sort(1)

    def do_reverse(self) -> None:
        """Turn the order around."""
        if self._table:
            self._table.reverse()

    def do_freeze(self) -> None:
        """Keep the order of all tables, or let it go."""
        frozen = not self.panes.processes.frozen
        for table in (self.panes.processes, self.panes.calls, self.panes.threads):
            table.frozen = frozen

    def do_log(self) -> None:
        """Show or hide the output of the command."""
        self.log_shown = not self.log_shown

    def do_help(self) -> None:
        """Show or hide the help."""
        self._toggle("help")

    def do_problems(self) -> None:
        """Show or hide what could not be observed."""
        self._toggle("problems")

    def _toggle(self, page: str) -> None:
        self.overlay = "" if self.overlay == page else page
        self._scroll = 0

    def click(self, x: int, y: int) -> None:
        """A click on the screen.

        Args:
            x: Column.
            y: Line.
        """
        placed = self._at(x, y)
        if placed is None:
            return
        if placed.pane in FOCI:
            self.set_focus(placed.pane)
            table = self.panes.table(placed.pane)
            if table is not None and y > placed.y:
                table.click(x - placed.x, y - placed.y - 1)
        elif placed.pane == "banner":
            self.do_problems()
        self._after()

    def wheel(self, x: int, y: int, by: int) -> None:
        """The wheel turned over a pane.

        Args:
            x: Column.
            y: Line.
            by: Lines down, negative for up.
        """
        placed = self._at(x, y)
        table = self.panes.table(placed.pane) if placed else None
        if table is not None:
            table.scroll(by)
        elif placed and placed.pane in ("overlay", "gpus"):
            self._move(by)

    def _at(self, x: int, y: int) -> Placed | None:
        hits = (p for p in self._placed if p.x <= x < p.x + p.width and p.y <= y < p.y + p.height)
        return next(hits, None)

    # -- lines -----------------------------------------------------------------------------------

    def paint(self, width: int, height: int) -> list[Line]:
        """All lines of the screen.

        Args:
            width: Columns of the terminal.
            height: Lines of the terminal.
        """
        self.size = (width, height)
        if too_small(width, height):
            return self._too_small(width, height)
        self._placed = plan(width, height, self._needs(width, height))
        rows: list[list[tuple[int, Line]]] = [[] for _ in range(height)]
        for placed in self._placed:
            for offset, line in enumerate(self._pane(placed)[: placed.height]):
                rows[placed.y + offset].append((placed.x, line))
        return [self._joined(row, width) for row in rows]

    @staticmethod
    def _joined(row: list[tuple[int, Line]], width: int) -> Line:
        if len(row) == 1:
            return fit_line(row[0][1], width)
        spans: list[tuple[str, str]] = []
        at = 0
        for x, line in row:
            if x > at:
                spans.append((" " * (x - at), ""))
            spans += line
            at = x + sum(1 for _ in ()) + _width(line)
        return merged(fit_line(spans, width))

    @staticmethod
    def _too_small(width: int, height: int) -> list[Line]:
        sentence = f"terminal too small ({width}x{height}): gputop needs {MIN_WIDTH}x{MIN_HEIGHT}"
        lines = [fit_line([(text, "warn")], width) for text in wrap(sentence, max(width, 1))]
        blank = fit_line((), width)
        return (lines + [blank] * height)[:height]

    def _needs(self, width: int, height: int) -> Needs:
        frame = self.frame
        return Needs(
            gpu_lines=gpus.lines_needed(frame, width, gpu_room(height)) if frame else 1,
            storms=len(frame.storms) if frame else 0,
            processes=len(frame.processes) if frame else 0,
            banner=bool(self.failure or (frame and frame.problems)),
            transport=self.transport is not None,
            log=self.log_shown,
            focus=self.focus,
            detail=self._detail,
            zoomed=self.zoomed,
            overlay=bool(self.overlay),
        )

    def status(self) -> header.Status:
        """What the header says beside the frame."""
        return header.Status(
            mode=self.mode,
            paused=self.paused,
            behind_ns=self.behind_ns,
            title=self.title,
            failure=self.failure,
            recording=self.recording,
            native_lines=self.native_lines,
            frozen=self.panes.processes.frozen,
        )

    def _pane(self, placed: Placed) -> list[Line]:
        width, glyphs = placed.width, self.glyphs
        if placed.pane == "header":
            return [header.header_line(self.frame, self.status(), width, glyphs)]
        if placed.pane == "banner":
            return [header.banner_line(self.frame, self.status(), width, glyphs)]
        if placed.pane == "footer":
            return [header.footer_line(self.mode, width, has_log=bool(self.log) or self.log_shown)]
        if placed.pane == "transport" and self.transport is not None:
            return [header.transport_line(self.transport, width, glyphs)]
        if placed.pane == "overlay":
            return self._overlay(placed)
        if placed.pane == "log":
            return self.panes.log_pane(self.log, placed)
        if self.frame is None:
            return self._waiting(placed)
        if placed.pane == "storms":
            return header.storm_lines(self.frame.storms, width, placed.height, glyphs)
        if placed.pane == "gpus":
            return self._gpu_pane(placed, self.frame)
        return self.panes.table_pane(placed, self.frame, focused=self.focus == placed.pane)

    def _waiting(self, placed: Placed) -> list[Line]:
        if placed.pane != "processes":
            return []
        return [fit_line([(f" {text}", "dim")], placed.width) for text in wrap("Waiting for the first frame ...", placed.width - 2)]

    def _gpu_pane(self, placed: Placed, frame: Frame) -> list[Line]:
        focused = self.focus == "gpus"
        if not self.zoomed:
            return self.panes.gpu_pane(placed, frame, self.size[1], focused=focused)
        lines = gpus.detail_lines(frame, placed.width, self.glyphs)
        return self._scrolled("GPUs", lines, placed)

    def _overlay(self, placed: Placed) -> list[Line]:
        if self.overlay == "help":
            lines = pages.help_page(self.mode, placed.width, self.glyphs)
            return self._scrolled("Help", lines, placed)
        lines = pages.problems_page(self.frame, self.failure, placed.width, self.glyphs)
        return self._scrolled("Problems and notes", lines, placed)

    def _scrolled(self, title: str, lines: list[Line], placed: Placed) -> list[Line]:
        self._page = placed.height - 1
        self._overlay_length = len(lines)
        self._scroll = max(0, min(self._scroll, len(lines) - self._page))
        below = len(lines) - self._scroll - self._page
        right = f"+{below} row{'s' if below > 1 else ''} [Esc] back" if below > 0 else "[Esc] back"
        shown = [fit_line(line, placed.width) for line in lines[self._scroll : self._scroll + self._page]]
        return [self.panes.title(title, right, placed.width, focused=True), *shown]


def _width(line: Line) -> int:
    return sum(len(text) for text, _ in line)


def plain_command(command: str, width: int) -> str:
    """A command for a title."""
    return clip(escape_text(command), width)

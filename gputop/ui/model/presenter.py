"""The screen without a terminal: takes frames and actions (see controls), gives lines."""

from __future__ import annotations

from dataclasses import replace

from gputop.engine.frame import Frame
from gputop.ui.model import details, gpus, header, pages, processes
from gputop.ui.model.copying import page_text, row_text
from gputop.ui.model.hiding import without
from gputop.ui.model.lanepanes import LanePanes
from gputop.ui.model.layout import (
    MIN_HEIGHT,
    MIN_WIDTH,
    Needs,
    Placed,
    banner_room,
    gpu_room,
    plan,
    too_small,
)
from gputop.ui.model.look import Line, ascii_line, fit_line, line_width, merged, wrap
from gputop.ui.model.subject import nothing_yet
from gputop.ui.model.timebar import moment_at, transport_line
from gputop.ui.model.verdict import storm_costs, verdict_line

_WHOLE_PAGE = 100_000  # lines: more than any page has


class Presenter(LanePanes):
    """The lines of the screen, made from the state of the view and a frame."""

    def paint(self, width: int, height: int) -> list[Line]:
        """All lines of the screen.

        Args:
            width: Columns of the terminal.
            height: Lines of the terminal.
        """
        self.size = (width, height)
        if too_small(width, height):
            return self._too_small(width, height)
        panes = without(plan(width, height, self._needs(width, height)), self._gone)
        self._placed = self._with_keys(panes)
        rows: list[list[tuple[int, Line]]] = [[] for _ in range(height)]
        for placed in self._placed:
            lines = self._pane(placed)[: placed.height]
            # what stands to the right of a pane stands there beside its empty lines, too
            lines += [fit_line((), placed.width)] * (placed.height - len(lines))
            for offset, line in enumerate(lines):
                rows[placed.y + offset].append((placed.x, line))
        lines = [self._joined(row, width) for row in rows]
        return [ascii_line(line) for line in lines] if self.glyphs.ascii else lines

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
            at = x + line_width(line)
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
            banner=len(self._banner(width, height)),
            transport=self.transport is not None,
            log=self.log_shown,
            focus=self._pane_of_keys,
            detail=self._detail_shown,
            zoomed=self.zoomed,
            overlay=bool(self.overlay),
            timeline=self.timeline.wanted() if self.timeline_shown else 0,
            threads=self.most_threads(),
            explained=frame is not None and frame.calls_observed,
        )

    def status(self) -> header.Status:
        """What the header says beside the frame."""
        return header.Status(
            mode=self.mode,
            paused=self.paused,
            behind_ns=self.behind_ns,
            playing=self.transport is not None and self.transport.playing,
            title=self.title,
            failure=self.failure,
            recording=self.recording,
            native_lines=self.native_lines,
            frozen=self.panes.processes.frozen,
            hidden=len(self.hidden),
        )

    def _pane(self, placed: Placed) -> list[Line]:
        width, glyphs = placed.width, self.glyphs
        if placed.pane == "header":
            return [header.header_line(self._told, self.status(), width, glyphs)]
        if placed.pane == "verdict":
            return [self._verdict(width)]
        if placed.pane == "banner":
            return self._banner(width, self.size[1])
        if placed.pane == "footer":
            if self.prompt is not None:
                return [self.prompt.line(width, glyphs)]
            if self.notice:
                return [fit_line([(f" {self.notice}", "chrome")], width, ellipsis=glyphs.ellipsis)]
            return [header.footer_line(self.mode, width, has_log=bool(self.log) or self.log_shown)]
        if placed.pane == "transport" and self.transport is not None:
            return [transport_line(self.transport, width, glyphs)]
        if placed.pane == "overlay":
            return self._overlay(placed)
        if placed.pane == "log":
            return self.panes.log_pane(self.log, placed)
        if self.frame is None:
            return self._waiting(placed)
        if placed.pane == "storms":
            return self._storms(placed, self.frame)
        if placed.pane == "gpus":
            return self._gpu_pane(placed, self.frame)
        lines = self.lane_pane(placed, self.frame)
        if lines is not None:
            return lines
        focused = self.focus == placed.pane
        return self.panes.table_pane(placed, self.frame, focused=focused, tabbed=self._tabbed, mode=self.mode)

    def _verdict(self, width: int) -> Line:
        frame = self.frame
        return verdict_line(
            self.explained,
            frame.time_ns if frame else self.explained.end_ns,
            width,
            self.glyphs,
            focused=self.focus == "verdict",
            traced=frame is None or frame.calls_observed,
            nothing=nothing_yet(frame),
        )

    def _storms(self, placed: Placed, frame: Frame) -> list[Line]:
        costs = storm_costs(self.explained)
        traced = frame.calls_observed
        return header.storm_lines(
            frame.storms, placed.width, placed.height, self.glyphs, traced=traced, costs=costs
        )

    @property
    def _told(self) -> Frame | None:
        """The frame, with what is wrong with the preferences among its problems."""
        frame = self.frame
        if frame is None or not self.complaints:
            return frame
        return replace(frame, problems=(*frame.problems, *self.complaints))

    def _banner(self, width: int, height: int) -> list[Line]:
        return header.banner_lines(self._told, self.status(), width, banner_room(height), self.glyphs)

    def _waiting(self, placed: Placed) -> list[Line]:
        if placed.pane != "processes":
            return []
        return [
            fit_line([(f" {text}", "dim")], placed.width)
            for text in wrap("Waiting for the first frame ...", placed.width - 2)
        ]

    def _gpu_pane(self, placed: Placed, frame: Frame) -> list[Line]:
        if self.zoomed:
            return self.panes.gpus.page_lines(placed, frame)
        return self.panes.gpus.list_lines(placed, frame, self.size[1], focused=self.focus == "gpus")

    def _overlay(self, placed: Placed) -> list[Line]:
        if self.overlay == "why":
            lines = self.chain.lines(placed.width, self.glyphs, replay=True)
            return self._scrolled("Why the GPU waits", lines, placed)
        if self.overlay == "source":
            head = self.source.head(self.frame, placed.width, self.glyphs)
            lines = self.source.lines(self.frame, placed.width, self.glyphs)
            below = replace(placed, height=placed.height - len(head))
            title, *shown = self._scrolled(self.source.title, lines, below)
            return [title, *(fit_line(line, placed.width) for line in head), *shown]
        if self.overlay == "signals" and self.menu is not None:
            return self._scrolled("Signal", self.menu.lines(placed.width, self.glyphs), placed)
        if self.overlay == "call":
            return self._scrolled("Call", self.call_lines(placed.width), placed)
        if self.overlay == "help":
            lines = pages.help_page(self.mode, placed.width, self.glyphs, readonly=self.sender is None)
            return self._scrolled("Help", lines, placed)
        lines = pages.problems_page(self._told, self.failure, placed.width, self.glyphs)
        return self._scrolled("Problems and notes", lines, placed)

    def key_at(self, x: int, y: int) -> str:
        """The name of the action whose key stands there in the footer, "" anywhere else."""
        width, height = self.size
        if y != height - 1 or self.prompt is not None or self.notice or too_small(width, height):
            return ""
        return header.footer_action(x, self.mode, width, has_log=bool(self.log) or self.log_shown)

    def bar_moment(self, x: int, y: int) -> int | None:
        """The time under this place of the bar of time; None anywhere else."""
        placed = self._at(x, y)
        if placed is None or placed.pane != "transport" or self.transport is None:
            return None
        return moment_at(self.transport, placed.width, self.glyphs, x - placed.x)

    def copied(self) -> str:
        """The text of the open page, else of the selected row of the focused table; "" without one."""
        if self.overlay:
            scrolled, whole = self._scroll, Placed("overlay", 0, 0, self.size[0], _WHOLE_PAGE)
            text = page_text(self._overlay(whole)[1:])
            self._scroll = scrolled
            return text
        table, frame = self._table, self.frame
        if table is None or frame is None or table.selected_row is None:
            return ""
        if table is self.panes.processes:
            context = self.panes.listing.context(processes.context_of(frame, self.glyphs))
        else:
            context = details.call_context(frame, self.selected, self.glyphs)
        return row_text(table.columns, table.selected_row, context)

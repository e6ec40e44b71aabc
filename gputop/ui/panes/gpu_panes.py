"""The panes of the GPUs and of one step of the selected process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from gputop.analysis.answer.picture import OneStep
from gputop.ui.model.gpus import gpu_history, gpu_list
from gputop.ui.model.look import Line, Span, line_width
from gputop.ui.model.process import waterfall
from gputop.ui.panes.pane import Heading, Pane, Plain, quiet_key

LEAST = 11  # lines of a screen that shows GPUs; two more with the time bar
TALL = 30  # lines of a screen with room for graphs
_CORNERS = 8  # columns of the box's corners and of the gap between title and right end
GRAPHS = 5  # lines of a single GPU: two or more graphs and a line of figures


class Gpus(Pane):
    """The GPUs, a line each, or in columns of short lines."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.gpu_page", "Open", tooltip="all figures of the GPU"),
        quiet_key("up,k", "cursor(-1)", "Up", "the GPU above"),
        quiet_key("down,j", "cursor(1)", "Down", "the GPU below"),
    ]
    _first: int | None = None  # line of the first GPU, if each has a line
    _more = ""

    def wanted(self, width: int) -> int:
        """Return a line for each GPU and a heading, or the lines of graphs for a single GPU."""
        height, frame = self.app.size.height, self.view.frame
        if height < LEAST + 2 * (not self.view.live):
            return 0
        room = max(1, height // 5 if height < TALL else height // 4)
        if frame is None:
            return 1
        if self._graphed():
            return min(GRAPHS, room)
        return gpu_list.lines_needed(frame, width, room)

    def _titled(self) -> bool:
        return self.app.size.height >= TALL

    def _graphed(self) -> bool:
        frame = self.view.frame
        return frame is not None and len(frame.gpus) == 1 and self._titled()

    def heading(self) -> Heading:
        """Return the number of GPUs and the driver, or the time span of a single GPU's graphs."""
        frame, gpu, glyphs = self.view.frame, self.view.gpu, self.view.glyphs
        if self._graphed() and gpu is not None:
            name = glyphs.shown(gpu.name)
            known_ns = self.view.gpu_history.known_ns(gpu.index, frame.time_ns) if frame else 0
            span = gpu_history.span_text(self.size.width, known_ns)
            return [(f"GPU {gpu.index}", ""), (f"  {name}", "dim")], span
        title: list[Span] = [("GPUs", ""), (f" {len(frame.gpus) if frame else 0}", "dim")]
        if frame is not None:
            room = self.size.width - line_width(title) - len(self._more) - _CORNERS
            title += gpu_list.facts_of_all(frame, room, glyphs)
        return title, self._more

    def lines(self, width: int, height: int) -> Sequence[Line]:
        frame, glyphs, gpu = self.view.frame, self.view.glyphs, self.view.gpu
        if frame is None:
            return []
        if self._graphed() and gpu is not None:
            return gpu_history.detail_lines(self.view.gpu_history, frame, gpu, width, height, glyphs)
        self._first = 1 if gpu_list.has_full_lines(frame, width, height) else None
        chosen = gpu if self.has_focus else None
        lines, self._more = gpu_list.gpu_lines(
            frame, width, height, glyphs, chosen.index if chosen else None, titled=self._titled()
        )
        return lines

    def action_cursor(self, by: int) -> None:
        self.view.move_gpu(by)
        self.changed()

    def clicked(self, x: int, y: int) -> None:
        frame, gpu = self.view.frame, self.view.gpu
        if frame and gpu and self._first is not None and 0 <= y - self._first < len(frame.gpus):
            self.action_cursor(y - self._first - frame.gpus.index(gpu))


class Step(Plain):
    """One step of the selected process as a waterfall; empty without steps."""

    _drawn: tuple[tuple[OneStep | None, int, int, bool], list[Line]] | None = None

    def _step(self) -> OneStep | None:
        row = self.view.selected
        return waterfall.step_of(self.view.explained, row.pid) if row else None

    def wanted(self, width: int) -> int:
        return GRAPHS if self._step() is not None else 0

    def heading(self) -> Heading:
        return [(waterfall.title(self._step(), self.view.explained.report), "")], ""

    def lines(self, width: int, height: int) -> Sequence[Line]:
        # drawn again with each explanation, which is less often than each frame
        step, letters = self._step(), self.app.palette.letters
        wanted = step, width, height, letters
        if self._drawn is None or self._drawn[0][0] is not step or self._drawn[0][1:] != wanted[1:]:
            glyphs = self.view.glyphs
            self._drawn = wanted, waterfall.waterfall_lines(step, width, height, glyphs, letters=letters)
        return self._drawn[1]

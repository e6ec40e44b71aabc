"""The GPU pane as the user moves in it: which GPU has the cursor, and how far its page is scrolled."""

from __future__ import annotations

from gputop.engine.frame import Frame, GpuRow
from gputop.format import escape_text
from gputop.ui.model import gpu_page, gpu_users, gpus
from gputop.ui.model.layout import Placed
from gputop.ui.model.look import Glyphs, Line, Span, fit_line
from gputop.ui.model.table import title_line

LEAST_USERS = 2  # lines to spare that are worth it: a heading and a process
TITLED = 30  # lines of a screen from which on the pane has a title


class GpuPane:
    """The list of GPUs, or the page of the one with the cursor."""

    def __init__(self, glyphs: Glyphs) -> None:
        """Start at the first GPU.

        Args:
            glyphs: The signs to draw with.
        """
        self._glyphs = glyphs
        self._index: int | None = None
        self._top = 0
        self._beyond = 0  # lines of the page that do not fit
        self._page = 1
        self._first: int | None = None  # line of the first GPU where each has a line of its own

    def selected(self, frame: Frame) -> GpuRow | None:
        """The GPU with the cursor; the first where that has gone."""
        found = (gpu for gpu in frame.gpus if gpu.index == self._index)
        return next(found, frame.gpus[0] if frame.gpus else None)

    def move(self, by: int, frame: Frame) -> None:
        """The cursor goes to another GPU, and its page begins at the top.

        Args:
            by: GPUs down, negative for up.
            frame: What is shown.
        """
        current = self.selected(frame)
        if current is not None:
            place = frame.gpus.index(current) + by
            self._index = frame.gpus[max(0, min(place, len(frame.gpus) - 1))].index
            self._top = 0

    def click(self, line: int, frame: Frame) -> None:
        """A click on a line of the list puts the cursor there.

        Args:
            line: Line of the pane.
            frame: What is shown.
        """
        if self._first is not None and 0 <= line - self._first < len(frame.gpus):
            self._index = frame.gpus[line - self._first].index

    def scroll(self, by: int) -> None:
        """The page goes up or down.

        Args:
            by: Lines down, negative for up.
        """
        self._top = max(0, min(self._top + by, self._beyond))

    def scroll_page(self, direction: int) -> None:
        """The page goes up or down by what is in sight.

        Args:
            direction: 1 for down, -1 for up.
        """
        self.scroll(direction * self._page)

    def list_lines(self, placed: Placed, frame: Frame, screen_height: int, *, focused: bool) -> list[Line]:
        """The GPUs, with a title on high screens.

        Args:
            placed: The pane.
            frame: What is shown.
            screen_height: Lines of the terminal.
            focused: Whether the keys go here.
        """
        titled = screen_height >= TITLED
        rows = placed.height - titled
        self._first = titled + 1 if gpus.has_full_lines(frame, placed.width, rows) else None
        current = self.selected(frame) if focused else None
        index = current.index if current else None
        lines, hidden = gpus.gpu_lines(frame, placed.width, rows, self._glyphs, index)
        users, left_out = self._users(frame, placed.width, rows - len(lines))
        lines += users
        if titled:
            title: list[Span] = [
                ("GPUs", "title.focus" if focused else "title"),
                (f" {len(frame.gpus)}", "dim"),
            ]
            if frame.driver:
                title.append((f"  driver {escape_text(frame.driver)}", "faint"))
            right = hidden or left_out or ("Enter all of it" if focused and frame.gpus else "")
            return [title_line(title, right, placed.width, self._glyphs, focused=focused), *lines]
        if hidden:
            lines[-1] = (*fit_line(lines[-1], placed.width - len(hidden) - 1), (f" {hidden}", "more"))
        if focused and lines:
            lines[0] = tuple((text, "title.focus" if token == "head" else token) for text, token in lines[0])
        return lines

    def _users(self, frame: Frame, width: int, rows: int) -> tuple[list[Line], str]:
        """Who uses the GPUs, where there are lines to spare; and how many more do."""
        uses = gpu_users.everybody(frame)
        if rows < LEAST_USERS or not uses:
            return [], ""
        lines = gpu_users.table(uses[: rows - 1], self._glyphs, with_gpu=True)
        more = len(uses) - (rows - 1)
        left_out = f"+{more} process{'es' if more > 1 else ''}" if more > 0 else ""
        return [fit_line(line, width, ellipsis=self._glyphs.ellipsis) for line in lines], left_out

    def page_lines(self, placed: Placed, frame: Frame) -> list[Line]:
        """The page of the GPU with the cursor, as far as it fits.

        Args:
            placed: The pane.
            frame: What is shown.
        """
        gpu = self.selected(frame)
        width, glyphs = placed.width, self._glyphs
        lines = (
            gpu_page.page(gpu, frame, width, glyphs) if gpu else gpus.gpu_lines(frame, width, 1, glyphs)[0]
        )
        self._page = max(placed.height - 1, 1)
        self._beyond = max(len(lines) - self._page, 0)
        self._top = min(self._top, self._beyond)
        below = self._beyond - self._top
        place = frame.gpus.index(gpu) + 1 if gpu else 0
        title: list[Span] = [("GPU", "title.focus"), (f" {place} of {len(frame.gpus)}", "dim")]
        others = "Up Down other GPU  " if len(frame.gpus) > 1 else ""
        more = f"+{below} PgDn  " if below else ""
        head = title_line(title, f"{more}{others}Esc back", width, glyphs, focused=True)
        return [head, *lines[self._top : self._top + self._page]]

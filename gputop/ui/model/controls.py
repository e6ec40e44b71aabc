"""The actions that change what the user sees."""

from __future__ import annotations

from typing import Any

from gputop.ui.model.layout import DETAILS, Placed, tabs_of
from gputop.ui.model.list_controls import FOCI
from gputop.ui.model.signal_menu import SignalControls
from gputop.ui.model.source_controls import SourceControls
from gputop.ui.model.table import Table


class Controls(SourceControls, SignalControls):
    """The actions, one method each; ``act`` finds them by the name in the table of actions."""

    @property
    def _table(self) -> Table[Any] | None:
        return self.panes.table(self._pane_of_keys)

    @property
    def _pane_of_keys(self) -> str:
        """The verdict has nothing to sort or to move in: these keys are for the processes then."""
        return self._first_shown if self.focus == "verdict" else self.focus

    def act(self, name: str) -> None:
        """Do an action of the table of actions that concerns the view alone.

        Args:
            name: The action's name.
        """
        method = getattr(self, f"do_{name}", None)
        self.notice = ""
        if method is not None:
            method()
            self._after()

    def _after(self) -> None:
        self._unfollow_if_moved()
        self._list()

    def _move(self, by: int) -> None:
        if self._moves_finding and abs(by) != self._page_of():
            self.chain.move(by)
            self._scroll = 0
        elif self.overlay == "signals" and self.menu is not None:
            self.menu.move(by)
        elif self.focus == "timeline" and not (self.overlay or self.zoomed):
            self.move_subject(by)
        elif self.overlay == "call" and abs(by) != self._page_of():
            self.panes.calls.move(by)
        elif self.focus == "gpus" and not self.overlay and self.frame is not None:
            self.panes.gpus.move(by, self.frame)
        elif self.overlay or self._table is None:
            self._scroll = max(0, min(self._scroll + by, self._overlay_length - self._page))
        else:
            self._table.move(by)
            self.focus = self._pane_of_keys

    def do_up(self) -> None:
        """The row above."""
        self._move(-1)

    def do_down(self) -> None:
        """The row below."""
        self._move(1)

    def do_page_up(self) -> None:
        """A page up."""
        if self._on_gpu_page:
            self.panes.gpus.scroll_page(-1)
        else:
            self._move(-self._page_of())

    def do_page_down(self) -> None:
        """A page down."""
        if self._on_gpu_page:
            self.panes.gpus.scroll_page(1)
        else:
            self._move(self._page_of())

    @property
    def _on_gpu_page(self) -> bool:
        return self.focus == "gpus" and self.zoomed and not self.overlay

    def _page_of(self) -> int:
        height = next(
            (placed.height for placed in self._placed if placed.pane in (self._pane_of_keys, "overlay")), 3
        )
        return max(height - 3, 1)

    def do_home(self) -> None:
        """The first row."""
        self._move(-1_000_000)

    def do_end(self) -> None:
        """The last row."""
        self._move(1_000_000)

    def do_next_pane(self) -> None:
        """The keys go to the next pane; in the chain, the next moment."""
        if self.overlay == "why":
            self.chain.move_moment(1)
            return
        foci = self._foci
        self.set_focus(foci[(foci.index(self.focus) + 1) % len(foci)])

    def do_previous_pane(self) -> None:
        """The keys go to the pane before; in the chain, the moment before."""
        if self.overlay == "why":
            self.chain.move_moment(-1)
            return
        foci = self._foci
        self.set_focus(foci[foci.index(self.focus) - 1])

    def set_focus(self, pane: str) -> None:
        """The keys go to this pane from now on."""
        self.focus = pane
        self._scroll = 0
        if pane in DETAILS:
            self._detail = pane

    def do_open(self) -> None:
        """From the verdict to its chain, the processes to the calls, a line to its source; else zoom."""
        if self.overlay == "source":
            self.close_source()
        elif self.overlay == "signals":
            self.choose_signal()
        elif self.overlay:
            self.overlay = ""
        elif self.focus in ("verdict", "findings"):
            self.do_why()
        elif self.focus == "lines":
            self.do_source()
        elif self.focus == "processes" and "calls" not in self.hidden:
            self.set_focus("calls")
        elif self.focus == "calls":
            self._toggle("call")
        else:
            self.zoomed = not self.zoomed

    def do_back(self) -> None:
        """Out: the page, then the zoom, the filter, to the processes, then to the verdict."""
        if self.overlay == "source":
            self.close_source()
        elif self.overlay:
            self.overlay = ""
        elif self.zoomed:
            self.zoomed = False
        elif self.focus in ("verdict", "processes") and self.panes.listing.filtered:
            self.clear_filter()
        else:
            away = self.focus == "processes" or "processes" in self.hidden
            self.set_focus("verdict" if away else "processes")

    def do_zoom(self) -> None:
        """The focused pane takes the body or gives it back."""
        if self.focus == "findings":
            self.do_why()
            return
        self.focus = self._pane_of_keys
        self.zoomed = not self.zoomed
        self._scroll = 0

    def do_sort_left(self) -> None:
        """Sort by the column to the left."""
        if self._table:
            self._table.shift_sort(-1)
        elif self.focus == "timeline":
            self.timeline.zoom(-1)
        else:
            self.notice = "there is no table here to sort"

    def do_sort_right(self) -> None:
        """Sort by the column to the right."""
        if self._table:
            self._table.shift_sort(1)
        elif self.focus == "timeline":
            self.timeline.zoom(1)
        else:
            self.notice = "there is no table here to sort"

    def do_reverse(self) -> None:
        """Turn the order around."""
        if self._table:
            self._table.reverse()
        else:
            self.notice = "there is no table here to reverse"

    def do_freeze(self) -> None:
        """Keep the order of all tables, or let it go."""
        frozen = not self.panes.processes.frozen
        for table in (self.panes.processes, self.panes.calls, self.panes.threads, self.panes.lines):
            table.frozen = frozen

    def do_log(self) -> None:
        """Show or hide the output of the command."""
        self.log_shown = not self.log_shown

    def do_help(self) -> None:
        """Show or hide the help."""
        self._toggle("help")

    def do_why(self) -> None:
        """Show or hide why the GPU waits."""
        self._toggle("why")

    def moment_ns(self) -> int | None:
        """The moment that the chain's cursor is on, when the chain is shown."""
        return self.chain.moment_ns if self.overlay == "why" else None

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
        if placed.pane in FOCI[1:]:
            every = tabs_of(placed.pane, together=self._tabbed)
            tabs = [tab for tab in every if tab not in self._gone]
            switch = tabs and y == placed.y and self.focus == placed.pane
            self.set_focus(tabs[(tabs.index(placed.pane) + 1) % len(tabs)] if switch else placed.pane)
            if placed.pane == "gpus" and not self.zoomed and self.frame is not None:
                self.panes.gpus.click(y - placed.y, self.frame)
            table = self.panes.table(placed.pane)
            if table is not None and y > placed.y:
                table.click(x - placed.x, y - placed.y - 1)
            elif placed.pane == "findings" and y > placed.y:
                self.chain.move(y - placed.y - 1 - self.chain.index)
        elif placed.pane in ("verdict", "chain"):
            self.do_why()
        elif placed.pane == "overlay" and self.overlay == "signals" and self.menu is not None:
            self.menu.click(y - placed.y - 1)
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
        elif placed and placed.pane == "findings":
            self.chain.move(1 if by > 0 else -1)
        elif self._on_gpu_page:
            self.panes.gpus.scroll(by)
        elif placed and placed.pane == "overlay":
            self._move(by)

    @property
    def _tabbed(self) -> bool:
        hidden = self.hidden & {"calls", "threads"}
        return not hidden and len({placed.pane for placed in self._placed}.intersection(DETAILS)) == 1

    def _at(self, x: int, y: int) -> Placed | None:
        hits = (p for p in self._placed if p.x <= x < p.x + p.width and p.y <= y < p.y + p.height)
        return next(hits, None)

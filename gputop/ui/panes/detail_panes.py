"""The details of the selected process: tabbed panes, one or two of them visible."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Tab, Tabs

from gputop.ui.model.look import Line, line_width
from gputop.ui.model.view import View
from gputop.ui.panes.flame_pane import FlamePane
from gputop.ui.panes.pane import Plain, Tabbed, quiet_key
from gputop.ui.panes.reported_panes import FailedPane, KernelsPane, MemoryPane, RanksPane
from gputop.ui.panes.small_panes import Chart
from gputop.ui.panes.table_panes import CallsPane, LinesPane, ThreadsPane


class About(Plain):
    """The process of the details, beside the tabs."""

    def lines(self, width: int, height: int) -> list[Line]:
        pane = self.screen.query_one(Details).shown
        whose, *rest = pane.about()
        more = pane.more()
        shown = [whose]
        for part in ([(f"  {more}", "more")] if more else []) + rest:
            if line_width([*shown, part]) <= width:  # not cut: half of a range would be another one
                shown.append(part)
        return [self.view.glyphs.line(shown, width)]


class Details(Vertical):
    """The details of the selected process, in tabbed panes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        quiet_key("tab", "turn(1)", "Next pane", "the next tab, then the next pane"),
        quiet_key("shift+tab", "turn(-1)", "Previous pane", "the previous tab, then the previous pane"),
        quiet_key("right", "turn(1)", "Next tab", "the next tab"),
        quiet_key("left", "turn(-1)", "Previous tab", "the previous tab"),
    ]

    def __init__(self, view: View) -> None:
        super().__init__(id="details", classes="boxed")
        self._view = view
        self._panes: tuple[Tabbed, ...] = (
            CallsPane(view, view.calls, id="calls"),
            LinesPane(view, view.lines, id="lines"),
            ThreadsPane(view, view.threads, id="threads"),
            FlamePane(view),
            KernelsPane(view, id="kernels"),
            MemoryPane(view, id="memory"),
            FailedPane(view, id="failed"),
            RanksPane(view, id="ranks"),
        )
        self._about = About(view)
        for pane in self._panes:
            pane.beside = self._about
        self._arranged: list[Tabbed] | None = None
        self._tabs = Tabs(*(Tab(pane.name_shown, id=f"tab-{pane.id}") for pane in self._panes))
        self._tabs.can_focus = False

    def on_mount(self) -> None:
        self.arrange_tabs()
        self._mark()

    def compose(self) -> ComposeResult:
        with Horizontal(id="tabs"):
            yield self._tabs
            yield self._about
        with Horizontal(id="panes"):
            yield from self._panes
        yield Chart(self._view)

    @property
    def shown(self) -> Tabbed:
        """The pane of the active tab."""
        active = self._tabs.active
        return next((pane for pane in self._panes if f"tab-{pane.id}" == active), self._panes[0])

    def _choices(self) -> list[Tabbed]:
        """Return the panes with a tab; hiding the calls hides lines, stacks and kernels, too."""
        gone = self._view.hidden | ({"lines", "flame", "kernels"} if "calls" in self._view.hidden else set())
        return [pane for pane in self._panes if pane.id not in gone and pane.needed]

    def rows(self) -> int:
        """Return the lines wanted by the longest visible pane, with the tabs."""
        panes = {self.shown, *(pane for pane in self._panes if pane.display)}
        return 1 + max(pane.wanted(pane.size.width) for pane in panes)

    def show(self) -> None:
        """Update the tabs, some of which exist only while they have data."""
        if self._arranged is not None and self._choices() != self._arranged:
            self.arrange_tabs()

    def arrange_tabs(self) -> None:
        """Show the tabs of the panes that have one."""
        choices = self._arranged = self._choices()
        for pane in self._panes:
            there = pane in choices
            pane.set_class(not there, "-hidden")
            (self._tabs.show if there else self._tabs.hide)(f"tab-{pane.id}")
        self._tabs.styles.width = sum(len(pane.name_shown) + 2 for pane in choices)
        self.set_class(not choices, "-hidden")
        if choices and self.shown not in choices:
            self.open(choices[0])

    def open(self, pane: Tabbed, *, focus: bool = False) -> None:
        self._tabs.active = f"tab-{pane.id}"
        self._mark()
        if focus:
            self.screen.set_focus(pane)  # at once: the next key may have been pressed already

    def _mark(self) -> None:
        for pane in self._panes:
            pane.set_class(pane is self.shown, "-active")

    @on(Tabs.TabActivated)
    def _activated(self) -> None:
        """Show the pane of the chosen tab; it gets the focus if the former pane had it."""
        had = any(pane.has_focus for pane in self._panes)
        self._mark()
        if had:
            self.shown.focus()
        self.screen.query_one(Chart).show()
        self._about.show()
        self.call_after_refresh(self.shown.show)

    def action_turn(self, by: int) -> None:
        """Go to the next tab, or after the last one to the next pane."""
        there = [pane for pane in self._choices() if pane.display or pane is self.shown]
        every = self._choices()
        here = next((pane for pane in every if pane.has_focus), self.shown)
        place = every.index(here) + by if here in every else -1
        if 0 <= place < len(every):
            beside = every[place]
            if beside.display and beside in there and beside is not self.shown and self.shown.display:
                beside.focus()
            else:
                self.open(beside, focus=True)
        elif by > 0:
            self.screen.focus_next()
        else:
            self.screen.focus_previous()

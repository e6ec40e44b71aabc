"""The main screen: its panes, and the keys for more than one of them."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal
from textual.widget import Widget

from gputop.engine.calls.stack_table import Line
from gputop.ui.model.process.line_table import line_uses
from gputop.ui.model.room import shared
from gputop.ui.model.view import TOGGLED, View
from gputop.ui.panes.detail_panes import Details
from gputop.ui.panes.gpu_panes import Gpus, Step
from gputop.ui.panes.key_line import Keys
from gputop.ui.panes.pane import Pane, Tabbed, quiet_key
from gputop.ui.panes.process_pane import Processes
from gputop.ui.panes.small_panes import Banner, Chain, Chart, Header, Log, Storms, TimeBar, TooSmall
from gputop.ui.panes.table_panes import CallsPane, LinesPane, TablePane
from gputop.ui.panes.time_keys import TimeScreen
from gputop.ui.panes.timeline_pane import TimelinePane
from gputop.ui.panes.why_pane import PANEL_WIDTH, WhyPane


class MainScreen(TimeScreen):
    """The screen with all panes."""

    AUTO_FOCUS = "WhyPane"
    ALLOW_IN_MAXIMIZED_VIEW = "Header, WhyPane, Banner, TimeBar, Keys"
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-thin"), (40, "-slim"), (PANEL_WIDTH, "-narrow"), (100, "-wide"), (180, "-vast"),
    ]  # fmt: skip
    VERTICAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-flat"), (10, "-low"), (20, "-middle"), (30, "-tall"), (36, "-high"), (44, "-huge"),
    ]  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "why", "Why", tooltip="why the GPU waits: all findings and their chains"),
        Binding("s", "source", "Source", tooltip="open the source line that makes the calls"),
        quiet_key(
            "escape,backspace",
            "back",
            "Back",
            "unzoom, clear the filter, go to the processes, go to the verdict",
        ),
        quiet_key("z", "zoom", "Zoom", "zoom the focused pane, or restore it"),
        quiet_key("t,6", "timeline", "Timeline", "show or hide the timeline"),
        # for the processes, while the cursor is in no table
        *(
            Binding(one.key, f"list('{one.action}')", one.description, show=one.show, tooltip=one.tooltip)
            for one in Processes.BINDINGS
            if isinstance(one, Binding)
        ),
        *(
            quiet_key(one.key, f"processes('{one.action}')", one.description, one.tooltip)
            for one in TablePane.BINDINGS
            if isinstance(one, Binding) and one.key not in ("enter", "home", "end")
        ),
        quiet_key("home", "edge(0)", "Oldest", "the first process; on the time bar the oldest moment"),
        quiet_key("end", "edge(1)", "Newest", "the last process; on the time bar the newest moment"),
        *(
            quiet_key(str(place), f"pane('{name}')", f"Hide {name}", f"show or hide the {name}")
            for place, name in enumerate(TOGGLED, 1)
        ),
        quiet_key("F", "all_panes", "All panes", "show all panes again"),
        quiet_key("H", "machine_page", "Machine", "the machine: CPUs, memory, disks, network"),
        quiet_key("l", "log", "Log", "show or hide the output of the started command"),
    ]

    def __init__(self, view: View) -> None:
        super().__init__()
        self._view = view
        self._hidden: set[str] = set()  # panes hidden now
        self._others: list[Widget] = []  # widgets of fixed height
        self._deep = 0, 0  # the selected process, and the largest number of rows of its details

    def panes(self) -> ComposeResult:
        view = self._view
        yield TooSmall(view)
        yield Header(view)
        yield WhyPane(view, classes="boxed panel")
        yield Banner(view)
        with Horizontal(id="top"):
            yield Gpus(view, id="gpus", classes="boxed")
            yield Step(view, classes="boxed")
        yield Storms(view)
        with Container(id="body"):
            yield Processes(view, view.processes, id="processes", classes="boxed")
            yield Details(view)
        yield TimelinePane(view, id="timeline", classes="boxed")
        yield Chain(view, classes="boxed")
        yield Log(view)
        yield TimeBar(view)
        yield Keys(view)

    def show(self) -> None:
        if self._view.hidden != self._hidden:
            self._hide()
        self.query_one(Details).show()
        frame = self._view.frame
        self.query_one("#top").set_class(frame is not None and len(frame.gpus) > 1, "-several")
        self._share_room()
        super().show()

    def _share_room(self) -> None:
        """Divide the lines: rows of tables first, then more lanes of the timeline and links of the chain."""
        processes, timeline = self.query_one(Processes), self.query_one(TimelinePane)
        chain, chart, view = self.query_one(Chain), self.query_one(Chart), self._view
        if not self.has_class("-roomy") or self.maximized is not None or view.log_shown:
            processes.room = timeline.room = chain.room = chart.room = None
            return
        vast = self.has_class("-vast") and self.has_class("-huge")
        if not self._others:  # once: this query was a quarter of a frame's cost
            several = self.query("Header, WhyPane, Banner, Storms, Log, TimeBar, Keys")
            self._others = [*several.results(Widget), self.query_one("#top")]
        left = self.size.height - sum(one.outer_size.height for one in self._others if one.display)
        details = self.query_one(Details).rows()
        if view.selected is None or view.selected.pid != self._deep[0]:
            self._deep = (view.selected.pid if view.selected else 0), 0
        self._deep = self._deep[0], max(self._deep[1], details)
        found = shared(
            left,
            rows=len(view.processes.rows) or 3,  # without processes, three lines of advice
            details=self._deep[1],
            lanes=timeline.full(self.size.width) if timeline.has_lanes else 0,
            links=chain.full() if vast else 0,
            open_lanes=timeline.has_class("-wanted"),
            chart=chart.full() + 1 if vast and chart.full() else 0,
        )
        processes.room, timeline.room, chain.room, chart.room = found

    def _hide(self) -> None:
        hidden = self._hidden = set(self._view.hidden)
        self.query_one("#gpus").set_class("gpus" in hidden, "-hidden")
        self.query_one("#processes").set_class("processes" in hidden, "-hidden")
        details = self.query_one(Details)
        details.arrange_tabs()
        self.query_one("#body").set_class(details.has_class("-hidden"), "-alone")
        focused = self.focused
        if focused is not None and focused.has_class("-hidden"):
            self._first().focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable signals without a sender."""
        if action == "list" and parameters == ("signal",):
            return self.app.sender is not None
        return super().check_action(action, parameters)

    def key_upper_k(self) -> None:
        """Show why signals are disabled."""
        if self.app.sender is None:
            recorded = self.app.view.mode != "live"
            self.app.show_message(
                "K works live only: this is a recording"
                if recorded
                else "K is off: gputop was started with --readonly"
            )

    # -- pages --------------------------------------------------------------------------------

    def action_why(self) -> None:
        from gputop.ui.page_screens import WhyPage

        self.app.push_screen(WhyPage(self._view))

    def action_gpu_page(self) -> None:
        from gputop.ui.page_screens import GpuPage

        if self._view.gpu is not None:
            self.app.push_screen(GpuPage(self._view))

    def action_machine_page(self) -> None:
        from gputop.ui.page_screens import MachinePage

        self.app.push_screen(MachinePage(self._view))

    def action_source(self) -> None:
        """Open the source of the finding's, the selected or the process's most expensive line."""
        from gputop.ui.page_screens import SourcePage

        finding, row = self._view.chain.selected, self._view.selected
        line: Line | None = None
        pid = row.pid if row else 0
        if isinstance(self.focused, WhyPane) and finding is not None:
            line, pid = finding.line, finding.pid
        else:
            chosen = self._view.lines.selected_row if isinstance(self.focused, LinesPane) else None
            use = chosen or next(iter(line_uses(row)), None)
            line = use.line if use else None
        self.app.push_screen(SourcePage(self._view, line, pid))

    @on(TablePane.Opened)
    def _opened(self, event: TablePane.Opened) -> None:
        """Open a process's calls, a call's page, a line's source."""
        from gputop.ui.page_screens import CallPage

        details = self.query_one(Details)
        if isinstance(event.pane, Processes):
            details.open(details.shown, focus=True)
        elif isinstance(event.pane, CallsPane):
            self.app.push_screen(CallPage(self._view))
        elif isinstance(event.pane, LinesPane):
            self.action_source()
        else:
            self.action_zoom()

    # -- panes --------------------------------------------------------------------------------

    async def action_processes(self, action: str) -> None:
        """Run a table's action on the processes, for keys pressed outside of tables."""
        table = self._first()
        if isinstance(table, TablePane):
            table.focus()
            await table.run_action(action)

    async def action_list(self, action: str) -> None:
        """Run an action of the processes, wherever the cursor is."""
        await self.query_one(Processes).run_action(action)

    async def action_edge(self, edge: int) -> None:
        """Go to the oldest or the newest moment; live, to the first or the last process."""
        if self._view.live:
            await self.action_processes("last" if edge else "first")
        else:
            self.go_to_edge(edge)

    def _first(self) -> Pane:
        """Return the first visible pane with rows."""
        panes: list[Pane] = [*self.query(Processes), *self.query(Tabbed), *self.query(Gpus)]
        return next(pane for pane in panes if not pane.has_class("-hidden"))

    def action_back(self) -> None:
        focused = self.focused
        if self.maximized is not None:
            self.minimize()
        elif isinstance(focused, Tabbed) and focused.searched:
            focused.searched = ""
            self._view.list()
            self.app.show()
        elif isinstance(focused, Processes | WhyPane) and self._view.listing.filtered:
            self._view.listing.clear()
            self.query_one(Processes).relist()
        elif isinstance(focused, Processes) or "processes" in self._view.hidden:
            self.query_one(WhyPane).focus()
        else:
            self.query_one(Processes).focus()

    def action_zoom(self) -> None:
        pane = self.focused
        if isinstance(pane, WhyPane):
            self.action_why()
        elif isinstance(pane, Gpus):
            self.action_gpu_page()
        elif self.maximized is not None:
            self.minimize()
        elif isinstance(pane, Pane):
            for part in self.query_one("#body").children:
                part.set_class(part not in pane.ancestors_with_self, "-beside")
            self.maximized = next(one for one in self.children if one in pane.ancestors_with_self)
        self.call_after_refresh(self.show)

    def action_timeline(self) -> None:
        pane = self.query_one(TimelinePane)
        wanted = not pane.display
        pane.set_class(wanted, "-wanted")
        pane.set_class(not wanted, "-unwanted")
        self._view.timeline_hidden = not wanted
        if not wanted and pane.has_focus:
            self.query_one(WhyPane).focus()
        self.call_after_refresh(self.show)

    def action_pane(self, name: str) -> None:
        """Hide or show a pane; the last one that can have the focus stays."""
        hidden = self._view.hidden
        if name in hidden:
            hidden.discard(name)
        elif name != "storms" and hidden | {name, "storms"} >= set(TOGGLED):
            self.app.show_message("the last pane cannot be hidden")
        else:
            hidden.add(name)
            if self.maximized is not None:
                self.minimize()
        self.app.show()

    def action_all_panes(self) -> None:
        self._view.hidden.clear()
        self._view.timeline_hidden = False
        self.query_one(TimelinePane).remove_class("-unwanted")
        self.call_after_refresh(self.show)

    def action_log(self) -> None:
        self._view.log_shown = not self._view.log_shown
        self.set_class(self._view.log_shown, "-log")
        self.app.show()

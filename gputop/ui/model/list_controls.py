"""The actions that choose what is listed: filter, tree, followed process, hidden panes."""

from __future__ import annotations

from gputop.format import escape_text
from gputop.ui.model.config import Preferences
from gputop.ui.model.filter import HINT, SLOW, FilterError, parse_filter
from gputop.ui.model.hiding import TOGGLED
from gputop.ui.model.lanecontrols import LaneControls
from gputop.ui.model.layout import DETAILS
from gputop.ui.model.prompt import Prompt

FOCI = ("verdict", "processes", *DETAILS, "timeline", "gpus", "findings")
_NEVER_LAST = ("verdict", "timeline", "findings")  # there only beside others, or not always


class ListControls(LaneControls):
    """The part of the actions that is about which processes and panes are there at all."""

    @property
    def _gone(self) -> set[str]:
        """The panes that are hidden; lines stand in the place of calls."""
        return self.hidden | ({"lines"} if "calls" in self.hidden else set())

    @property
    def _foci(self) -> list[str]:
        return [pane for pane in self.foci(FOCI) if pane not in self._gone]

    @property
    def _first_shown(self) -> str:
        return next(pane for pane in self._foci if pane not in _NEVER_LAST)

    @property
    def _detail_shown(self) -> str:
        """Which of the details has the place where there is room for one."""
        if self._detail in self._gone:
            return "calls" if self._detail == "threads" else "threads"
        return self._detail

    def prefer(self, preferences: Preferences) -> None:
        """Start as the user prefers it."""
        self.hidden = set(preferences.hide)
        self.panes.listing.as_tree = preferences.tree
        for pane, keys in preferences.columns.items():
            table = self.panes.table(pane)
            if table is not None:
                table.show_columns(keys)
        self.complaints = preferences.problems

    # -- the list -----------------------------------------------------------------------------

    def do_filter(self) -> None:
        """Ask for a filter; it is tried with every key and dropped by Escape."""
        before = self.panes.listing.filter

        def changed(text: str) -> None:
            try:
                self.panes.listing.filter = parse_filter(text)
            except FilterError:
                return  # half typed: said after Enter
            self._relist()

        def answered(text: str) -> str:
            try:
                self.panes.listing.filter = parse_filter(text)
            except FilterError as error:
                return str(error)
            self._relist()
            return SLOW if self.panes.listing.filter.slow else ""

        def cancelled() -> None:
            self.panes.listing.filter = before
            self._relist()

        self.ask(Prompt("filter", before.text, HINT), answered, changed=changed, cancelled=cancelled)

    def clear_filter(self) -> None:
        """List the processes of all GPUs, whatever their names."""
        self.panes.listing.clear()
        self._relist()

    def _relist(self) -> None:
        self.panes.processes.resort()
        self._list()

    def do_gpu(self) -> None:
        """List the processes of the next GPU only, after the last one all again."""
        if self.frame is not None:
            self.panes.listing.next_gpu(self.frame)
            self.panes.processes.resort()

    def do_tree(self) -> None:
        """Processes below the process that started them, or as a list."""
        self.panes.listing.toggle_tree(self.panes.processes)
        self.panes.processes.resort()

    def do_fold(self) -> None:
        """Fold or unfold the branch of the selected process."""
        listing = self.panes.listing
        if not listing.as_tree:
            self.do_tree()
        elif not listing.fold(self.panes.processes):
            self.notice = "this process has started no other one that is listed"

    def do_follow(self) -> None:
        """Keep the selected process selected, listed and in sight; again: let it go."""
        listing, row = self.panes.listing, self.selected
        if listing.followed is not None:
            listing.followed = None
        elif row is not None:
            listing.followed = row
            name = escape_text(row.name, ascii_only=self.glyphs.ascii)
            self.notice = f"following {row.pid} {name}: it stays selected and in sight; [f] or moving ends it"

    def _unfollow_if_moved(self) -> None:
        listing = self.panes.listing
        if listing.followed is not None and self.panes.processes.selected != listing.followed.pid:
            listing.followed = None

    # -- the panes ----------------------------------------------------------------------------

    def hide(self, pane: str) -> None:
        """Hide a pane or show it again; the last one that the keys can go to stays.

        Args:
            pane: One of ``TOGGLED``.
        """
        if pane in self.hidden:
            self.hidden.discard(pane)
            return
        if [one for one in self._foci if one not in _NEVER_LAST] == [pane]:
            self.notice = "this is the last pane: it stays"
            return
        self.hidden.add(pane)
        if self.focus in self._gone:
            self.focus, self.zoomed = self._first_shown, False

    def do_pane_1(self) -> None:
        """The GPUs."""
        self.hide(TOGGLED[0])

    def do_pane_2(self) -> None:
        """The processes."""
        self.hide(TOGGLED[1])

    def do_pane_3(self) -> None:
        """The calls."""
        self.hide(TOGGLED[2])

    def do_pane_4(self) -> None:
        """The threads."""
        self.hide(TOGGLED[3])

    def do_pane_5(self) -> None:
        """The storms."""
        self.hide(TOGGLED[4])

    def do_all_panes(self) -> None:
        """Show all panes again."""
        self.hidden.clear()

"""The actions of the timeline and of the panes that only a big screen has."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.engine.frame import ThreadRow
from gputop.ui.model.state import ViewState
from gputop.ui.model.timeline import Subject

OPTIONAL = ("findings", "timeline")  # panes that get the keys only while they are on the screen
TIMELINE_WIDTH, TIMELINE_HEIGHT = 100, 36  # screens of this size have a timeline without being asked
BESIDE_HEIGHT = 16  # on lower ones there may be no room for it beside the tables


class LaneControls(ViewState):
    """Whether the timeline is shown, whose thread it shows, and where the keys can go."""

    _most_threads = (0, 0)  # process, threads

    @property
    def timeline_shown(self) -> bool:
        """Whether the timeline is to have room on the screen of now."""
        if self.timeline_wanted is not None:
            return self.timeline_wanted
        width, height = self.size
        traced = self.frame is not None and self.frame.calls_observed
        return traced and width >= TIMELINE_WIDTH and height >= TIMELINE_HEIGHT

    def do_timeline(self) -> None:
        """Show the timeline or hide it; where there is no room beside the tables it takes their place."""
        self.timeline_wanted = not self.timeline_shown
        if self.timeline_wanted and self.size[1] < BESIDE_HEIGHT:
            self.focus = "timeline"
        if not self.timeline_wanted and self.focus == "timeline":
            self.focus, self.zoomed = "verdict", False

    def foci(self, every: Sequence[str]) -> list[str]:
        """The panes that the keys can go to now."""
        there = {placed.pane for placed in self._placed} | {self.focus}
        if self.timeline_shown:
            there.add("timeline")
        return [pane for pane in every if pane not in OPTIONAL or pane in there]

    @property
    def _moves_finding(self) -> bool:
        return self.overlay == "why" or (self.focus == "findings" and not self.overlay)

    def most_threads(self) -> int:
        """The most threads that the selected process had while it was selected: so panes grow, and stay."""
        row = self.selected
        pid, most = self._most_threads
        count = len(row.threads) if row else 0
        self._most_threads = (row.pid if row else 0), max(count, most if row and row.pid == pid else 0)
        return self._most_threads[1]

    def lane_subject(self) -> Subject | None:
        """The thread that has a lane: the one the cursor was put on, else the first that calls CUDA."""
        row, table = self.selected, self.panes.threads
        if row is None or not row.threads:
            return None
        thread = table.selected_row if table.chosen else None
        if thread is None:
            callers = [one for one in row.threads if one.cuda] or list(row.threads)
            thread = min(callers, key=lambda one: one.tid)
        return Subject(thread.tid, thread.name, row.gpus or ())

    def move_subject(self, by: int) -> None:
        """Another thread gets the lane: the cursor of the thread table moves."""
        subject, table = self.lane_subject(), self.panes.threads
        if subject is not None:
            table.select(subject.tid)
            table.move(by)

    def lane_subjects(self) -> list[Subject]:
        """All threads of the selected process, those that call CUDA first."""
        row = self.selected
        gpus = row.gpus or () if row else ()

        def order(thread: ThreadRow) -> tuple[bool, int]:
            return not thread.cuda, thread.tid

        return [Subject(one.tid, one.name, gpus) for one in sorted(row.threads if row else (), key=order)]

"""What is shown and what the user has chosen to see: every bit of view state has its owner here."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.engine.frame import Frame, ProcessRow
from gputop.playback.feed import Explained, RecordingState
from gputop.ui.model.chain import ChainPage
from gputop.ui.model.layout import Placed
from gputop.ui.model.lines import SourcePage, line_uses
from gputop.ui.model.look import ASCII, UNICODE
from gputop.ui.model.panes import Panes
from gputop.ui.model.prompt import Prompting
from gputop.ui.model.subject import subject_of
from gputop.ui.model.timebar import TransportView
from gputop.ui.model.timeline import Timeline

LOG_LINES = 2_000


class ViewState(Prompting):
    """The state of the view.

    Attributes:
        frame: The frame shown.
        focus: The pane the keys go to; ``verdict``: Enter opens the chain, all else is for the processes.
        overlay: The page over the body: ``why``, ``call``, ``source``, ``help``, ``problems`` or "".
        zoomed: Whether the focused pane has the body.
        hidden: The panes that the user has hidden.
        complaints: What is wrong with the preferences, in sentences.
    """

    def __init__(
        self, mode: str, *, ascii_only: bool, selected_pid: int | None = None, title: str = ""
    ) -> None:
        """Start without a frame.

        Args:
            mode: ``live`` or ``replay``.
            ascii_only: Whether to draw with ASCII only.
            selected_pid: The process that is watched: it, or who calls CUDA for it, is selected at first.
            title: What is watched, for the header.
        """
        super().__init__()
        self.glyphs = ASCII if ascii_only else UNICODE
        self.mode = mode
        self.title = title
        self.frame: Frame | None = None
        self.focus = "verdict"
        self.overlay = ""
        self.zoomed = False
        self.hidden: set[str] = set()
        self.complaints: tuple[str, ...] = ()
        self.log_shown = False
        self.paused = False
        self.behind_ns = 0
        self.failure: str | None = None
        self.recording: RecordingState | None = None
        self.transport: TransportView | None = None
        self.notice = ""  # what a key has done, until the next key
        self.native_lines = 0
        self.log: list[str] = []
        self.explained = Explained()
        self.chain = ChainPage()
        self.timeline = Timeline(self.glyphs)
        self.timeline_wanted: bool | None = None  # None: where there is room
        self.source = SourcePage(None, 0, None)
        self.before_source = ""
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
        self.panes.processes.proposed = subject_of(self.explained, frame, self._wanted_pid)
        self._list()

    def _list(self) -> None:
        """List the processes of the frame, and the calls and threads of the selected one."""
        if self.frame is None:
            return
        listing = self.panes.listing
        farewell = listing.show(self.panes.processes, self.frame, ascii_only=self.glyphs.ascii)
        self.notice = farewell or self.notice
        self._show_details()

    def explain(self, explained: Explained) -> None:
        """Take an explanation.

        Args:
            explained: What the verdict and its chain say from now on.
        """
        self.explained = explained
        self.chain.take(explained)
        self.timeline.take(explained)

    def _show_details(self) -> None:
        row, frame = self.selected, self.frame
        if frame is None:
            return
        pid = row.pid if row else None
        if pid != self._detail_pid:
            self._detail_pid = pid
            self.panes.calls.reset()
            self.panes.threads.reset()
            self.panes.lines.reset()
        self.panes.calls.update(row.calls if row else (), frame.time_ns)
        self.panes.threads.update(row.threads if row else (), frame.time_ns)
        self.panes.lines.update(line_uses(row), frame.time_ns)

    def add_log(self, lines: Sequence[str]) -> None:
        """Take lines of output of the started command; the newest are kept."""
        self.log = (self.log + list(lines))[-LOG_LINES:]

"""The state of the screen: what is shown, and the user's choices. Widgets keep no copy of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from gputop.engine.frame import CallRow, Frame, GpuRow, ProcessRow, ThreadRow
from gputop.playback.alerts import Alerts
from gputop.playback.feed import Explained, RecordingState
from gputop.ui.model.answer.chain_page import ChainPage
from gputop.ui.model.answer.steady import Steady
from gputop.ui.model.answer.subject import subject_of
from gputop.ui.model.answer.summary import Runs
from gputop.ui.model.config import USUAL, Preferences, Startup
from gputop.ui.model.gpus.gpu_history import GpuHistory
from gputop.ui.model.gpus.machine_page import MachineHistory
from gputop.ui.model.gpus.only_gpus import explained_of_gpus, of_gpus, with_unwatched
from gputop.ui.model.header import Status
from gputop.ui.model.listing import process_table
from gputop.ui.model.listing.filter import parse_filter
from gputop.ui.model.listing.listing import Listing
from gputop.ui.model.listing.memory_shares import MemorySizes
from gputop.ui.model.listing.process_history import ProcessHistory
from gputop.ui.model.look import ASCII, UNICODE
from gputop.ui.model.own_cost import OwnCost, shortened
from gputop.ui.model.process import call_table, line_table
from gputop.ui.model.table import Table
from gputop.ui.model.time.timebar import TransportView
from gputop.ui.model.time.timeblocks import Subject, TimeBlocks

LOG_LINES = 2_000
READING_S = 3.0  # rows keep their places after a key or a mouse move
TOGGLED = ("gpus", "processes", "calls", "threads", "storms")  # panes by their keys, 1 to 5
MOST_ALERTS = 4  # at a moment: short-lived processes can cause a thousand


class View:
    """The state of the view.

    Attributes:
        frame: The frame shown.
        hidden: The hidden panes, by their names in the preferences.
        complaints: Problems of the preferences, in sentences.
        clock: A monotonic clock, in seconds.
    """

    clock: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, startup: Startup = USUAL) -> None:
        self.glyphs = ASCII if startup.ascii else UNICODE
        self.mode = startup.mode
        self.title = startup.title
        self.own_cost = OwnCost(startup.preferences.budget_percent if startup.mode == "live" else 0)
        self.frame: Frame | None = None
        self.hidden: set[str] = set()
        self.timeline_hidden = False
        self.log: list[str] = []
        self.log_shown = False
        self.failure: str | None = None
        self.outcome = ""  # how the started command has ended
        self.recording: RecordingState | None = None
        self.transport: TransportView | None = None
        self.native_lines = 0
        self.marked_ns: tuple[int, ...] = ()  # moments marked by the user or an alert
        self.explained = Explained()
        self.chain = ChainPage()
        self.timeline = TimeBlocks()
        self.gpu_history = GpuHistory()
        self.machine_history = MachineHistory()
        self.process_history = ProcessHistory()
        self.listing = Listing()
        self._sizes = MemorySizes()
        self.processes: Table[ProcessRow] = process_table.process_table(self.process_history, self._sizes)
        self.calls: Table[CallRow] = call_table.call_table()
        self.threads: Table[ThreadRow] = call_table.thread_table()
        self.lines: Table[line_table.LineUse] = line_table.line_table()
        self._gpu: int | None = None
        self._wanted_pid = startup.selected_pid
        self._detail_pid: int | None = None
        self._steady = Steady()
        self.runs = Runs()
        self.recorded = ""  # the file of the newest recording
        self._alerts = Alerts(startup.alerts)
        self._explained_as: Explained | None = None  # the last argument of ``explain``
        self._touched_s = -READING_S
        self._prefer(startup.preferences)
        self.listing.filter = parse_filter(startup.filter)
        self.listing.only = startup.gpus

    @property
    def tables(self) -> dict[str, Table[object]]:
        """All tables, by their names in the preferences."""
        names = ("processes", "calls", "threads", "lines")
        return {name: getattr(self, name) for name in names}

    def _prefer(self, preferences: Preferences) -> None:
        self.hidden = set(preferences.hide)
        self.listing.group = preferences.group
        self.listing.as_tree = preferences.tree and not preferences.group
        for name, keys in preferences.columns.items():
            self.tables[name].show_columns(keys)
        self.complaints = preferences.problems
        self.preferences_path = preferences.path

    # -- what is shown ------------------------------------------------------------------------

    def show(self, frame: Frame) -> str:
        """Show a frame; return a sentence if the followed process has left it, else ""."""
        self.frame = frame = with_unwatched(of_gpus(frame, self.listing.only))
        self.gpu_history.append(frame)
        self.machine_history.add(frame)
        self._sizes.show(frame)
        self.process_history.append(frame)
        self.processes.proposed = subject_of(self.explained, frame, self._wanted_pid)
        return self.list()

    def observe(self, present: Frame) -> None:
        """Add the newest frame to the graphs, also while another moment is shown."""
        self.gpu_history.append(present, present=True)
        self.machine_history.add(present, present=True)
        self.process_history.append(present, present=True)

    def alert(self, frame: Frame, explained: Explained) -> list[tuple[str, int]]:
        """Return the alerts at a frame, each with its time."""
        alerts = self._alerts.consume(frame, explained)
        texts = [(alert.text(), alert.time_ns) for alert in alerts[:MOST_ALERTS]]
        if more := len(alerts) - len(texts):
            texts.append((f"{more} more alerts at this moment", alerts[-1].time_ns))
        return texts

    def touch(self) -> None:
        """Note that the user used a key or the mouse."""
        self._touched_s = self.clock()

    @property
    def _reads(self) -> bool:
        return self.clock() - self._touched_s < READING_S

    def settle(self) -> bool:
        """Sort rows again after the user has stopped reading; return False if there is nothing to sort."""
        if self._reads or not self.processes.reading:
            return False
        self.list()
        return True

    def list(self) -> str:
        """Update the processes and the details of the selected one; return like ``show``."""
        frame = self.frame
        if frame is None:
            return ""
        for one in self.tables.values():
            one.reading = self._reads
        followed = self.listing.followed
        if followed is not None and self.processes.selected != followed.pid:
            self.listing.followed = None  # the cursor was moved
        farewell = self.listing.show(self.processes, frame, ascii_only=self.glyphs.ascii)
        row = self.selected
        pid = row.pid if row else None
        if pid != self._detail_pid:
            self._detail_pid = pid
            for table in (self.calls, self.threads, self.lines):
                table.reset()
        self.calls.update(row.calls if row else (), frame.time_ns)
        self.threads.update(row.threads if row else (), frame.time_ns)
        self.lines.update(line_table.line_uses(row), frame.time_ns)
        return farewell

    def explain(self, explained: Explained) -> None:
        """Show an explanation."""
        if explained == self._explained_as:
            return
        self._explained_as = explained
        shown = explained_of_gpus(explained, self.frame, self.listing.only)
        self.explained = explained = self._steady.ordered(shown)
        self.chain.show(explained)
        self.timeline.append(explained)

    def add_log(self, output: Sequence[str]) -> None:
        """Add output lines of the command; the newest are kept."""
        self.log = [*self.log, *output][-LOG_LINES:]

    # -- what is selected ---------------------------------------------------------------------

    @property
    def selected(self) -> ProcessRow | None:
        """The process whose details are shown."""
        return self.processes.selected_row

    @property
    def gpu(self) -> GpuRow | None:
        """The GPU with the cursor, or the first."""
        gpus = self.frame.gpus if self.frame else ()
        return next((gpu for gpu in gpus if gpu.index == self._gpu), gpus[0] if gpus else None)

    def move_gpu(self, by: int) -> None:
        """Move the cursor down by so many GPUs."""
        gpu, gpus = self.gpu, self.frame.gpus if self.frame else ()
        if gpu is not None:
            self._gpu = gpus[max(0, min(gpus.index(gpu) + by, len(gpus) - 1))].index

    def thread_subject(self) -> Subject | None:
        """Return the thread of the timeline: the one chosen by the user, else the first that calls CUDA."""
        if self.threads.chosen and self.threads.selected_row is not None:
            row = self.selected
            thread = self.threads.selected_row
            return Subject(thread.tid, thread.name, (row.gpus if row else None) or ())
        return next(iter(self.thread_subjects()), None)

    def thread_subjects(self) -> Sequence[Subject]:
        """Return all threads of the selected process, those that call CUDA first."""
        row = self.selected
        if row is None:
            return ()
        ordered = sorted(row.threads, key=lambda one: (not one.cuda, one.tid))
        return [Subject(one.tid, one.name, row.gpus or ()) for one in ordered]

    # -- the header's content -----------------------------------------------------------------

    @property
    def live(self) -> bool:
        """True if the screen shows the present."""
        return self.transport is None

    @property
    def status(self) -> Status:
        """The header's content beside the frame."""
        transport, paused = self.transport, self.mode == "live" and not self.live
        return Status(
            mode=self.mode,
            paused=paused,
            behind_ns=transport.end_ns - transport.position_ns if transport and paused else 0,
            playing=transport is not None and transport.playing,
            title=self.title,
            failure=self.failure,
            recording=self.recording,
            native_lines=self.native_lines,
            frozen=self.processes.frozen,
            hidden=len(self.hidden) + self.timeline_hidden,
            own=self.own_cost.mean if self.mode == "live" and self.live else None,
            reduced=self.reduced(OwnCost.short, shortened),
        )

    def reduced(self, cpu: Callable[[OwnCost, float], str], memory: Callable[[int], str]) -> tuple[str, ...]:
        """Return the notices of what is reduced to keep gputop within its budgets."""
        if self.frame is None:
            return ()
        both = cpu(self.own_cost, self.frame.rate_hz), memory(self.explained.shortened_ns)
        return tuple(filter(None, both))

    @property
    def problem_frame(self) -> Frame | None:
        """The frame, with problems of the preferences among its own."""
        frame = self.frame
        if frame is None or not self.complaints:
            return frame
        return replace(frame, problems=(*frame.problems, *self.complaints))

"""The explanation of the last seconds, in threads of its own: live, and at any moment of a recording.

Neither the thread that reads the ring nor the screen waits for it: they use a queue and the newest verdict.
Full explanations use at most ``SHARE`` of a core: the cost of one sets the time of the next. Between two of
them light analyses update the verdict (incremental.py), ``LOOK_SHARE`` of a core, and at least once a second.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from gputop.analysis.evidence.columns import FOREVER, LIVE, WHOLE
from gputop.analysis.incremental import SHARE, ExplainSchedule, Fresh, Looks, Whole, explained
from gputop.analysis.window import FIRST_LOOK, SLACK_NS, WINDOW_NS, Verdict, Window
from gputop.engine.fork_state import apart
from gputop.engine.malloc_tuning import release_free_memory
from gputop.engine.own_memory import OwnMemory, forget_peak, resident_bytes
from gputop.errors import explanation_stopped
from probes.source import MARK, Item, Sample
from replay.items import ItemReader
from replay.past.history import cut_header

_LOG = logging.getLogger(__name__)
UNSEEN_SHARE, UNSEEN_SPARE_S = 0.005, 2.0  # without a viewer: every window is joined to the one before
CHECKPOINT_NS = 30_000_000_000  # between places of a recording from which its player can continue
MOST_CHECKPOINTS = 64
LIVE_CHECKPOINTS = 24  # of the present: as far as rewinding goes
FAR_BYTES = 12 << 20  # of a file: a longer jump does not read all that lies before its target
RUN_UP_NS = 3_000_000_000  # read before the window, for its proofs
FIRST_BYTES = 1 << 20  # of a file: while more is read, a preliminary explanation is shown
FIRST_LOOK_NS, FIRST_RUN_UP_NS = 1_000_000_000, 250_000_000  # its length, and the time read before it
STALE_NS = 3_000_000_000  # an explanation this far from a moment does not apply to it
LISTED_NS = 3_000_000_000  # NVML's samples are at most so far apart
MOST_WAITING = 4_000  # batches in the queue, of up to 4096 records


class LiveExplainer:
    """Explains a live source: one thread consumes it and analyses the newest time, another explains in full.

    Attributes:
        verdict: The newest explanation.
        failure: Why there are no more explanations, "" while there are.
        resting: Set by the feeder while there is nothing to explain: items are only consumed then.
        memory: Shortens the explanations while gputop is above its budget of memory; None: no budget.
    """

    def __init__(
        self,
        header: Mapping[str, Any],
        on_verdict: Callable[[Verdict], None] = lambda verdict: None,
        *,
        unseen: bool = False,
    ) -> None:
        """Start with nothing observed.

        Args:
            header: The source's header.
            on_verdict: Called with each full explanation, in the thread that makes it.
            unseen: There is no viewer: no light analyses, and full ones just often enough to cover all time.
        """
        self.window = Window(header)
        self.on_verdict = on_verdict
        self.resting = False
        self.memory: OwnMemory | None = None
        self._unseen = unseen
        self._pace, self._looks, self._fresh = ExplainSchedule(), Looks(), Fresh()
        if unseen:
            self._pace = ExplainSchedule(UNSEEN_SHARE, WINDOW_NS / 1e9 - UNSEEN_SPARE_S)
        self._checkpoints: deque[tuple[int, Window]] = deque(maxlen=LIVE_CHECKPOINTS)
        self._began_ns = int(header.get("start_ns", 0))
        self._spacing_ns = CHECKPOINT_NS
        self.waiting_items: deque[Item] = deque()
        self.wake = threading.Event()
        self._closed = True
        self.verdict: Verdict | None = None
        self.failure = ""
        self.thread = threading.Thread(target=self._run, name="gputop-why", daemon=True)
        # the next window to explain in full, and the result of the last one
        self._requested: deque[Window] = deque()
        self._made: deque[Whole] = deque()
        self._busy = False
        self._final_ns = 0  # the mark at which the last process had ended, once that is explained
        self._request = threading.Event()
        self.explaining_thread = threading.Thread(target=self._explain, name="gputop-why-long", daemon=True)

    def start(self) -> None:
        """Start the threads; items fed before are ignored."""
        self._closed = False
        self.thread.start()
        self.explaining_thread.start()

    def feed(self, item: Item) -> None:
        """Enqueue one item; returns at once."""
        if self._closed:
            return
        self.waiting_items.append(item)
        if len(self.waiting_items) > MOST_WAITING:
            self.failure = "the explanation stopped: events come faster than it can process them"
            self._closed = True
            self._request.set()
        if is_mark(item):
            self.wake.set()

    @property
    def slower(self) -> int:
        """How many times less often than usual it explains."""
        return self._pace.slower

    @slower.setter
    def slower(self, times: int) -> None:
        self._pace.slower = self._looks.slower = times

    @property
    def shortened_ns(self) -> int:
        """The length of an explanation while it is shorter than usual to save memory; 0: it is not."""
        return self.window.length_ns if self.window.length_ns < WINDOW_NS else 0

    @property
    def checkpoints(self) -> list[tuple[int, Window]]:
        """Marks, with windows that can continue from there: for rewinding."""
        return list(self._checkpoints)

    def close(self) -> None:
        """End the threads."""
        self._closed = True
        for event, thread in ((self.wake, self.thread), (self._request, self.explaining_thread)):
            event.set()
            if thread.ident is not None:
                thread.join()

    def _run(self) -> None:
        try:
            while not self._closed:
                self.wake.wait()
                self.wake.clear()
                self.consume()
        except Exception as error:  # the screen continues and shows the failure
            self._fail(error)
            self.waiting_items.clear()

    def _explain(self) -> None:
        """Explain requested windows, each of which takes up to seconds: the second thread."""
        try:
            while not self._closed:
                self._request.wait()
                self._request.clear()
                while self._requested and not self._closed:
                    measured = self.memory is not None and forget_peak()
                    made = self._pace.explain(partial(explained, self._requested.popleft()))
                    if self.memory is not None:  # before its memory is returned
                        self.memory.consume(time.monotonic(), resident_bytes(peak=measured))
                    self.on_verdict(made.verdict)
                    self._made.append(made)
                    del made
                    release_free_memory()  # the temporary arrays of an explanation, some 40 MB
                    self._busy = False
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        _LOG.error("the explanation stopped", exc_info=error)
        self.failure = explanation_stopped(error)
        self._closed = True
        self.wake.set()
        self._request.set()

    def consume(self) -> None:
        """Consume the queue. At a mark it may explain, before it consumes anything later."""
        while self.waiting_items and not self._closed:
            if self.window.feed(self.waiting_items.popleft()):
                self.at_mark()

    def at_mark(self) -> None:
        if self.memory is not None:
            self.window.length_ns = self.memory.length(WINDOW_NS)
        while self._made:
            verdict = self._fresh.consume(self._made.popleft())
            if self.verdict is None or verdict.end_ns >= self.verdict.end_ns:
                self.verdict = verdict
        if not any(map(is_mark, list(self.waiting_items))):  # else the newest mark is enough
            self._at_newest_mark()
        newest = self._checkpoints[-1][0] if self._checkpoints else self._began_ns
        if self.window.end_ns - newest >= self._spacing_ns:
            cpu = time.thread_time()
            kept = self.window.compact()
            kept.length_ns = WINDOW_NS
            self._checkpoints.append((self.window.end_ns, kept))
            release_free_memory()
            self._spacing_ns = max(CHECKPOINT_NS, int((time.thread_time() - cpu) / SHARE * 1e9))

    def _at_newest_mark(self) -> None:
        if self.resting:
            return
        if ended_ns := self.window.ended_ns:
            kept = self.window.explained_ns == ended_ns
            if kept and ended_ns != self._final_ns and self._pace.due_at_once and not self._busy:
                self._final_ns = ended_ns
                self._request_all()
            return  # later records concern other processes
        due = self._pace.is_due(contradicted=self._fresh.contradicted)
        if due and not self._busy:
            self._request_all()
        if self._looks.due and not self._unseen:
            self.verdict = self._looks.look(self._fresh, self.window) or self.verdict

    def _request_all(self) -> None:
        self._busy = True
        self._requested.append(apart(self.window))
        self._request.set()


def is_mark(item: Item) -> bool:
    """True if an item is a mark."""
    return isinstance(item, Sample) and item.kind == MARK


class ReplayExplainer:
    """Explains the time before any mark of a recording, exactly as it was explained live.

    Old records may matter (proofs/retention.py), so the file is read from its beginning, once; checkpoints
    on the way make later jumps short.
    """

    shortened_ns = 0  # its explanations are as long as usual

    def __init__(self, reader: ItemReader, checkpoints: Sequence[tuple[int, Window]] = ()) -> None:
        """Start before the first mark.

        Args:
            reader: The recording, or the live history.
            checkpoints: Marks in order of time, with windows: those of a ``LiveExplainer``.
        """
        self._reader = reader
        self._pace, self._looks, self._fresh = ExplainSchedule(), Looks(), Fresh()
        self.window, self._index = Window(reader.header), -1
        self._checkpoints: list[tuple[int, Window]] = [(-1, self.window.compact())]
        self._checkpoints += [(self._at(ns), window) for ns, window in checkpoints if self._at(ns) >= 0]
        self._spacing_ns = CHECKPOINT_NS
        self.wanted: tuple[int, bool] | None = None
        self.answered: tuple[int, bool] | None = None
        self.wake = threading.Condition()
        self._closed = False
        self.verdict: Verdict | None = None  # the newest explanation
        self._final: Whole | None = None  # of the end of the last process, for the marks after it
        self.failure = ""  # why there are no more explanations, "" while there are
        self.thread = threading.Thread(target=self._run, name="gputop-why", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()

    def show(self, index: int, *, exact: bool) -> None:
        """Request the explanation at a mark; returns at once.

        Args:
            index: The mark.
            exact: Explain this mark, not just one near it when the next is due.
        """
        with self.wake:
            self.wanted = (index, exact)
            self.wake.notify()

    def close(self) -> None:
        """End the thread."""
        with self.wake:
            self._closed = True
            self.wake.notify()
        if self.thread.ident is not None:
            self.thread.join()

    def verdict_at(self, index: int) -> Verdict:
        """Return the explanation at a mark, as of ``gputop explain``, however long it takes."""
        self.go_to(index)
        if self.window.ended_ns:
            self.go_to(self._at(self.window.ended_ns))
        return self.window.verdict(WHOLE)

    def _run(self) -> None:
        while not self._closed:
            with self.wake:
                self.wake.wait_for(lambda: self._closed or self.wanted is not None)
                wanted, self.wanted = self.wanted, None
            if wanted is None or (wanted[1] and wanted == self.answered):
                continue  # a paused screen requests it more than once
            if self.failure and not wanted[1]:
                continue  # until another moment is requested: reading anew at each mark would cost a core
            self.answered = None
            try:
                self._answer(*wanted)
            except Exception as error:  # the screen continues and shows the failure
                _LOG.exception("the explanation stopped")
                self.failure = explanation_stopped(error)
                self.answered = wanted
                # the failure may have left anything half done: the next moment is reached from the beginning
                self.window, self._index = Window(self._reader.header), -1
                self._fresh, self.verdict, self._final = Fresh(), None, None
                self._checkpoints = [(-1, self.window.compact())]

    def _answer(self, index: int, exact: bool) -> None:
        if exact and self.is_slow(index):
            self._look_first(index)
        if self.go_to(index):
            self.at_mark(exact=exact)
            self.answered, self.failure = (index, exact), ""

    def at_mark(self, *, exact: bool) -> None:
        """Explain the window, in full where that is requested or due."""
        if ended_ns := self.window.ended_ns:
            self._explain_end(ended_ns)
            return
        if exact or self._pace.is_due(contradicted=self._fresh.contradicted):
            effort = WHOLE if exact else LIVE  # a paused player has time
            self.verdict = self._fresh.consume(self._pace.explain(partial(explained, self.window, effort)))
        elif self._looks.due:
            self.verdict = self._looks.look(self._fresh, self.window) or self.verdict

    def _explain_end(self, ended_ns: int) -> None:
        """Explain once at the mark at which the last process had ended."""
        if self._final is None or self._final.verdict.end_ns != ended_ns:
            if self.window.end_ns != ended_ns and not self.go_to(self._at(ended_ns)):
                return
            self._final = self._pace.explain(partial(explained, self.window, WHOLE))
        if self.verdict is not self._final.verdict:
            self.verdict = self._fresh.consume(self._final)

    def go_to(self, index: int) -> bool:
        """Bring the window to a mark; False if another mark was requested meanwhile."""
        marks = self._reader.marks
        reachable = int(marks[index]) - WINDOW_NS - SLACK_NS
        before = [one for one in self._checkpoints if one[0] < 0 or int(marks[one[0]]) <= reachable]
        if self._is_unread(index):
            self._index = self._first_before(index, WINDOW_NS + SLACK_NS + RUN_UP_NS)
            self.window, self._fresh = self._late(self._index), Fresh()
        elif index < self._index or before[-1][0] > self._index:  # backwards, or a checkpoint lies between
            self._index, window = before[-1]
            self.window, self._fresh = window.compact(), Fresh()
        for item in self._reader.items_between(self._index, index):
            if not self.window.feed(item):
                continue
            # the live history may have dropped marks between
            self._index = max(self._index + 1, self._at(self.window.end_ns))
            if int(marks[self._index]) - int(marks[max(self._checkpoints[-1][0], 0)]) >= self._spacing_ns:
                self._checkpoints.append((self._index, self.window.compact()))
                if len(self._checkpoints) > MOST_CHECKPOINTS:
                    self._checkpoints = [self._checkpoints[0], *self._checkpoints[2::2]]
                    self._spacing_ns *= 2
            if self._is_over(index):
                return False
        return True

    def _is_over(self, index: int) -> bool:
        """True if a mark is no longer requested."""
        wanted = self.wanted
        return self._closed or (wanted is not None and wanted[0] != index)

    def is_slow(self, index: int) -> bool:
        """True if there is no explanation near a mark yet, and reaching it takes a while."""
        marks, verdict = self._reader.marks, self.verdict
        if verdict is not None and abs(verdict.end_ns - int(marks[index])) <= STALE_NS:
            return False
        near = min(self._nearest(index), self._first_before(index, WINDOW_NS))
        return self._reader.bytes_between(near, index) > FIRST_BYTES

    def _look_first(self, index: int) -> None:
        """Explain the last second alone, while the records before it are being read."""
        first = max(self._first_before(index, FIRST_LOOK_NS + FIRST_RUN_UP_NS), self._reader.first)
        window = self._late(first, FIRST_LOOK_NS)
        for item in self._reader.items_between(first, index):
            window.feed(item)
            if self._is_over(index):
                return
        verdict = window.verdict()
        report = replace(verdict.report, notes=(FIRST_LOOK, *verdict.report.notes))
        if not self._is_over(index):
            self.verdict = replace(verdict, report=report, first_look=True)

    def _is_unread(self, index: int) -> bool:
        """True if reaching a mark takes reading more than ``FAR_BYTES`` of records that are not needed."""
        first = self._first_before(index, WINDOW_NS + SLACK_NS + RUN_UP_NS)
        near = self._nearest(index)
        return near < first and self._reader.bytes_between(near, first) > FAR_BYTES

    def _nearest(self, index: int) -> int:
        """The nearest mark before another from which a window can continue; -1 for the start."""
        known = [at for at, _window in self._checkpoints if at <= index]
        return max([*known, *([self._index] if self._index <= index else [])])

    def _first_before(self, index: int, ns: int) -> int:
        """The last mark at least so much earlier than another; 0 where there is none."""
        marks = self._reader.marks
        return max(int(marks.searchsorted(int(marks[index]) - ns)) - 1, 0)

    def _late(self, first: int, length_ns: int = WINDOW_NS) -> Window:
        """Return a window at a mark that holds nothing of the time before it but names."""
        reader = self._reader
        mark = reader.mark(first)
        lost = mark.data.get("lost", {}) if mark is not None else {}
        start = int(reader.marks[first])
        # loss counts continue; moments are counted from the start of the session
        header = {**cut_header(reader.header, start, lost), "start_ns": reader.header.get("start_ns", 0)}
        window = Window(header, late_ns=start, length_ns=length_ns)
        for item in reader.items_until(first, FOREVER, start - LISTED_NS):
            window.feed(item)
        return window

    def _at(self, mark_ns: int) -> int:
        """The number of a mark, -1 for one that is not there."""
        marks = self._reader.marks
        index = int(marks.searchsorted(mark_ns))
        return index if index < len(marks) and int(marks[index]) == mark_ns else -1

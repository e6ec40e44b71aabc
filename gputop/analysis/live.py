"""The explanation of the last seconds, in threads of its own: live, and at any moment of a recording.

Neither the thread that reads the ring nor the screen waits for it: both only put something into a queue or
take the newest verdict. Explaining at length takes at most ``SHARE`` of a core: what one explanation costs
decides when the next one is made. Between two of them the verdict is kept fresh by looks at what is newer
(fresh.py), ``LOOK_SHARE`` of a core, and once a second whatever they cost.
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
from gputop.errors import explanation_stopped
from probes.source import MARK, Item, Sample
from replay.items import ItemReader
from replay.past.history import cut_header

_LOG = logging.getLogger(__name__)
UNSEEN_SHARE, UNSEEN_SPARE_S = 0.005, 2.0  # without a viewer: every window is joined to the one before
CHECKPOINT_NS = 30_000_000_000  # between places of a recording from which its player can go on
MOST_CHECKPOINTS = 64
LIVE_CHECKPOINTS = 24  # of the present: as far as one can go back
FAR_BYTES = 12 << 20  # of a file: who jumps farther does not wait until all before it is read
RUN_UP_NS = 3_000_000_000  # read before the window, so that what it rests on is known
FIRST_BYTES = 1 << 20  # of a file: what takes longer to read is waited for with a first look
FIRST_LOOK_NS, FIRST_RUN_UP_NS = 1_000_000_000, 250_000_000  # what that is about, and what is read before it
STALE_NS = 3_000_000_000  # an explanation this far from a moment is about something else
LISTED_NS = 3_000_000_000  # NVML's samples are at most so far apart
MOST_WAITING = 4_000  # batches that have not been taken in, of up to 4096 records


class LiveExplainer:
    """Explains what a live source yields: a thread takes it in and looks at what is new, another explains.

    Attributes:
        resting: Set by who feeds it while there is nothing to explain: then it only takes in.
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
            on_verdict: Gets each whole explanation, in the thread that makes it.
            unseen: No viewer needs the verdict: it is not kept fresh, and explanations come as seldom as they
                may for all that happens to be in one of them.
        """
        self.window = Window(header)
        self.on_verdict = on_verdict
        self.resting = False  # while nothing is to be explained
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
        self._verdict: Verdict | None = None
        self._failure = ""
        self.thread = threading.Thread(target=self._run, name="gputop-why", daemon=True)
        # the window that is to be explained at length, and what came of the last one
        self._requested: deque[Window] = deque()
        self._made: deque[Whole] = deque()
        self._busy = False
        self._final_ns = 0  # the mark at which the last process had ended, once that is explained
        self._request = threading.Event()
        self.explaining_thread = threading.Thread(target=self._explain, name="gputop-why-long", daemon=True)

    def start(self) -> None:
        """Starts the threads; what is fed before is ignored."""
        self._closed = False
        self.thread.start()
        self.explaining_thread.start()

    def feed(self, item: Item) -> None:
        """Consumes one item; returns at once."""
        if self._closed:
            return
        self.waiting_items.append(item)
        if len(self.waiting_items) > MOST_WAITING:
            self._failure = "the explanation stopped: more events come than it can take in"
            self._closed = True
            self._request.set()
        if is_mark(item):
            self.wake.set()

    @property
    def slower(self) -> int:
        """How many times less often than usual it explains and looks."""
        return self._pace.slower

    @slower.setter
    def slower(self, times: int) -> None:
        self._pace.slower = self._looks.slower = times

    @property
    def verdict(self) -> Verdict | None:
        """The newest explanation."""
        return self._verdict

    @property
    def failure(self) -> str:
        """Why there are no more explanations, "" while there are."""
        return self._failure

    @property
    def checkpoints(self) -> list[tuple[int, Window]]:
        """Marks, and windows that can go on from there: for going back."""
        return list(self._checkpoints)

    def close(self) -> None:
        """Ends the threads."""
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
        except Exception as error:  # the screen goes on without it, and says so
            self._fail(error)
            self.waiting_items.clear()

    def _explain(self) -> None:
        """The second thread: explains a window of its own, which takes up to seconds."""
        try:
            while not self._closed:
                self._request.wait()
                self._request.clear()
                while self._requested and not self._closed:
                    made = self._pace.explain(partial(explained, self._requested.popleft()))
                    self.on_verdict(made.verdict)
                    self._made.append(made)
                    del made
                    release_free_memory()  # what an explanation takes for a moment, some 40 MB
                    self._busy = False
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        _LOG.error("the explanation stopped", exc_info=error)
        self._failure = explanation_stopped(error)
        self._closed = True
        self.wake.set()
        self._request.set()

    def consume(self) -> None:
        """Consumes the queue. At a mark it may explain, before anything later is known to it."""
        while self.waiting_items and not self._closed:
            if self.window.feed(self.waiting_items.popleft()):
                self.at_mark()

    def at_mark(self) -> None:
        while self._made:
            self._verdict = self._newer(self._fresh.consume(self._made.popleft()))
        if not any(map(is_mark, list(self.waiting_items))):  # else the newest mark is enough
            self._at_newest_mark()
        newest = self._checkpoints[-1][0] if self._checkpoints else self._began_ns
        if self.window.end_ns - newest >= self._spacing_ns:
            cpu = time.thread_time()
            self._checkpoints.append((self.window.end_ns, self.window.compact()))
            self._spacing_ns = max(CHECKPOINT_NS, int((time.thread_time() - cpu) / SHARE * 1e9))

    def _at_newest_mark(self) -> None:
        if self.resting:
            return
        if ended_ns := self.window.ended_ns:
            kept = self.window.explained_ns == ended_ns
            if kept and ended_ns != self._final_ns and self._pace.due_at_once and not self._busy:
                self._final_ns = ended_ns
                self._request_all()
            return  # what could be seen from here on is not about them
        due = self._pace.is_due(contradicted=self._fresh.contradicted)
        if due and not self._busy:
            self._request_all()
        if self._looks.due and not self._unseen:
            self._verdict = self._looks.look(self._fresh, self.window) or self._verdict

    def _request_all(self) -> None:
        self._busy = True
        self._requested.append(apart(self.window))
        self._request.set()

    def _newer(self, verdict: Verdict) -> Verdict:
        """Of two verdicts the one of the later moment."""
        return verdict if self._verdict is None or verdict.end_ns >= self._verdict.end_ns else self._verdict


def is_mark(item: Item) -> bool:
    """Whether an item is a mark."""
    return isinstance(item, Sample) and item.kind == MARK


class ReplayExplainer:
    """Explains the time before any mark of a recording, exactly as it was explained live.

    What came long before may matter (carry.py), so the file is read from its beginning, once; checkpoints
    on the way make later jumps short.
    """

    def __init__(self, reader: ItemReader, checkpoints: Sequence[tuple[int, Window]] = ()) -> None:
        """Start before the first mark.

        Args:
            reader: The recording, or the live history.
            checkpoints: Marks in order of time and windows to go on from, as a ``LiveExplainer`` left them.
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
        self._verdict: Verdict | None = None
        self._final: Whole | None = None  # of the end of the last process, for the marks after it
        self._failure = ""
        self.thread = threading.Thread(target=self._run, name="gputop-why", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self.thread.start()

    def show(self, index: int, *, exact: bool) -> None:
        """Requests the explanation at a mark; returns at once.

        Args:
            index: The mark.
            exact: Explain this very mark, instead of one that comes by when the next is due.
        """
        with self.wake:
            self.wanted = (index, exact)
            self.wake.notify()

    @property
    def verdict(self) -> Verdict | None:
        """The newest explanation."""
        return self._verdict

    @property
    def failure(self) -> str:
        """Why there are no more explanations, "" while there are."""
        return self._failure

    def close(self) -> None:
        """Ends the thread."""
        with self.wake:
            self._closed = True
            self.wake.notify()
        if self.thread.ident is not None:
            self.thread.join()

    def verdict_at(self, index: int) -> Verdict:
        """The explanation at a mark, as of ``gputop explain``; takes as long as it takes."""
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
            if self._failure and not wanted[1]:
                continue  # until another moment is requested: reading anew at each mark would cost a core
            self.answered = None
            try:
                self._answer(*wanted)
            except Exception as error:  # the screen goes on without it, and says so
                _LOG.exception("the explanation stopped")
                self._failure = explanation_stopped(error)
                self.answered = wanted
                self._begin_anew()

    def _answer(self, index: int, exact: bool) -> None:
        if exact and self.is_slow(index):
            self._look_first(index)
        if self.go_to(index):
            self.at_mark(exact=exact)
            self.answered, self._failure = (index, exact), ""

    def _begin_anew(self) -> None:
        """What failed may have left anything half done: the next moment is reached from the beginning."""
        self.window, self._index = Window(self._reader.header), -1
        self._fresh, self._verdict, self._final = Fresh(), None, None
        self._checkpoints = [(-1, self.window.compact())]

    def at_mark(self, *, exact: bool) -> None:
        """Explains where the window stands, at length where that is requested or due; else it looks."""
        if ended_ns := self.window.ended_ns:
            self._explain_end(ended_ns)
            return
        if exact or self._pace.is_due(contradicted=self._fresh.contradicted):
            effort = WHOLE if exact else LIVE  # who stands still has time
            self._verdict = self._fresh.consume(self._pace.explain(partial(explained, self.window, effort)))
        elif self._looks.due:
            self._verdict = self._looks.look(self._fresh, self.window) or self._verdict

    def _explain_end(self, ended_ns: int) -> None:
        """The verdict at the mark at which the last process had ended: the window is brought there, once."""
        if self._final is None or self._final.verdict.end_ns != ended_ns:
            if self.window.end_ns != ended_ns and not self.go_to(self._at(ended_ns)):
                return
            self._final = self._pace.explain(partial(explained, self.window, WHOLE))
        if self._verdict is not self._final.verdict:
            self._verdict = self._fresh.consume(self._final)

    def go_to(self, index: int) -> bool:
        """Brings the window to a mark; False when something else was wanted meanwhile."""
        if self._is_unread(index):
            self._begin_late(index)
        elif index < self._index or self._is_far(index):
            reachable = int(self._reader.marks[index]) - WINDOW_NS - SLACK_NS
            before = [
                (at, window)
                for at, window in self._checkpoints
                if at < 0 or int(self._reader.marks[at]) <= reachable
            ]
            self._index, window = before[-1]
            self.window, self._fresh = window.compact(), Fresh()
        marks = self._reader.marks
        for item in self._reader.items_between(self._index, index):
            if not self.window.feed(item):
                continue
            # the live history may have dropped what lay between
            self._index = max(self._index + 1, self._at(self.window.end_ns))
            if int(marks[self._index]) - self._newest_checkpoint_ns() >= self._spacing_ns:
                self._set_checkpoint()
            if self._is_over(index):
                return False
        return True

    def _is_over(self, index: int) -> bool:
        """Whether no thread waits for a mark any more."""
        wanted = self.wanted
        return self._closed or (wanted is not None and wanted[0] != index)

    def is_slow(self, index: int) -> bool:
        """Whether nothing can be reported of a mark yet, and to come to it takes a while."""
        marks, verdict = self._reader.marks, self._verdict
        if verdict is not None and abs(verdict.end_ns - int(marks[index])) <= STALE_NS:
            return False
        near = min(self._nearest(index), self._first_before(index, WINDOW_NS))
        return self._reader.bytes_between(near, index) > FIRST_BYTES

    def _look_first(self, index: int) -> None:
        """The verdict of the last second alone: it is there while what the whole one rests on is read."""
        first = max(self._first_before(index, FIRST_LOOK_NS + FIRST_RUN_UP_NS), self._reader.first)
        window = self._late(first, FIRST_LOOK_NS)
        for item in self._reader.items_between(first, index):
            window.feed(item)
            if self._is_over(index):
                return
        verdict = window.verdict()
        report = replace(verdict.report, notes=(FIRST_LOOK, *verdict.report.notes))
        if not self._is_over(index):
            self._verdict = replace(verdict, report=report, first_look=True)

    def _is_unread(self, index: int) -> bool:
        """Whether to come to a mark would take reading more than a person waits for."""
        first = self._first_before(index, WINDOW_NS + SLACK_NS + RUN_UP_NS)
        near = self._nearest(index)
        return near < first and self._reader.bytes_between(near, first) > FAR_BYTES

    def _nearest(self, index: int) -> int:
        """The mark nearest before another from which a window could go on; -1 for the start."""
        known = [at for at, _window in self._checkpoints if at <= index]
        return max([*known, *([self._index] if self._index <= index else [])])

    def _first_before(self, index: int, ns: int) -> int:
        """The last mark that is so much earlier than another, the first one where there is none."""
        marks = self._reader.marks
        return max(int(marks.searchsorted(int(marks[index]) - ns)) - 1, 0)

    def _begin_late(self, index: int) -> None:
        """Stands at a mark before another, as far as that needs it."""
        self._index = self._first_before(index, WINDOW_NS + SLACK_NS + RUN_UP_NS)
        self.window, self._fresh = self._late(self._index), Fresh()

    def _late(self, first: int, length_ns: int = WINDOW_NS) -> Window:
        """A window at a mark that knows nothing of the time before it but who is who."""
        reader = self._reader
        mark = reader.mark(first)
        lost = mark.data.get("lost", {}) if mark is not None else {}
        start = int(reader.marks[first])
        # numbers of records go on from before; moments are counted from the start of the session
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

    def _is_far(self, index: int) -> bool:
        """Whether a checkpoint lies between here and a mark far ahead."""
        reachable = int(self._reader.marks[index]) - WINDOW_NS - SLACK_NS
        return any(
            at > self._index and int(self._reader.marks[at]) <= reachable for at, _ in self._checkpoints
        )

    def _newest_checkpoint_ns(self) -> int:
        at = self._checkpoints[-1][0]
        return int(self._reader.marks[max(at, 0)])

    def _set_checkpoint(self) -> None:
        self._checkpoints.append((self._index, self.window.compact()))
        if len(self._checkpoints) > MOST_CHECKPOINTS:
            self._checkpoints = [self._checkpoints[0], *self._checkpoints[2::2]]
            self._spacing_ns *= 2

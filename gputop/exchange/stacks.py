"""All stacks of a recording: time of their calls and waits, and of what they launched on GPUs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gputop.api.reading import Progress, understood
from gputop.api.session import Session, reader_of
from gputop.engine.calls.linesums import Sums, add, sums_of, waits_of
from gputop.engine.calls.stack_table import Line
from gputop.engine.facts import Facts
from gputop.engine.tally import told_sums
from probes.activities import GRAPH, KERNEL, activity_rows
from probes.samples import told
from probes.schema import Kind, Records, select
from probes.source import ACTIVITY, MARK, SUMS, Sample

OFF_CPU = "off-CPU"
_KEPT_NS, _UNSEEN_NS = 20_000_000_000, 2_000_000_000  # of calls; while no kernel was seen
_CALL = np.dtype([("tid", "<i8"), ("begin", "<i8"), ("stack", "<i8")])
_WORK = np.dtype(
    [("call_tid", "<i8"), ("call_begin", "<i8"), ("pid", "<i8"), ("ns", "<i8"), ("name", object)]
)


@dataclass(frozen=True, slots=True)
class StackTime:
    """What one stack did.

    Attributes:
        pid: The process.
        what: The function that was called, or ``off-CPU`` for waits between two calls.
        frames: From the innermost on; none where they are not known.
        count: Calls or waits.
        ns: Their time.
    """

    pid: int
    what: str
    frames: tuple[Line, ...]
    count: int
    ns: int


@dataclass(frozen=True, slots=True)
class StackTimes:
    """The stacks, most time first, and what processes are called.

    ``kernels`` is time on GPUs by the stack that launched it, where it is known (``--inside``).
    """

    calls: tuple[StackTime, ...]
    waits: tuple[StackTime, ...]
    names: dict[int, str]
    kernels: tuple[StackTime, ...] = ()


def stack_times(session: Session, progress: Progress | None = None) -> StackTimes:
    """Adds up outermost calls whose line was looked for, and waits between calls, by stack.

    Raises:
        SessionDamagedError: It holds what this gputop does not understand.
    """
    reader = reader_of(session)
    facts = Facts()
    calls: Sums = {}
    waits: Sums = {}
    kernels = _Launched()
    with understood(session.path):
        items = reader.items()
        for item in progress.through(items, len(reader.marks)) if progress else items:
            if isinstance(item, Sample):
                facts.take(item)
                kernels.take(item)
                if item.kind == SUMS:  # of records that were not kept
                    add(calls, told_sums(item.data, "lines"))
                    add(waits, told_sums(item.data, "waits"))
                continue
            made = select(item, item["kind"] == Kind.CALL)
            kernels.notice(made)
            add(calls, sums_of(made))
            add(waits, waits_of(item))
        pids = {origin[0] for origin in (*calls, *waits)}
        return StackTimes(
            _rows(calls, facts, of_calls=True),
            _rows(waits, facts, of_calls=False),
            {pid: facts.process_name(pid) for pid in sorted(pids)},
            kernels.rows(facts),
        )


class _Launched:
    """GPU time of kernels and graphs by the stack of the call that launched them.

    Calls are kept for a while only: a kernel comes within seconds of its launch, unless the queue is long.
    """

    def __init__(self) -> None:
        self._calls: list[npt.NDArray[np.void]] = []
        self._waiting: list[npt.NDArray[np.void]] = []
        self._sums: dict[tuple[int, str, int], tuple[int, int]] = {}
        self._inside = False  # nothing is kept of recordings without kernels

    def notice(self, calls: Records) -> None:
        """Calls, before or after what they launched."""
        made = np.zeros(len(calls), _CALL)
        made["begin"] = calls["t_end"].astype(np.int64) - calls["duration"].astype(np.int64)
        made["tid"], made["stack"] = calls["tid"], calls["stack"].view(np.int64)
        self._calls.append(made)

    def take(self, sample: Sample) -> None:
        """Activities; at a mark they are joined with their calls."""
        if (data := told(sample, ACTIVITY)) is not None:
            rows, texts = activity_rows(data)
            ran = [place for place, text in enumerate(texts) if text in (KERNEL, GRAPH)]
            rows = rows[np.isin(rows["what"], ran) & (rows["call_tid"] >= 0)]
            self._inside |= len(rows) > 0
            work = np.zeros(len(rows), _WORK)
            for name in ("call_tid", "call_begin", "pid"):
                work[name] = rows[name]
            work["ns"] = rows["end"] - rows["begin"]
            work["name"] = [texts[one] for one in rows["name"].tolist()]
            self._waiting.append(work)
        elif sample.kind == MARK and (self._calls or self._waiting):
            self._join(sample.time_ns)

    def _join(self, now: int) -> None:
        calls = np.concatenate([np.zeros(0, _CALL), *self._calls])
        calls = calls[calls["begin"] > now - (_KEPT_NS if self._inside else _UNSEEN_NS)]
        calls = calls[np.lexsort((calls["begin"], calls["tid"]))]
        self._calls = [calls]
        if not self._waiting or not len(calls):
            self._waiting = []
            return
        work, self._waiting = np.concatenate(self._waiting), []
        low = np.searchsorted(calls["tid"], work["call_tid"], side="left")
        high = np.searchsorted(calls["tid"], work["call_tid"], side="right")
        for row, first, last in zip(work, low.tolist(), high.tolist(), strict=True):
            place = first + int(np.searchsorted(calls["begin"][first:last], row["call_begin"]))
            if place < last and calls["begin"][place] == row["call_begin"]:
                key = int(row["pid"]), str(row["name"]), int(calls["stack"][place])
                count, ns = self._sums.get(key, (0, 0))
                self._sums[key] = count + 1, ns + int(row["ns"])

    def rows(self, facts: Facts) -> tuple[StackTime, ...]:
        """By stack; a kernel is the leaf."""
        found = [
            StackTime(pid, name, facts.stacks.frames(int(np.int64(stack).view(np.uint64))), count, ns)
            for (pid, name, stack), (count, ns) in self._sums.items()
        ]
        return tuple(sorted(found, key=lambda row: (-row.ns, row.pid, row.what, row.frames)))


def _rows(sums: Sums, facts: Facts, *, of_calls: bool) -> tuple[StackTime, ...]:
    found: dict[tuple[int, str, tuple[Line, ...]], tuple[int, int]] = {}
    for (pid, second, stack), (count, ns) in sums.items():
        key = pid, facts.api(second)[0] if of_calls else OFF_CPU, facts.stacks.frames(stack)
        before = found.get(key, (0, 0))
        found[key] = before[0] + count, before[1] + ns
    rows = [StackTime(*key, count, ns) for key, (count, ns) in found.items()]
    return tuple(sorted(rows, key=lambda row: (-row.ns, row.pid, row.what, row.frames)))

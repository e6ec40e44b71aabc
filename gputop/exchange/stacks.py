"""Time by stack: calls, waits, and the GPU work that they launched."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gputop.api.reading import SILENT, Progress, understood
from gputop.api.session import Session, reader_of
from gputop.engine.calls.linesums import LineSums, Sums
from gputop.engine.calls.stack_table import Line
from gputop.engine.facts import Facts
from gputop.exchange.recorded_ranges import RecordedRanges
from probes.activities import GRAPH, KERNEL, activity_rows
from probes.arrays import signed
from probes.samples import sample_data
from probes.schema import Kind, Records, select
from probes.source import ACTIVITY, MARK, SUMS, Sample

OFF_CPU = "off-CPU"
_KEPT_NS, _UNSEEN_NS = 20_000_000_000, 2_000_000_000  # how long calls are held; before the first kernel
_CALL = np.dtype([("tid", "<i8"), ("begin", "<i8"), ("stack", "<i8")])
_WORK = np.dtype(
    [("call_tid", "<i8"), ("call_begin", "<i8"), ("pid", "<i8"), ("ns", "<i8"), ("name", object)]
)


@dataclass(frozen=True, slots=True)
class StackTime:
    """Time of one stack."""

    pid: int  # the process
    what: str  # the called function, or ``off-CPU`` for waits between two calls
    frames: tuple[Line, ...]  # from the innermost on; empty if unknown
    count: int  # calls or waits
    ns: int  # their time
    ranges: str = ""  # the program's ranges around it, outer to inner, as one path; "" for none


@dataclass(frozen=True, slots=True)
class StackTimes:
    """The stacks, most time first, and names of processes.

    ``kernels`` is GPU time by the launching stack, where that is known (``--inside``).
    """

    calls: tuple[StackTime, ...]
    waits: tuple[StackTime, ...]
    names: dict[int, str]
    kernels: tuple[StackTime, ...] = ()


def stack_times(session: Session, progress: Progress = SILENT) -> StackTimes:
    """Sum outermost calls with stacks, and waits between calls, by stack.

    Raises:
        SessionDamagedError: It holds data that this gputop does not understand.
    """
    reader = reader_of(session)
    facts = Facts()
    sums: defaultdict[str, LineSums] = defaultdict(LineSums)  # by range
    with understood(session.path):
        ranges = RecordedRanges(reader)
        kernels = _Launched(ranges)
        items = reader.items()
        for item in progress.through(items, len(reader.marks)):
            if isinstance(item, Sample):
                facts.consume(item)
                kernels.consume(item)
                if item.kind == SUMS:  # sums of records that were not kept
                    sums[""].merge(item.data)
                continue
            made = select(item, item["kind"] == Kind.CALL)
            kernels.notice(made)
            for path, part in _by_range(made, ranges):
                sums[path].add_calls(part)
            for path, part in _by_range(select(item, item["kind"] == Kind.OFFCPU), ranges):
                sums[path].add_offcpu(part)
        calls = {path: one.lines for path, one in sums.items()}
        waits = {path: one.waits for path, one in sums.items()}
        pids = {origin[0] for one in sums.values() for origin in (*one.lines, *one.waits)}
        return StackTimes(
            _rows(calls, facts, of_calls=True),
            _rows(waits, facts, of_calls=False),
            {pid: facts.process_name(pid) for pid in sorted(pids)},
            kernels.rows(facts),
        )


def _by_range(records: Records, ranges: RecordedRanges) -> Iterator[tuple[str, Records]]:
    if not ranges.any:
        yield "", records
        return
    begin = signed(records["t_end"]) - signed(records["duration"])
    for path, rows in ranges.groups(records["pid"], records["tid"], begin):
        yield path, records[rows]


class _Launched:
    """GPU time of kernels and graphs by the stack of the launching call.

    Calls are held for a while only: kernels follow their launch within seconds, unless the queue is long.
    """

    def __init__(self, ranges: RecordedRanges) -> None:
        self._ranges = ranges
        self._calls: list[npt.NDArray[np.void]] = []
        self._waiting: list[npt.NDArray[np.void]] = []
        self._sums: dict[tuple[int, str, int, str], tuple[int, int]] = {}
        self._inside = False  # recordings without kernels hold fewer calls

    def notice(self, calls: Records) -> None:
        """Add calls, before or after the work that they launched."""
        made = np.zeros(len(calls), _CALL)
        made["begin"] = calls["t_end"].astype(np.int64) - calls["duration"].astype(np.int64)
        made["tid"], made["stack"] = calls["tid"], calls["stack"].view(np.int64)
        self._calls.append(made)

    def consume(self, sample: Sample) -> None:
        """Add activities; at a mark they are joined with their calls."""
        if (data := sample_data(sample, ACTIVITY)) is not None:
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
        paths = np.full(len(work), "", object)
        for path, rows in self._ranges.groups(work["pid"], work["call_tid"], work["call_begin"]):
            paths[rows] = path
        for row, path, first, last in zip(work, paths.tolist(), low.tolist(), high.tolist(), strict=True):
            place = first + int(np.searchsorted(calls["begin"][first:last], row["call_begin"]))
            if place < last and calls["begin"][place] == row["call_begin"]:
                key = int(row["pid"]), str(row["name"]), int(calls["stack"][place]), path
                count, ns = self._sums.get(key, (0, 0))
                self._sums[key] = count + 1, ns + int(row["ns"])

    def rows(self, facts: Facts) -> tuple[StackTime, ...]:
        """Return the sums by stack, with the kernel as leaf."""
        found = [
            StackTime(pid, name, facts.stacks.frames(int(np.int64(stack).view(np.uint64))), count, ns, path)
            for (pid, name, stack, path), (count, ns) in self._sums.items()
        ]
        return _in_order(found)


def _rows(by_range: dict[str, Sums], facts: Facts, *, of_calls: bool) -> tuple[StackTime, ...]:
    found: dict[tuple[int, str, tuple[Line, ...], str], tuple[int, int]] = {}
    for path, sums in by_range.items():
        for (pid, second, stack), (count, ns) in sums.items():
            key = pid, facts.api(second)[0] if of_calls else OFF_CPU, facts.stacks.frames(stack), path
            before = found.get(key, (0, 0))
            found[key] = before[0] + count, before[1] + ns
    return _in_order([StackTime(*key[:3], count, ns, key[3]) for key, (count, ns) in found.items()])


def _in_order(rows: list[StackTime]) -> tuple[StackTime, ...]:
    return tuple(sorted(rows, key=lambda row: (-row.ns, row.pid, row.what, row.frames, row.ranges)))

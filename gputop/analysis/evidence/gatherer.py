"""Items, live or from a file, as columns for the analysis; counts of lost events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gputop.analysis.evidence.api_classes import ActivityGatherer, ApiTable, Role
from gputop.analysis.evidence.blocking import STOPPED, UNKNOWN, Descriptors
from gputop.analysis.evidence.columns import Ints, lean, union
from gputop.analysis.evidence.evidence import (
    CALL_COLUMNS,
    SLICE_COLUMNS,
    Column,
    Columns,
    Table,
    Tick,
    lives_of,
    places_of,
)
from gputop.analysis.evidence.memory_ledger import Held
from gputop.engine.calls.failed_calls import FailedCalls
from gputop.engine.facts import Facts, lost_before
from gputop.engine.fork_state import apart
from gputop.engine.threads.occupancy import segments_of
from gputop.engine.threads.switches import OpenThreads
from probes import api, schema
from probes.proc.syscalls import machine_of
from probes.samples import CarriedData, lost_until, process_data, sample_data
from probes.schema import (
    ALIASED,
    COPY_SHIFT,
    RECORD,
    CallFlag,
    ExitFlag,
    Kind,
    OffFlag,
    Records,
    empty,
    join,
    select,
)
from probes.source import ACTIVITY, APIS, CARRIED, FILES, GPUS, HOLE, MARK, OPEN, PLACES, SUMS, Item, Sample

_ROWS: Final = 10_000  # of one sample, whose size is bounded
_MOST: Final = 1 << 16  # more in one sample was made to fill memory


def sample_before(tick: Tick, lives: Sequence[Table], complete: Iterable[int], time_ns: int) -> list[Sample]:
    """Return the samples with records that are carried over.

    Args:
        tick: Calls, inner calls and intervals off the CPU, as retention.py chose them.
        lives: Births and ends of threads that live.
        complete: Processes all of whose CUDA calls are recorded.
        time_ns: The moment before which all of it lies.
    """
    parts = [_calls(one, 0) for one in tick.calls] + [_calls(one, CallFlag.NESTED) for one in tick.inner]
    parts += [_slices(one) for one in tick.slices] + [_lives(one) for one in lives]
    records = join([empty(0), *parts])
    records = records[np.argsort(records["t_end"], kind="stable")]
    pids = list(complete)
    return [
        sample_of(records[row : row + _ROWS], pids, time_ns) for row in range(0, max(len(records), 1), _ROWS)
    ]


def sample_of(records: Records, complete: Iterable[int], time_ns: int) -> Sample:
    """Return one such sample; arguments as ``records_before`` returns them."""
    pids = sorted(int(pid) for pid in complete)
    return Sample(CARRIED, time_ns, {"complete": pids, "columns": packed_columns(records)})


def records_before(data: Mapping[str, Any]) -> tuple[Records, frozenset[int]]:
    """Return (the calls and lives of such a sample, processes all of whose calls are recorded).

    Raises:
        ValueError: It is damaged.
    """
    columns = data["columns"]
    count = len(columns["kind"])
    if count > _MOST:
        raise ValueError(f"{count} calls from before the recording")
    records = empty(count)
    for name in RECORD.names or ():
        if name in columns:
            records[name] = np.frombuffer(columns[name], RECORD[name])
    return records, frozenset(int(pid) for pid in data.get("complete", ()))


def packed_columns(records: Records) -> dict[str, bytes]:
    """Return records as such a sample holds them."""
    return {name: np.ascontiguousarray(records[name]).tobytes() for name in RECORD.names or ()}


def _calls(columns: Columns, flags: int) -> Records:
    records = empty(len(columns))
    records["kind"] = Kind.CALL
    records["t_end"], records["duration"] = columns["end"], columns["end"] - columns["begin"]
    for name in ("tid", "pid", "op", "ret", "bytes", "stream", "aux", "stack"):
        records[name] = columns[name]
    records["run_delay"] = columns["shape"]  # without COUNTERS the field holds it
    abandoned: npt.NDArray[np.uint16] = columns["abandoned"].astype(np.uint16) * CallFlag.ABANDONED
    records["flags"] = columns["direction"].astype(np.uint16) << COPY_SHIFT | abandoned | flags
    return records


def _slices(columns: Columns) -> Records:
    records = empty(len(columns))
    rows = records.view(ALIASED)
    rows["kind"], rows["t_end"] = Kind.OFFCPU, columns["end"]
    rows["duration"], rows["runnable"] = columns["end"] - columns["begin"], columns["end"] - columns["queued"]
    for name in ("tid", "pid", "waker_tid", "waker_pid", "cpu", "queue_cpu", "flags", "faults", "stack"):
        rows[name] = columns[name]
    rows["op"], rows["argument"] = columns["syscall"], columns["descriptor"]
    return records


def _lives(table: Table) -> Records:
    records = empty(len(table))
    rows = records.view(ALIASED)
    for name in ("tid", "pid", "kind"):
        rows[name] = table[name]
    rows["t_end"], rows["next_tid"] = table["at"], table["maker"]
    rows["flags"] = table["dead"].astype(np.uint16) * ExitFlag.GROUP_DEAD
    return records


class LossFinder:
    """Finds lost records by their numbers, of records in the order of reading.

    Each CPU numbers every record that it begins, lost ones too. A number may be used twice when an interrupt
    writes a record between counting and reserving: then the next number is there twice, which is no loss.
    """

    def __init__(self, start_ns: int, *, cut: bool = False) -> None:
        """Start before the first record.

        Args:
            start_ns: The moment from which on records are missed.
            cut: True if the records begin in the middle of a session: a CPU's first number means nothing.
        """
        self._start_ns = start_ns
        self._cut = cut
        self._skips = False
        self._seq: dict[int, int] = {}
        self._time: dict[int, int] = {}
        self._begin: list[int] = []
        self._end: list[int] = []
        self.records = 0

    def add(self, records: Records) -> None:
        """Consume a batch."""
        if self._skips:
            return
        cpus = records["cpu"]
        order = np.argsort(cpus, kind="stable")
        cpus, seq = cpus[order], records["seq"][order].astype(np.uint32)
        step = np.empty(len(seq), np.int32)
        step[1:] = (seq[1:] - seq[:-1]).view(np.int32)
        heads = np.append(0, np.flatnonzero(cpus[1:] != cpus[:-1]) + 1)
        unseen = seq[heads] - np.uint32(1) if self._cut else np.zeros(len(heads), np.uint32)
        starts = zip(cpus[heads].tolist(), unseen.tolist(), strict=True)
        before = [self._seq.get(cpu, start) for cpu, start in starts]
        step[heads] = (seq[heads] - np.array(before, np.uint32)).view(np.int32)
        time = records["t_end"]
        tails = np.append(heads[1:], len(seq))
        if (step != 1).any():
            for cpu, first, last in zip(cpus[heads].tolist(), heads.tolist(), tails.tolist(), strict=True):
                self._note(cpu, step[first:last], time[order[first:last]].astype(np.int64))
        self._seq.update(zip(cpus[heads].tolist(), seq[tails - 1].tolist(), strict=True))
        self._time.update(zip(cpus[heads].tolist(), time[order[tails - 1]].tolist(), strict=True))

    def _note(self, cpu: int, step: npt.NDArray[np.int32], time: Ints) -> None:
        for row in np.flatnonzero(step > 1).tolist():
            missing = int(step[row]) - 1
            if row + 1 < len(step) and step[row + 1] <= 0:
                missing += int(step[row + 1]) - 1
            if missing > 0:
                self.records += missing
                self._begin.append(int(time[row - 1]) if row else self._time.get(cpu, self._start_ns))
                self._end.append(int(time[row]))

    def miss(self, begin_ns: int, end_ns: int) -> None:
        """Note a loss of unknown length between these moments."""
        if self._skips:
            self._skips, self._cut = False, True
            self._seq.clear()
            self._time.clear()
        self._begin.append(begin_ns)
        self._end.append(end_ns)

    def skip(self) -> None:
        """Ignore numbers until ``miss``: records are left out on purpose."""
        self._skips = True

    def intervals(self) -> tuple[Ints, Ints]:
        """Return disjoint, ordered intervals in which records are missing."""
        return union(np.array(self._begin, np.int64), np.array(self._end, np.int64))

    def forget(self, before_ns: int) -> None:
        """Drop the losses that ended before, except the last: a loss since then stays known."""
        last = max((end for end in self._end if end <= before_ns), default=before_ns)
        kept = [row for row, end in enumerate(self._end) if end >= last]
        self._begin, self._end = [self._begin[row] for row in kept], [self._end[row] for row in kept]

    def copy(self) -> LossFinder:
        """Return a fork of the state."""
        return apart(self)


def _times(records: Records) -> tuple[Ints, Ints]:
    """Return (begin, end); a damaged file may hold any number."""
    end = np.minimum(records["t_end"], np.uint64(1 << 62))
    begin = end - np.minimum(records["duration"], end)
    return begin.astype(np.int64), end.astype(np.int64)


def _copied(column: Column) -> Column:
    one = lean(column)
    return one.copy() if one is column else one


def calls_of(records: Records) -> Columns:
    """Return CALL records as columns."""
    begin, end = _times(records)
    flags = records["flags"]
    as_recorded = ("tid", "pid", "op", "ret", "stream", "aux", "stack")
    return Columns(
        {name: _copied(records[name]) for name in as_recorded}
        | {
            "begin": begin,
            "end": end,
            "direction": lean((flags >> COPY_SHIFT).astype(np.uint8)),
            "abandoned": lean((flags & CallFlag.ABANDONED) != 0),
            "bytes": lean(records["bytes"].astype(np.int64)),
            "shape": lean(np.where(flags & CallFlag.COUNTERS, 0, records["run_delay"]).astype(np.uint32)),
        }
    )


def slices_of(records: Records) -> Columns:
    """Return OFFCPU records as columns."""
    rows = records.view(ALIASED)
    begin, end = _times(rows)
    queued = end - np.minimum(rows["runnable"], (end - begin).astype(np.uint64)).astype(np.int64)
    missed = (rows["flags"] & OffFlag.WAKE_MISSED) != 0
    as_recorded = ("tid", "pid", "waker_tid", "waker_pid", "cpu", "queue_cpu", "flags", "faults", "stack")
    return Columns(
        {name: rows[name].copy() for name in as_recorded}
        | {
            "begin": begin,
            "queued": np.where(missed, end, queued),
            "end": end,
            "syscall": np.where(rows["ret"] & schema.STOPPED_STATES, STOPPED, rows["op"]).astype(np.uint16),
            "descriptor": rows["argument"].copy(),
            "file": np.full(len(rows), UNKNOWN, np.int32),  # filled in at the next mark
        }
    )


class Gatherer:
    """Consumes items; callers that keep a window only may shorten ``ticks`` from the left."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        self.header = header
        self.facts = Facts()
        self._proves = not header.get("unproved")  # a file without streams, say, proves nothing
        self.apis = ApiTable([[row.name, row.layer, row.group] for row in api.BY_OP])
        self.ticks: list[Tick] = [Tick()]
        self.lives: list[Table] = []
        cut = header.get("cut") is not None
        self.losses = LossFinder(int(header.get("start_ns", 0)), cut=cut)
        self._lost_before = lost_before(header)
        self.gpus: list[Sample] = []
        self.activities = ActivityGatherer()
        self.failed = FailedCalls()
        self.held = Held()
        self.open = OpenThreads()
        self.descriptors = Descriptors(machine_of(header))
        self.end_ns = 0
        self._activities = 0  # since the newest mark
        self._missing = 0  # records, up to the newest mark
        self._marked_ns = int(header.get("start_ns", 0))  # the newest mark
        self._hole = self._unkept = False  # since then records are missing; because they were not kept
        self.unkept: list[tuple[int, int]] = []  # intervals of which only sums were kept
        self.choices_kept = True  # in these the GPU that each thread chose is recorded
        self.counted_lost = 0
        self.complete: frozenset[int] = frozenset()  # processes all of whose calls before a cut are recorded
        self._grouped = False

    def feed(self, item: Item) -> bool:
        """Consume one item; return True if it closed a tick."""
        if not isinstance(item, Sample):
            self._records(item)
            return False
        if item.kind == MARK:
            self.facts.consume(item)
            self._mark(item)
            return True
        if (threads := sample_data(item, OPEN)) is not None:
            self.open = OpenThreads.from_sample(threads, ended=True)
        elif item.kind == GPUS:
            self.gpus.append(item)
        elif (files := sample_data(item, FILES)) is not None:
            self.descriptors.consume(files)
        elif (places := sample_data(item, PLACES)) is not None:
            self.ticks[-1].places.append(places_of(places))
        elif (carried := sample_data(item, CARRIED)) is not None:
            self._before(carried)
        elif item.kind in (HOLE, SUMS):
            self._hole = True
            if item.kind == SUMS:
                self.losses.skip()
                self._unkept = True
                self.choices_kept &= item.data.get("choices") is True
        elif (activities := sample_data(item, ACTIVITY)) is not None:
            self._activities += self.activities.consume(activities)
        elif (apis := sample_data(item, APIS)) is not None:
            self.apis = ApiTable(apis.get("rows", ()), proves=self._proves)
            self.held.name(list(self.apis.names))
        elif (process := process_data(item)) is not None:
            devices = process.get("cuda_devices")
            if isinstance(devices, list):
                self.held.uses(process["pid"], (one for one in devices if isinstance(one, int)))
        self.facts.consume(item)
        return False

    def copy(self) -> Gatherer:
        """Return a fork of the state at a mark; both share the closed ticks, which never change."""
        other = apart(self, shared=("header", "apis", "open"))  # replaced as a whole, never changed
        other.ticks[-1] = Tick()
        return other

    def join(self, first: int) -> None:
        """Join the closed ticks from this one on: few large tables cost less time and memory."""
        closed, tick = self.ticks[first:-1], Tick()
        for name, dtype in (("calls", CALL_COLUMNS), ("inner", CALL_COLUMNS), ("slices", SLICE_COLUMNS)):
            tables = (part for one in closed for part in getattr(one, name))
            setattr(tick, name, [Columns.join(tables, dtype)])
        for name in ("on_cpu", "moves", "places"):
            setattr(tick, name, [part for one in closed for part in getattr(one, name)])
        tick.close(closed[-1].mark_ns)
        self.ticks[first:-1] = [tick]

    def _mark(self, mark: Sample) -> None:
        self.end_ns = mark.time_ns
        lost = max(sum(lost_until(mark).values()) - sum(self._lost_before.values()), 0)
        self.choices_kept &= not (self._unkept and lost > self.counted_lost)
        self.counted_lost = lost
        missing = self.losses.records
        if missing > self._missing or (self._hole and not (self._unkept and self.choices_kept)):
            self.held.lost()
        self._missing = missing
        self.held.mark(mark.time_ns, self.gpus[-1] if self.gpus else None)
        for part in self.ticks[-1].slices:
            self.descriptors.fill(part)
        for table in self.ticks[-1].places:
            self.descriptors.fill(table)
        if self._hole:
            self.losses.miss(self._marked_ns, mark.time_ns)
        self._count_activities(mark)
        if self._unkept:
            self.unkept.append((self._marked_ns, mark.time_ns))
        self._marked_ns, self._hole, self._unkept = mark.time_ns, False, False
        self.ticks[-1].close(mark.time_ns)
        self.ticks.append(Tick())

    def _count_activities(self, mark: Sample) -> None:
        """Note a loss where activities are missing."""
        counts = mark.data.get("activities")
        if isinstance(counts, list) and len(counts) == 2 and counts[0] != self._activities:
            self.losses.records += max(int(counts[0]) - self._activities, 0)
            self.losses.miss(min(self._marked_ns, int(counts[1])), mark.time_ns)
        self._activities = 0

    def _before(self, carried: CarriedData) -> None:
        """Consume calls from before a cut, without their numbers: none is lost among them."""
        records, complete = records_before(carried)
        self.complete |= complete
        if len(records):
            self._consume(records)

    def _records(self, records: Records) -> None:
        if not len(records):
            return
        self.losses.add(records)
        self.held.add(records)
        self._consume(records)

    def _consume(self, records: Records) -> None:
        self.end_ns = max(self.end_ns, int(records["t_end"].max()))
        kinds, tick = records["kind"], self.ticks[-1]
        calls = kinds == np.uint8(Kind.CALL)
        if calls.any():
            self._calls(records, calls)
            self.failed.add_calls(records if calls.all() else select(records, calls))
        if calls.all():
            return
        slices = kinds == np.uint8(Kind.OFFCPU)
        if slices.any():
            tick.slices.append(slices_of(select(records, slices)))
        for kind, parts, cpu in (
            (Kind.OCCUPANT, tick.on_cpu, "cpu"),
            (Kind.MIGRATE, tick.moves, "queue_cpu"),
        ):
            mask = kinds == np.uint8(kind)
            if mask.any():
                parts.append(segments_of(select(records, mask).view(ALIASED), cpu))
        life = (kinds >= np.uint8(Kind.FORK)) & (kinds <= np.uint8(Kind.JOIN))
        if life.any():
            self.lives.append(lives_of(select(records, life)))

    def _calls(self, records: Records, calls: npt.NDArray[np.bool_]) -> None:
        nested = (records["flags"] & np.uint16(CallFlag.NESTED)) != 0
        outer = calls & ~nested
        if outer.any():
            self.ticks[-1].calls.append(calls_of(select(records, outer)))
        inner = calls & nested
        if not inner.any():
            return
        roles = self.apis.role.take(records["op"], mode="clip")
        self._grouped |= bool((roles[calls] == Role.BRACKET).any())
        if self._grouped:
            enqueues = roles == Role.ENQUEUE
            self.ticks[-1].inner.append(calls_of(select(records, inner & enqueues)))


# The end of all processes that made CUDA calls: then there is nothing newer to explain.

_MOST_GONE = 1024  # ends of processes that are kept


@dataclass(frozen=True, slots=True)
class End:
    """The end of the last process that made CUDA calls."""

    pid: int
    name: str  # its name, "" where it is not known
    time_ns: int  # CLOCK_MONOTONIC
    code: int | None  # the status, as of ``wait``; None: not known
    users: int  # the number of processes that made CUDA calls, this one included; 0: none of its own is known


class Ends:
    """Follows the processes that make CUDA calls, and their ends."""

    def __init__(self) -> None:
        self._alive: set[int] = set()
        self._names: dict[int, str] = {}
        self._users = 0
        self._last: End | None = None
        self._gone: dict[int, End] = {}  # those that ended last: their calls may come after their end
        self._only = -1  # the process that makes all calls, if there is one
        self.called_ns = 0  # the mark after the newest call, CLOCK_MONOTONIC; 0: none
        self._called = False  # since the last mark

    def copy(self) -> Ends:
        """Return a fork of the state."""
        return apart(self, ("_last",))

    @property
    def last(self) -> End | None:
        """The last end, while no process that made CUDA calls lives."""
        return self._last if not self._alive else None

    def consume(self, item: Item) -> None:
        """Consume one item."""
        if not isinstance(item, Sample):
            self._calls(item)
        elif (data := process_data(item)) is not None:
            pid = data["pid"]
            if "name" in data:
                self._names[pid] = str(data["name"])
            if data.get("exited_ns") is not None:
                self._ended(pid, int(data["exited_ns"] or 0), data.get("exit_code"))

    def at_mark(self, mark_ns: int) -> None:
        """End a tick."""
        if self._called:
            self._called, self.called_ns = False, mark_ns

    def _calls(self, records: Records) -> None:
        calls, pids = records["kind"] == Kind.CALL, records["pid"]
        if not calls.any():
            return
        self._called = True
        if pids[0] == self._only and bool((pids == self._only).all()):
            return  # of one process, which is known: the usual case
        calling = pids[calls]
        for pid in np.unique(calling).tolist():
            if pid in self._alive:
                continue
            end = self._gone.get(pid)
            if end is None or int(records["t_end"][calls & (pids == pid)].max()) > end.time_ns:
                self._alive.add(pid)
                self._users += 1
            elif not end.users:  # its first call is reported only now
                self._users += 1
                self._at_end(replace(end, users=self._users))
        self._only = int(calling[0]) if len(self._alive) == 1 and len(calling) else -1

    def _ended(self, pid: int, time_ns: int, code: int | None) -> None:
        end = End(pid, self._names.pop(pid, ""), time_ns, code, 0)
        self._gone.pop(pid, None)
        self._gone[pid] = end
        if len(self._gone) > _MOST_GONE:
            del self._gone[next(iter(self._gone))]
        if pid in self._alive:
            self._alive.discard(pid)
            self._only = -1
            self._at_end(replace(end, users=self._users))

    def _at_end(self, end: End) -> None:
        self._gone[end.pid] = end
        if self._last is None or end.time_ns >= self._last.time_ns:
            self._last = end

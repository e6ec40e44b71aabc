"""Takes items in, live or from a file, as columns for the analysis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gputop.engine.apart import apart
from gputop.engine.facts import Facts, lost_before
from gputop.engine.failed_calls import FailedCalls
from gputop.engine.occupancy import segments_of
from gputop.engine.switches import OpenThreads
from gputop.explain.evidence.activity import ActivityGatherer
from gputop.explain.evidence.apiclass import ApiTable, Role
from gputop.explain.evidence.before import records_before
from gputop.explain.evidence.descriptors import UNKNOWN, Descriptors
from gputop.explain.evidence.evidence import CALL_COLUMNS, SLICE_COLUMNS, Columns, Table
from gputop.explain.evidence.held import Held
from gputop.explain.evidence.lives import lives_of
from gputop.explain.evidence.losses import LossFinder
from gputop.explain.evidence.ranges import Ints
from gputop.explain.evidence.samples import places_of
from gputop.explain.evidence.tick import Tick
from gputop.explain.evidence.waits import STOPPED
from probes import api, schema
from probes.proc.syscalls import machine_of
from probes.samples import CarriedData, lost_until, process_data, told
from probes.schema import ALIASED, COPY_SHIFT, CallFlag, Kind, OffFlag, Records, select
from probes.source import ACTIVITY, APIS, CARRIED, FILES, GPUS, HOLE, MARK, OPEN, PLACES, SUMS, Item, Sample


def _times(records: Records) -> tuple[Ints, Ints]:
    """(begin, end); a damaged file may hold any number."""
    end = np.minimum(records["t_end"], np.uint64(1 << 62))
    begin = end - np.minimum(records["duration"], end)
    return begin.astype(np.int64), end.astype(np.int64)


def calls_of(records: Records) -> Columns:
    """CALL records as columns."""
    begin, end = _times(records)
    flags = records["flags"]
    return Columns(
        {
            "begin": begin,
            "end": end,
            "tid": records["tid"].copy(),
            "pid": records["pid"].copy(),
            "op": records["op"].copy(),
            "direction": (flags >> COPY_SHIFT).astype(np.uint8),
            "abandoned": (flags & CallFlag.ABANDONED) != 0,
            "ret": records["ret"].copy(),
            "bytes": records["bytes"].astype(np.int64),
            "stream": records["stream"].copy(),
            "aux": records["aux"].copy(),
            "stack": records["stack"].copy(),
            "shape": np.where(flags & CallFlag.COUNTERS, 0, records["run_delay"]).astype(np.uint32),
        }
    )


def slices_of(records: Records) -> Columns:
    """OFFCPU records as columns."""
    rows = records.view(ALIASED)
    begin, end = _times(rows)
    queued = end - np.minimum(rows["runnable"], (end - begin).astype(np.uint64)).astype(np.int64)
    missed = (rows["flags"] & OffFlag.WAKE_MISSED) != 0
    return Columns(
        {
            "begin": begin,
            "queued": np.where(missed, end, queued),
            "end": end,
            "tid": rows["tid"].copy(),
            "pid": rows["pid"].copy(),
            "waker_tid": rows["waker_tid"].copy(),
            "waker_pid": rows["waker_pid"].copy(),
            "cpu": rows["cpu"].copy(),
            "queue_cpu": rows["queue_cpu"].copy(),
            "syscall": np.where(rows["ret"] & schema.STOPPED_STATES, STOPPED, rows["op"]).astype(np.uint16),
            "flags": rows["flags"].copy(),
            "faults": rows["faults"].copy(),
            "descriptor": rows["argument"].copy(),
            "file": np.full(len(rows), UNKNOWN, np.int32),  # told at the next mark
            "stack": rows["stack"].copy(),
        }
    )


class Gatherer:
    """Takes items in. ``ticks`` may be shortened from the left by whoever keeps a window only."""

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
        self.unkept: list[tuple[int, int]] = []  # when only sums were kept
        self.choices_kept = True  # of them it was written which GPU a thread chose, all the same
        self.counted_lost = 0
        self.complete: frozenset[int] = frozenset()  # before a cut, all of whose calls were seen
        self._grouped = False

    def feed(self, item: Item) -> bool:
        """Takes one item in; True when it closed a tick."""
        if not isinstance(item, Sample):
            self._records(item)
            return False
        if item.kind == MARK:
            self.facts.take(item)
            self._mark(item)
            return True
        if (threads := told(item, OPEN)) is not None:
            self.open = OpenThreads.from_sample(threads, ended=True)
        elif item.kind == GPUS:
            self.gpus.append(item)
        elif (files := told(item, FILES)) is not None:
            self.descriptors.take(files)
        elif (places := told(item, PLACES)) is not None:
            self.ticks[-1].places.append(places_of(places))
        elif (carried := told(item, CARRIED)) is not None:
            self._before(carried)
        elif item.kind in (HOLE, SUMS):
            self._hole = True
            if item.kind == SUMS:
                self.losses.skip()
                self._unkept = True
                self.choices_kept &= item.data.get("choices") is True
        elif (activities := told(item, ACTIVITY)) is not None:
            self._activities += self.activities.take(activities)
        elif (apis := told(item, APIS)) is not None:
            self.apis = ApiTable(apis.get("rows", ()), proves=self._proves)
            self.held.name(list(self.apis.names))
        elif (process := process_data(item)) is not None:
            devices = process.get("cuda_devices")
            if isinstance(devices, list):
                self.held.uses(process["pid"], (one for one in devices if isinstance(one, int)))
        self.facts.take(item)
        return False

    def copy(self) -> Gatherer:
        """At a mark: one that goes on from here by itself. Closed ticks are both's: they never change."""
        other = apart(self, shared=("header", "apis", "open"))  # replaced as a whole, never changed
        other.ticks[-1] = Tick()
        return other

    def join(self, first: int) -> None:
        """Makes one of the closed ticks from this one on: few large tables take less time and room."""
        closed = self.ticks[first:-1]
        tick = Tick(
            calls=[Columns.join((part for one in closed for part in one.calls), CALL_COLUMNS)],
            inner=[Columns.join((part for one in closed for part in one.inner), CALL_COLUMNS)],
            slices=[Columns.join((part for one in closed for part in one.slices), SLICE_COLUMNS)],
            on_cpu=[part for one in closed for part in one.on_cpu],
            moves=[part for one in closed for part in one.moves],
            places=[part for one in closed for part in one.places],
        )
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
            self.descriptors.tell(part)
        for table in self.ticks[-1].places:
            self.descriptors.tell(table)
        if self._hole:
            self.losses.miss(self._marked_ns, mark.time_ns)
        self._count_activities(mark)
        if self._unkept:
            self.unkept.append((self._marked_ns, mark.time_ns))
        self._marked_ns, self._hole, self._unkept = mark.time_ns, False, False
        self.ticks[-1].close(mark.time_ns)
        self.ticks.append(Tick())

    def _count_activities(self, mark: Sample) -> None:
        """Where some are missing, what they covered is not known."""
        told = mark.data.get("activities")
        if isinstance(told, list) and len(told) == 2 and told[0] != self._activities:
            self.losses.records += max(int(told[0]) - self._activities, 0)
            self.losses.miss(min(self._marked_ns, int(told[1])), mark.time_ns)
        self._activities = 0

    def _before(self, carried: CarriedData) -> None:
        """Calls from before a cut: no record of the file, so none is lost among them."""
        records, complete = records_before(carried)
        self.complete |= complete
        if len(records):
            self._take(records)

    def _records(self, records: Records) -> None:
        if not len(records):
            return
        self.losses.add(records)
        self.held.add(records)
        self._take(records)

    def _take(self, records: Records) -> None:
        self.end_ns = max(self.end_ns, int(records["t_end"].max()))
        kinds, tick = records["kind"], self.ticks[-1]
        calls = kinds == np.uint8(Kind.CALL)
        if calls.any():
            self._calls(records, calls)
            self.failed.add(records if calls.all() else select(records, calls))
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
            gives = roles == Role.ENQUEUE
            self.ticks[-1].inner.append(calls_of(select(records, inner & gives)))

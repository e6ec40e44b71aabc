"""One user's view of all observed items, limited to what ``/proc`` shows to that user.

Root sees everything. Others see their own processes in full; of other users' processes only pid and sums,
without name, command, function, line or file. Kinds of samples that are not listed here are hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gputop.analysis.evidence.columns import union
from gputop.analysis.evidence.gatherer import records_before, sample_of
from gputop.engine.calls.histogram import Ints
from gputop.engine.threads.occupancy import SEGMENT, segments_of, split
from gputop.serve.clients.owners import Owners
from probes.activities import activity_rows, activity_samples
from probes.arrays import distinct
from probes.schema import ALIASED, Kind, Records, select
from probes.shapes import shapes_in, shapes_sample
from probes.source import (
    ACTIVITY,
    APIS,
    CARRIED,
    CLIENT,
    COUNTERS,
    FAULTS,
    FILES,
    FRAMES,
    GPUS,
    HOST,
    MACHINE,
    MARK,
    NAMES,
    NOTE,
    OPEN,
    OTHERS,
    PLACES,
    PROBLEM,
    PROCESS,
    RESIDENT,
    Item,
    Sample,
)

ROOT: Final = 0
_OFFCPU, _MIGRATE, _OCCUPANT = np.uint8(Kind.OFFCPU), np.uint8(Kind.MIGRATE), np.uint8(Kind.OCCUPANT)
STRANGER: Final = "(another user's)"
# public in NVML and /proc
_EVERYBODY: Final = frozenset({MARK, GPUS, APIS, COUNTERS, HOST, MACHINE, OTHERS})
# columns with a row for each process or thread
_BY_PROCESS: Final = frozenset({NAMES, OPEN, FRAMES, FAULTS, FILES, RESIDENT})
_KEPT: Final = ("pid", "watched", "start_ns", "seen_ns", "exited_ns", "called", "namespace_pid")
_HEADER: Final = frozenset({"libraries", "command", "pids"})  # reveal other users' programs
_NAMES_PATHS: Final = "some processes of other users could not be observed; sudo gputop attach lists them"


class UserView:
    """A filter of items for one user, tick by tick; records are renumbered, so hidden ones are no gap."""

    def __init__(self, uid: int, owners: Owners) -> None:
        self.uid = uid
        self._owners = owners
        self._left_out: dict[int, int] = {}  # records of each CPU that are not shown
        self._shapes: set[int] = set()  # reported ones, of the user's launches alone

    def header(self, header: Mapping[str, Any]) -> dict[str, Any]:
        if self.uid == ROOT:
            return dict(header)
        return {key: value for key, value in header.items() if key not in _HEADER}

    def items(self, tick: Iterable[Item]) -> Iterator[Item]:
        """Yield the user's part of a tick; records come joined, before samples after the first of them."""
        if self.uid == ROOT:
            yield from tick
            return
        tick = list(tick)
        queued = self._queued(tick)
        for item in tick:
            if isinstance(item, Sample):
                yield from self.sample(item)
            else:
                shown = self._records(item, queued)
                if len(shown):
                    yield from self._shapes_of(shown, int(shown["t_end"][0]))
                    yield shown

    def known_shapes(self, time_ns: int) -> Sample:
        """Return the launch shapes reported so far, for clients that join later."""
        return shapes_sample(self._owners.shapes, sorted(self._shapes), time_ns)

    def _shapes_of(self, records: Records, time_ns: int) -> Iterator[Sample]:
        """The shapes of the user's launches, each once."""
        sample = shapes_sample(self._owners.shapes, {*shapes_in(records)} - self._shapes, time_ns)
        self._shapes.update(sample.data["shape"])
        if sample.data["shape"]:
            yield sample

    # -- records ------------------------------------------------------------------------------------

    def _queued(self, tick: list[Item]) -> dict[int, tuple[Ints, Ints]]:
        """CPU -> times in which a thread of the user waited in its queue: its occupants then are visible."""
        waits, moves = [], []
        for item in tick:
            if isinstance(item, Sample):
                waits += [self._waiting(item)] if item.kind == OPEN else []
                continue
            rows = select(item, self._owners.are(item["pid"], self.uid)).view(ALIASED)
            waits.append(segments_of(rows[rows["kind"] == _OFFCPU], "queue_cpu", "runnable"))
            moves.append(segments_of(rows[rows["kind"] == _MIGRATE], "queue_cpu"))
        if not waits:
            return {}
        found = split(np.concatenate(waits), np.concatenate(moves) if moves else waits[0][:0])
        return {
            cpu: union(found["begin"][found["cpu"] == cpu], found["end"][found["cpu"] == cpu])
            for cpu in distinct(found["cpu"]).tolist()
        }

    def _waiting(self, sample: Sample) -> npt.NDArray[np.void]:
        """The waits in progress at a mark."""
        columns = ("pid", "tid", "queue_cpu", "queued_since")
        rows = [
            row
            for row in zip(*(sample.data.get(name, ()) for name in columns), strict=False)
            if row[3] and self._is_mine(row[0])
        ]
        segments = np.zeros(len(rows), SEGMENT)
        for place, (pid, tid, cpu, since) in enumerate(rows):
            segments[place] = (cpu, since, max(sample.time_ns, since), tid, pid)
        return segments

    def _records(self, records: Records, queued: Mapping[int, tuple[Ints, Ints]]) -> Records:
        keep = self._owners.are(records["pid"], self.uid)
        occupants = records["kind"] == _OCCUPANT
        keep[occupants] = _during(records[occupants], queued)
        shown: Records = records[keep].copy()
        gone = np.empty(len(records), np.uint32)
        cpus = records["cpu"]
        for cpu in distinct(cpus).tolist():
            on = cpus == cpu
            out = np.cumsum(~keep[on]).astype(np.uint32) + np.uint32(self._left_out.get(cpu, 0))
            gone[on] = out
            self._left_out[cpu] = int(out[-1])
        shown["seq"] -= gone[keep]
        return shown

    # -- samples ------------------------------------------------------------------------------------

    def sample(self, sample: Sample) -> Iterator[Sample]:
        """Yield the user's part of a sample, if any."""
        kind, data = sample.kind, sample.data
        if kind == MARK and self.uid != ROOT:
            # the number of activities is that of all users together
            yield Sample(kind, sample.time_ns, {key: data[key] for key in data if key != "activities"})
        elif self.uid == ROOT or kind in _EVERYBODY:
            yield sample
        elif kind == ACTIVITY:
            yield from self._activities(sample)
        elif kind in (PROCESS, CLIENT):
            yield Sample(kind, sample.time_ns, self._process(data))
        elif kind in _BY_PROCESS:
            yield _rows(sample, "pid", self._is_mine)
        elif kind == PLACES:
            yield _rows(sample, "tid", lambda tid: self._owners.of_thread(tid) == self.uid)
        elif kind == CARRIED:
            yield from self._carried(sample)
        elif kind == PROBLEM:
            yield self._problem(sample)
        elif kind == NOTE and self._is_mine(data.get("pid")):
            yield sample

    def _activities(self, sample: Sample) -> Iterator[Sample]:
        """Ranges of the user's processes, without another's texts."""
        rows, texts = activity_rows(sample.data)
        yield from activity_samples(rows[self._owners.are(rows["pid"], self.uid)], texts, sample.time_ns)

    def _is_mine(self, pid: object) -> bool:
        return isinstance(pid, int) and self._owners.of(pid) == self.uid

    def _process(self, data: Mapping[str, Any]) -> dict[str, Any]:
        pid = data.get("pid")
        uid = data.get("uid", self._owners.of(pid) if isinstance(pid, int) else None)
        if uid == self.uid:
            return dict(data)
        kept = {key: data[key] for key in _KEPT if key in data}
        return kept | ({"name": STRANGER} if "start_ns" in data else {})

    def _carried(self, sample: Sample) -> Iterator[Sample]:
        """The user's calls from before a recording's start."""
        records, complete = records_before(sample.data)
        mine = records[self._owners.are(records["pid"], self.uid)]
        yield from self._shapes_of(mine, sample.time_ns)
        yield sample_of(mine, filter(self._is_mine, complete), sample.time_ns)

    def _problem(self, sample: Sample) -> Sample:
        """A text without file or process concerns the machine; others may reveal another user's programs."""
        text = str(sample.data.get("text", ""))
        if "/" not in text and "process" not in text:
            return sample
        if self._is_mine(sample.data.get("pid")):
            return sample
        return Sample(PROBLEM, sample.time_ns, {"text": _NAMES_PATHS if text else "", "about": _NAMES_PATHS})


def _during(records: Records, queued: Mapping[int, tuple[Ints, Ints]]) -> npt.NDArray[np.bool_]:
    """True for each occupancy of a CPU that overlaps such times."""
    keep = np.zeros(len(records), np.bool_)
    end = records["t_end"].astype(np.int64)
    begin = end - records["duration"].astype(np.int64)
    for cpu, (begins, ends) in queued.items():
        on = records["cpu"] == cpu
        at = np.searchsorted(ends, begin[on], side="right")
        found = at < len(begins)
        found[found] = begins[at[found]] < end[on][found]
        keep[on] = found
    return keep


def _rows(sample: Sample, column: str, mine: Callable[[Any], bool]) -> Sample:
    """A table of columns without the rows of others."""
    owners = sample.data.get(column, ())
    rows = [row for row, owner in enumerate(owners) if mine(owner)]
    data = {
        key: [values[row] for row in rows]
        for key, values in sample.data.items()
        if isinstance(values, list) and len(values) == len(owners)
    }
    return Sample(sample.kind, sample.time_ns, data)
